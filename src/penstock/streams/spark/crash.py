"""Places at which a test can let an app die, once: a file named for the place is the order."""

import os
import signal
from pathlib import Path

BEFORE_COMMIT = "before-commit"  # all is computed, nothing is published
AFTER_COMMIT = "after-commit"  # it is published, and the commit is not written yet
IN_WORKER = "in-worker"  # a task, in the middle of a batch
POINTS = (BEFORE_COMMIT, AFTER_COMMIT, IN_WORKER)


class Crash(Exception):
    """A query was ordered to die; its process goes on, with nothing left of it."""


def crash_at(folder: Path, point: str) -> None:
    """Ends this process as kill -9 does, if that was ordered."""
    try:
        (folder / point).unlink()  # only one process succeeds
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
