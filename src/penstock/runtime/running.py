"""Running an app: all nodes at once, each on its own when it fails, until told to stop."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from penstock import clock
from penstock.errors import AppError
from penstock.runtime.app import App
from penstock.runtime.installation import Installation, app_folder, installed
from penstock.runtime.status import AppStatus
from penstock.runtime.watch import Watch

_LOOK_EVERY = 0.25
_TELL_EVERY = 1.0
_STOP_WITHIN = 20.0


def run(app: App, *, once: bool, rebuild: Sequence[str], reset: Sequence[str]) -> int:
    folder = app_folder(app.data, app.name)
    with (
        running_alone(folder, app.name),
        installed(app, rebuild=rebuild, reset=reset) as installation,
    ):
        supervisor = Supervisor(installation, folder)
        if once:
            return supervisor.drain()
        with told_to_stop() as stop:
            return supervisor.run(stop)


class Supervisor:
    def __init__(self, installation: Installation, folder: Path) -> None:
        self.watches = [Watch(installation, built) for built in installation.nodes]
        self._folder = folder
        now = clock.now_ms()
        self.status = AppStatus(
            installation.app.name, os.getpid(), now, now, [each.status for each in self.watches]
        )

    def drain(self) -> int:
        """Brings every node to the end of its inputs, each after those it reads from."""
        for watch in self.watches:
            watch.start(once=True)
            watch.finish()
            self._tell()
            if watch.status.state == "failed":
                break  # those after it would work on half of the rows
            watch.status.state = "stopped"
        return self._end()

    def run(self, stop: threading.Event) -> int:
        for watch in self.watches:
            watch.start()
        told = 0.0
        while not stop.wait(_LOOK_EVERY):
            for watch in self.watches:
                watch.look()
            if clock.monotonic() - told >= _TELL_EVERY:
                told = clock.monotonic()
                self._tell()
        deadline = clock.monotonic() + _STOP_WITHIN
        for watch in self.watches:
            watch.stop(max(0.0, deadline - clock.monotonic()))
        return self._end()

    def _tell(self) -> None:
        self.status.written_ms = clock.now_ms()
        self.status.write(self._folder)

    def _end(self) -> int:
        self.status.stopped = True
        self._tell()
        return sum(watch.status.state == "failed" for watch in self.watches)


@contextmanager
def running_alone(folder: Path, app: str) -> Iterator[None]:
    """One process runs an app at a time; a second one is told who does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise AppError(
                f"app {app!r} is running already, as process {owner}",
                hint="penstock status shows it; stop that one first",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM; a second Ctrl-C interrupts at once."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
