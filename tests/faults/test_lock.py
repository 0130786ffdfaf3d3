"""One owner at a time, and nobody is kept out by one who only looks."""

import threading
from pathlib import Path

from penstock.log.owner import Ownership, find


def test_who_looks_for_the_owner_keeps_nobody_out(tmp_path: Path) -> None:
    """To look, the lock is held for an instant, at which another may want it."""
    Ownership(tmp_path).release()
    enough = threading.Event()
    found: set[str | None] = set()

    def look() -> None:
        while not enough.is_set():
            found.add(find(tmp_path))

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for number in range(100):
            owner = Ownership(tmp_path)
            owner.announce(f"127.0.0.1:{number}")
            owner.release()
    finally:
        enough.set()
        for looker in lookers:
            looker.join()
    assert found <= {None, *(f"127.0.0.1:{number}" for number in range(100))}
