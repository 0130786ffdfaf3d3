"""Running an app: all nodes at once, each on its own when it fails, until told to stop."""

import fcntl
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from penstock import clock
from penstock.errors import AppError, PenstockError
from penstock.runtime.app import App
from penstock.runtime.folders import app_folder
from penstock.runtime.installation import Installation, check_renewal, installed
from penstock.runtime.keeping import views_kept, views_served
from penstock.runtime.status import AppStatus, NodeStatus
from penstock.runtime.watch import Watch, cause_of
from penstock.serve.projector import Projector

logger = logging.getLogger(__name__)

_LOOK_EVERY = 0.25
_TELL_EVERY = 1.0
_KEEP_AGAIN = 5.0
_STOP_WITHIN = 20.0


def run(
    app: App,
    *,
    once: bool,
    rebuild: Sequence[str],
    reset: Sequence[str],
    port: int | None = None,
    file: Path | None = None,
    watcher: Callable[[AppStatus], None] | None = None,
) -> int:
    """`watcher` is called with what there is to tell, several times a second. Views are served on
    the port, if there is one and the app goes on. `file` is the one that makes the app."""
    folder = app_folder(app.data, app.name)
    nodes = [NodeStatus(node.name) for node in app.ordered_nodes()]
    check_renewal(app, rebuild, reset)  # a slip costs nothing, not even what was told last
    with running_alone(folder, app.name):
        now = clock.now_ms()
        status = AppStatus(
            app.name, os.getpid(), now, now, nodes, file=str(file.absolute()) if file else ""
        )
        status.write(folder)  # Spark takes its time
        try:
            with (
                installed(app, rebuild=rebuild, reset=reset) as installation,
                told_to_stop() as stop,
                views_kept(installation) as views,
                views_served(installation, None if once else port) as status.address,
            ):
                supervisor = Supervisor(installation, folder, status, watcher, views)
                if not once:
                    return supervisor.run(stop)
                failing = supervisor.drain(stop)
                if views is not None:
                    views.finish()  # who asks for the present end is told when it is not reached
                return failing
        except Exception as error:
            status.error = cause_of(error)
            raise
        finally:
            status.stopped = True
            status.written_ms = clock.now_ms()
            status.write(folder)


class Supervisor:
    def __init__(
        self,
        installation: Installation,
        folder: Path,
        status: AppStatus,
        watcher: Callable[[AppStatus], None] | None = None,
        views: Projector | None = None,
    ) -> None:
        self.watches = [Watch(installation, built) for built in installation.nodes]
        self._installation = installation
        self.status = status
        status.nodes = [each.status for each in self.watches]
        self._folder = folder
        self._watcher = watcher
        self._views = views
        self._told = 0.0
        self._failing: list[str] = []
        self._keep_at = 0.0

    def drain(self, stop: threading.Event) -> int:
        """Brings every node to the end of its inputs, each after those it reads from."""
        failed: set[str] = set()
        for watch in self.watches:
            if failed & set(watch.inputs):
                failed.add(watch.name)  # it would work on half of the rows
                continue
            watch.start(once=True)
            while not watch.finish(_LOOK_EVERY):
                self._keep_log()
                self._tell()
                if stop.is_set():
                    watch.stop(_STOP_WITHIN)
            if watch.status.state == "failed":
                failed.add(watch.name)
            else:
                watch.status.turn("stopped")
            if stop.is_set():
                break
        self._tell()
        return len(self.status.failing)

    def run(self, stop: threading.Event) -> int:
        for watch in self.watches:
            watch.start()
            self._tell()
        while not stop.wait(_LOOK_EVERY):
            self._keep_log()
            for watch in self.watches:
                watch.look()
            self._tell()
        self.status.stopping = True
        self._tell()
        deadline = clock.monotonic() + _STOP_WITHIN
        for watch in self.watches:
            try:
                watch.stop(max(0.0, deadline - clock.monotonic()))
            except Exception as error:  # a signal to all processes has ended Spark before
                logger.warning("node %s was cut short: %s", watch.name, cause_of(error))
                watch.status.turn("stopped")
        return len(self.status.failing)

    def _keep_log(self) -> None:
        if clock.monotonic() < self._keep_at:
            return
        try:
            self._installation.keep_log()
        except PenstockError as error:
            logger.error("the log is out of reach: %s", error)
            self._keep_at = clock.monotonic() + _KEEP_AGAIN

    def _tell(self) -> None:
        """A failure at once, and before it is shown: who then asks is to be told the same."""
        self.status.views_error = self._views.error if self._views else ""
        failing = [each.name for each in self.status.failing]
        if failing != self._failing or clock.monotonic() - self._told >= _TELL_EVERY:
            self._failing = failing
            self._told = clock.monotonic()
            self.status.written_ms = clock.now_ms()
            self.status.write(self._folder)
        if self._watcher is not None:
            self._watcher(self.status)


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
    """Set by Ctrl-C, SIGTERM or a terminal that is closed; a second Ctrl-C interrupts at once."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.signal(each, handle) for each in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
