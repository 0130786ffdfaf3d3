"""The arenas that a process keeps mapped from one step of a bucket to the next.

The pages of a new mapping have to be looked up one by one when they are first touched, which takes
longer than the step itself. But each file that is mapped takes a file descriptor, and its memory is
not given back when another process puts a new file in its place.
"""

import resource
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from penstock.streams.state.arena import Arena

_MOST = 1024
_MOST_BYTES = 2 * 2**30
_ANY_SIZE = 64  # as many stay mapped however large they are


class _Mapped(NamedTuple):
    arena: Arena
    files: int
    size: int  # bytes


class MappedArenas:
    """Those of the buckets that no step works on, by folder; the one used last comes last."""

    def __init__(self) -> None:
        self._mapped: OrderedDict[Path, _Mapped] = OrderedDict()
        self._files = self._size = 0
        self._lock = Lock()

    def take(self, folder: Path) -> Arena | None:
        """It is the caller's then, until it is put back."""
        with self._lock:
            return self._remove(folder) if folder in self._mapped else None

    def put(self, folder: Path, arena: Arena) -> None:
        """What was used longest ago is unmapped when it becomes too much."""
        # Half of what the process may open is left for all else that it does.
        most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        with self._lock:
            if folder in self._mapped:
                self._remove(folder)
            each = _Mapped(arena, *arena.mapped)
            self._mapped[folder] = each
            self._files += each.files
            self._size += each.size
            while len(self._mapped) > _ANY_SIZE and (
                len(self._mapped) > _MOST
                or self._size > _MOST_BYTES
                or self._files > most_files >= 0
            ):
                self._remove(next(iter(self._mapped)))

    def forget(self, warm_folder: str | Path) -> None:
        """Unmaps those below this folder."""
        with self._lock:
            for each in [each for each in self._mapped if each.is_relative_to(warm_folder)]:
                self._remove(each)

    def _remove(self, folder: Path) -> Arena:
        each = self._mapped.pop(folder)
        self._files -= each.files
        self._size -= each.size
        return each.arena
