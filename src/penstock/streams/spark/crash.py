"""Places at which a test can let a node die, once: a file named for the place is the order."""

import os
import signal
from pathlib import Path

BEFORE_COMMIT = "before-commit"  # all is staged, nothing is published
AFTER_COMMIT = "after-commit"  # it is published, and Spark has not noted it yet
IN_WORKER = "in-worker"  # a task, in the middle of a batch
POINTS = (BEFORE_COMMIT, AFTER_COMMIT, IN_WORKER)


def crash_at(folder: str, point: str) -> None:
    """Ends this process as kill -9 does, if that was ordered; `folder` is "" outside of tests."""
    if not folder:
        return
    try:
        (Path(folder) / point).unlink()  # only one process succeeds
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
