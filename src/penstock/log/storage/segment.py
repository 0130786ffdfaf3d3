"""One file of record batches, its index, and what is known of the soundness of its bytes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.clock import now_ms
from penstock.errors import CorruptBatch
from penstock.events.batch import HEADER_BYTES, BatchHeader, Buffer, check_batch, read_header
from penstock.log.storage.files import OpenFile
from penstock.log.storage.index import Index, load_index, read_max_timestamp
from penstock.log.storage.survey import survey

LEADER_EPOCH = 0  # one owner, never a second leader
WALK_BYTES = 16 * 1024
SCAN_BYTES = 4 * 1024 * 1024
IOV_MAX = 512


class Slice(NamedTuple):
    """Whole batches, as a range of a file."""

    file: OpenFile
    position: int
    size: int

    def read(self) -> bytes:
        data = os.pread(self.file.fd, self.size, self.position)
        if len(data) != self.size:
            raise CorruptBatch(
                f"{self.file.name} ends {self.size - len(data)} bytes early",
                file=self.file.name,
                position=self.position + len(data),
                hint="somebody shortened the file",
            )
        return data


class Segment:
    """Appended to by one thread at a time; read by any.

    Bytes from `trusted_from` on were checked when this process appended or recovered them, bytes
    before `trusted_to` when they were first read; what lies between is checked before it is served.
    """

    def __init__(self, folder: Path | None, base_offset: int, next_offset: int = -1) -> None:
        """`next_offset` is known for a closed segment: the base of the one after it."""
        self.base_offset = base_offset
        self.next_offset = next_offset if next_offset >= 0 else base_offset
        self.folder = folder
        self.path = None if folder is None else folder / f"{base_offset:020d}.log"
        self.file = OpenFile(self.path)
        self.size = self.file.size()
        self.began_ms = now_ms()
        self.trusted_from = self.size
        self.trusted_to = 0
        self._index: Index | None = None if self.size else Index()

    @property
    def index_path(self) -> Path | None:
        return self.path and self.path.with_suffix(".index")

    @property
    def index(self) -> Index:
        """Loaded when it is needed, built again from the batches when it does not fit."""
        index = self._index  # which another reader may drop meanwhile
        if index is None:
            found = self._saved_index()
            index = self._index = found[0] if found else self._build_index()
        return index

    @index.setter
    def index(self, index: Index) -> None:
        self._index = index

    def _build_index(self) -> Index:
        index, sound = Index(), True
        for position, found in survey(self, 0, self.base_offset, self.next_offset):
            if isinstance(found, BatchHeader):
                index.note(found, found.base_offset, position)
            else:
                sound = False
        if sound:
            self.trusted_from = 0
        return index

    @property
    def max_timestamp(self) -> int:
        if self._index is None and self.index_path is not None:
            found = read_max_timestamp(self.index_path, self.size)
            if found is not None:
                return found
        return self.index.max_timestamp

    def load_index(self) -> bool:
        """Takes over the saved index if it fits this file as it is."""
        found = self._saved_index()
        if found:
            self._index, self.next_offset = found
        return found is not None

    def _saved_index(self) -> tuple[Index, int] | None:
        path = self.index_path
        return None if path is None else load_index(path, self.base_offset, self.size)

    def drop_index(self) -> None:
        self._index = None

    def save_index(self) -> None:
        if self.index_path is not None:
            self.index.save(self.index_path, self.base_offset, self.next_offset, self.size)

    def write(self, pieces: Sequence[Buffer]) -> int:
        """Writes at the end, all or nothing: what a full disk took in part is cut off again.

        Returns where the file ends now. `size` says so when the writer sets it, together with the
        offsets: until then, nobody else looks at these bytes.
        """
        position = self.size
        try:
            for first in range(0, len(pieces), IOV_MAX):
                position = self._write_some(pieces[first : first + IOV_MAX], position)
        except OSError:
            os.ftruncate(self.file.fd, self.size)
            raise
        return position

    def _write_some(self, pieces: Sequence[Buffer], position: int) -> int:
        wanted = sum(map(len, pieces))
        written = os.pwritev(self.file.fd, pieces, position)
        if written != wanted:  # a short write; the next one goes through or says why not
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[os.pwrite(self.file.fd, rest, position + wanted - len(rest)) :]
        return position + wanted

    def sync(self) -> None:
        os.fdatasync(self.file.fd)

    def truncate(self, size: int) -> None:
        if self.index_path is not None:
            self.index_path.unlink(missing_ok=True)  # before it could fit other bytes of its size
        os.ftruncate(self.file.fd, size)
        self.size = size

    def walk(self, position: int, limit: int) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the batches from `position` to `limit`, known to be sound."""
        window, window_at = b"", position
        while position < limit:
            at = position - window_at
            if at + HEADER_BYTES > len(window):
                window, window_at, at = os.pread(self.file.fd, WALK_BYTES, position), position, 0
                if len(window) < HEADER_BYTES:
                    return
            header = read_header(window, at)
            if header.size < HEADER_BYTES:  # changed since it was checked, or this would not end
                raise self.corrupt(position, f"a batch claims {header.size} bytes")
            yield position, header
            position += header.size

    def scan(
        self, position: int, offset: int, at_once: int = SCAN_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """As `walk`, but checks every byte, and that offsets go on from `offset` without a gap.

        Reads `at_once` bytes in one go, or a whole batch. Raises CorruptBatch at the first batch
        that is not sound and whole.
        """
        window, window_at = memoryview(b""), position
        while position < self.size:
            at = position - window_at
            seen = len(window) - at
            needed = read_header(window, at).size if seen >= HEADER_BYTES else HEADER_BYTES
            if seen < needed <= self.size - position:
                window = memoryview(os.pread(self.file.fd, max(needed, at_once), position))
                window_at, at = position, 0
                if len(window) >= needed:
                    continue
            header = self._check_one(window, at, position, offset)
            yield position, header
            position += header.size
            offset = header.next_offset

    def _check_one(self, data: memoryview, at: int, position: int, offset: int) -> BatchHeader:
        try:
            header = check_batch(data, at)
        except CorruptBatch as broken:
            raise self.corrupt(position, broken.message) from None
        # The checksum leaves out what the log stamps, so that is compared with what it must be.
        if header.base_offset != offset or header.leader_epoch != LEADER_EPOCH:
            raise self.corrupt(
                position,
                f"offset {header.base_offset} and epoch {header.leader_epoch} "
                f"stand where {offset} and {LEADER_EPOCH} belong",
            )
        return header

    def headers(self, entry: tuple[int, int] | None) -> Iterator[BatchHeader]:
        """The batches from an entry of the index on, or from the start, checked where need be."""
        position, offset = entry or (0, self.base_offset)
        if position >= self.trusted_from:
            return (header for _, header in self.walk(position, self.size))
        return (header for _, header in self.scan(position, offset, WALK_BYTES))

    def locate(self, offset: int) -> tuple[int, BatchHeader]:
        """The checked batch that holds `offset`. Raises CorruptBatch where there is none."""
        entry, base = self.index.before_offset(offset) or (0, self.base_offset)
        sound = self.size if entry >= self.trusted_from else self.trusted_to
        for position, header in self.walk(entry, sound):
            if header.last_offset >= offset:
                return position, header
        missing = self.corrupt(self.size, f"offset {offset} is missing")
        goes_on = self.next_offset
        for position, found in survey(self, entry, base, self.next_offset, WALK_BYTES):
            if isinstance(found, CorruptBatch):
                missing = found
            elif found.last_offset >= offset:
                if found.base_offset <= offset:
                    return position, found
                goes_on = found.base_offset
                break
        missing.hint = f"restore the file from a copy, or go on at offset {goes_on}"
        raise missing

    def slice(self, offset: int, max_bytes: int, limit: int) -> Slice:
        """Checked batches from the one that holds `offset`, about `max_bytes`, but at least one.

        `limit` is the position where the batches that may be seen end.
        """
        start, header = self.locate(offset)
        if limit - start > max_bytes:
            # An index entry is a batch boundary; the next fetch then begins on an entry.
            entry = self.index.before_position(start + max_bytes)
            limit = max(entry[0] if entry else 0, start + header.size)
        if self.trusted_to < limit and start < self.trusted_from:
            limit = self._check(start, header.base_offset, limit)
        return Slice(self.file, start, limit - start)

    def _check(self, start: int, offset: int, limit: int) -> int:
        """Checks a range that is served for the first time; returns where its sound batches end."""
        checked = start
        try:
            for position, header in self.scan(start, offset, min(SCAN_BYTES, limit - start)):
                checked = position + header.size
                if checked >= limit:
                    break
        except CorruptBatch:
            if checked == start:
                raise
        if start <= self.trusted_to:
            self.trusted_to = max(self.trusted_to, checked)
        return min(checked, limit)

    def corrupt(self, position: int, why: str) -> CorruptBatch:
        return CorruptBatch(
            f"{self.file.name} is damaged at byte {position}: {why}",
            file=self.file.name,
            position=position,
            hint="the records before and after it can be read; restore the file from a copy",
        )

    def remove(self) -> None:
        """Unlinks the files; readers that hold the segment keep reading it."""
        for path in (self.path, self.index_path):
            if path is not None:
                path.unlink(missing_ok=True)
