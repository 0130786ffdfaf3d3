"""When records were appended: about one note a second beside a partition's segments.

A note is a base offset and a time in milliseconds, both int64 little endian. It holds for the
records from its offset on up to the next note's, each of which was appended less than a second
later. The notes are not synced on their own account: a power cut may take the last ones, and
what was appended then counts as appended when the note before says.
"""

import contextlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any

from penstock.log.storage.files import write_atomically

APPENDED_FILE = "appended"
INTERVAL_MS = 1_000
_PAIR = Struct("<qq")
_AT_ONCE = 1024  # notes

Pairs = list[tuple[int, int]]


def read_append_times(folder: Path) -> Pairs:
    """All notes of the partition in this folder, offset and time, by rising offset."""
    try:
        content = (folder / APPENDED_FILE).read_bytes()
    except FileNotFoundError:
        return []
    pairs = list(_PAIR.iter_unpack(content[: len(content) // _PAIR.size * _PAIR.size]))
    for number, (before, after) in enumerate(pairwise(pairs), 1):
        if after[0] <= before[0]:  # a power cut may leave zeros at the end
            return pairs[:number]
    return pairs


def in_force(pairs: Pairs, start: int, end: int) -> Pairs:
    """The notes that hold for some record from `start` to before `end`."""
    if start >= end:
        return []
    first = max(bisect_right(pairs, (start, 2**63)) - 1, 0)
    return [pair for pair in pairs[first:] if pair[0] < end]


def read_in_force(folder: Path, start: int, end: int) -> Pairs:
    """As `in_force` of all notes, of which no more are read than it takes to find them."""
    try:
        handle = os.open(folder / APPENDED_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        notes = _Notes(handle)
        first = max(bisect_right(notes, (start, 2**63)) - 1, 0)
        found: Pairs = []
        while start < end and first + len(found) < len(notes):
            more = notes.some(first + len(found))
            found += [pair for pair in more if pair[0] < end]
            if not more or more[-1][0] >= end:
                break
        return found
    finally:
        os.close(handle)


class _Notes(Sequence[tuple[int, int]]):
    """The notes in an open file, up to where they no longer rise."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._count = os.fstat(handle).st_size // _PAIR.size
        while self._count > 1 and self[self._count - 1][0] <= self[self._count - 2][0]:
            self._count -= 1

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        content = os.pread(self._handle, _PAIR.size, place * _PAIR.size)
        return _PAIR.unpack(content.ljust(_PAIR.size, b"\0"))  # a restart may have cut it off

    def some(self, first: int) -> Pairs:
        count = min(_AT_ONCE, self._count - first)
        content = os.pread(self._handle, count * _PAIR.size, first * _PAIR.size)
        return list(_PAIR.iter_unpack(content))


class AppendTimes:
    """Called by one thread at a time."""

    def __init__(self, folder: Path | None, end: int) -> None:
        """Takes back the notes about records from `end` on, which a crash took."""
        self._path = folder and folder / APPENDED_FILE
        self._memory: Pairs = []
        self._noted_ms = -(2**63)
        self._size = 0
        if folder is None or self._path is None:
            return
        pairs = read_append_times(folder)
        kept = pairs[: bisect_right(pairs, (end, -(2**63)))]
        self._size = len(kept) * _PAIR.size
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self._path, self._size)

    def note(self, offset: int, now: int) -> None:
        if abs(now - self._noted_ms) < INTERVAL_MS:
            return
        self._noted_ms = now
        if self._path is None:
            self._memory.append((offset, now))
            return
        # The records are written already, and to know less of their time is no reason to refuse.
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if os.pwrite(handle, _PAIR.pack(offset, now), self._size) == _PAIR.size:
                    self._size += _PAIR.size
            finally:
                os.close(handle)

    def pairs(self) -> Pairs:
        return list(self._memory) if self._path is None else read_append_times(self._path.parent)

    def in_force(self, start: int, end: int) -> Pairs:
        if self._path is None:
            return in_force(self._memory, start, end)
        return read_in_force(self._path.parent, start, end)

    def latest(self, offset: int) -> int:
        """Before when the record at this offset was appended; -1 if nothing was noted."""
        noted = self.in_force(offset, offset + 1)
        return noted[-1][1] + INTERVAL_MS if noted else -1

    def forget_before(self, offset: int) -> None:
        """Drops what no record needs any more, once that is half of it."""
        pairs = self.pairs()
        kept = in_force(pairs, offset, 2**63)
        if 2 * len(kept) >= len(pairs):
            return
        if self._path is None:
            self._memory = kept
            return
        content = b"".join(_PAIR.pack(*pair) for pair in kept)
        with contextlib.suppress(OSError):  # a full disk; there is room again in a moment
            write_atomically(self._path, content, durably=False)
            self._size = len(content)
