"""One process at a time works on a bucket's arena."""

import fcntl
import os
from pathlib import Path

from penstock.clock import monotonic, sleep
from penstock.errors import StateLocked

_PAUSE = 0.005
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class BucketLock:
    """Held from construction to `release`, or to the end of the process, however it ends."""

    def __init__(self, path: Path, wait: float) -> None:
        """Raises StateLocked when another process, or thread, holds it for `wait` seconds."""
        try:
            self._fd = os.open(path, _FLAGS, 0o644)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, _FLAGS, 0o644)
        deadline = monotonic() + wait
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() >= deadline:
                    holder = os.pread(self._fd, 20, 0).decode(errors="replace").strip()
                    os.close(self._fd)
                    raise StateLocked(
                        f"{path.parent} is in use by process {holder}",
                        hint="a task that was given up may still run; end it, then try again",
                    ) from None
                sleep(_PAUSE)
        os.pwrite(self._fd, f"{os.getpid():<20}".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)
