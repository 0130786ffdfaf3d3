"""A data folder has one owner at a time, and its lock file says where to reach it."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from penstock.clock import monotonic, sleep
from penstock.errors import LogLocked, LogUnreachable
from penstock.log.storage.files import make_folder, storage_error

LOCK_FILE = "lock"
SERVER_LOG = "server.log"
START_SECONDS = 20.0
ANNOUNCE_SECONDS = 5.0
# Who only looks for the owner holds the lock for an instant, so one refusal does not tell.
LOCK_SECONDS = 0.2
# The lock file is overwritten in place: there is room for that on a full disk too.
LOCK_BYTES = 256


class Ownership:
    """Held from construction to `release`, or to the end of the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder when it is missing. Raises LogLocked when another process owns it."""
        try:
            make_folder(folder)
            self._fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise storage_error(error, f"opening the log in {folder}") from error
        if not self._take():
            os.close(self._fd)
            raise _locked(folder, "connect to that address, or stop the process first")
        try:
            self.announce(None)
        except OSError as error:
            os.close(self._fd)
            raise storage_error(error, f"opening the log in {folder}") from error

    def _take(self) -> bool:
        deadline = monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic() > deadline:
                    return False
                sleep(0.01)
            else:
                return True

    def announce(self, address: str | None) -> None:
        """Writes who owns the folder and, once it serves, where."""
        content = json.dumps({"pid": os.getpid(), "address": address}).encode()
        os.pwrite(self._fd, content.ljust(LOCK_BYTES), 0)

    def release(self) -> None:
        os.pwrite(self._fd, b" " * LOCK_BYTES, 0)
        os.close(self._fd)


def _locked(folder: Path, hint: str) -> LogLocked:
    owner = _read(folder)
    where = f" at {owner['address']}" if owner.get("address") else ""
    return LogLocked(
        f"{folder} is in use by process {owner.get('pid', 'unknown')}{where}", hint=hint
    )


def _read(folder: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        facts = json.loads((folder / LOCK_FILE).read_text())
        if isinstance(facts, dict):
            return facts
    return {}


def find(folder: Path) -> str | None:
    """The address of the server that owns this folder now, or None."""
    return _read(folder).get("address") if _is_owned(folder) else None


def _is_owned(folder: Path) -> bool:
    try:
        handle = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def find_or_start(folder: Path, *, listen: str = "127.0.0.1:0", idle_exit: str = "60s") -> str:
    """The address of the folder's server; one is started in the background when none runs.

    A server started this way ends by itself when nobody has been connected for `idle_exit`. Its
    messages are in `server.log` in the folder.
    """
    address = find(folder)
    if address is not None:
        return address
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "penstock", "log", "serve", "--data", str(folder)]
    with (folder / SERVER_LOG).open("ab") as messages:
        child = subprocess.Popen(
            [*command, "--listen", listen, "--idle-exit", idle_exit],
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
            start_new_session=True,
        )
    # Reaps the child should it end before this process does.
    threading.Thread(target=child.wait, daemon=True).start()
    deadline, quicker = monotonic() + START_SECONDS, None
    while monotonic() < deadline:
        address = find(folder)
        if address is not None:
            return address
        if child.poll() is not None and quicker is None:
            if not _is_owned(folder):
                break
            quicker = monotonic()  # another process, which announces itself soon if it serves
            deadline = min(deadline, quicker + ANNOUNCE_SECONDS)
        sleep(0.01)
    if _is_owned(folder):
        raise _locked(folder, "a program has it open for itself; wait, or let it call serve()")
    raise LogUnreachable(
        f"the log server for {folder} did not start",
        hint=f"see {folder / SERVER_LOG}, or run: penstock log serve --data {folder}",
    )
