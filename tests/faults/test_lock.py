"""One owner at a time, and nobody is kept out by one who only looks."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from penstock.log.owner import LOCK_FILE, Ownership


def test_who_looks_for_the_owner_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look, the lock is held for an instant, at which another may want it."""
    Ownership(tmp_path).release()
    looking = os.open(tmp_path / LOCK_FILE, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    tried = threading.Event()
    flock = fcntl.flock

    def noticed(fd: int, operation: int) -> None:
        try:
            flock(fd, operation)
        finally:
            tried.set()

    monkeypatch.setattr(fcntl, "flock", noticed)
    owners: list[Ownership] = []
    other = threading.Thread(target=lambda: owners.append(Ownership(tmp_path)))
    other.start()
    assert tried.wait(10)
    os.close(looking)
    other.join()
    owners[0].release()
