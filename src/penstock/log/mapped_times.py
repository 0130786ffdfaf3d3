"""Finding the records of a partition by their time, in files that are mapped into memory."""

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.events.batch import HEADER_BYTES, BatchHeader, decode, read_header
from penstock.log.contract import Bounds
from penstock.log.storage.index import Index, load_index, read_max_timestamp


class MappedTimes:
    """Remembers where the batches of one segment stand, as the one written to has no index yet."""

    def __init__(self) -> None:
        self._path = Path()
        self._index = Index()
        self._noted = 0  # the bytes of it that the index tells of

    def first(self, segments: Sequence[Path], timestamp: int, bounds: Bounds) -> int | None:
        """The first offset within the bounds whose record is as late as `timestamp`."""
        for path in segments:
            try:
                found = self._first_in(path, timestamp, bounds)
            except FileNotFoundError:  # retention took it meanwhile
                continue
            if found is not None:
                return found
        return None

    def _first_in(self, path: Path, timestamp: int, bounds: Bounds) -> int | None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            highest = read_max_timestamp(path.with_suffix(".index"), size)
            if not size or (highest is not None and highest < timestamp):
                return None
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                self._note(path, data, bounds.end)
                if self._index.max_timestamp < timestamp:
                    return None
                entry = self._index.before_time(timestamp)
                for position, header in _walk(data, entry[0] if entry else 0, bounds.end):
                    if header.max_timestamp < timestamp or header.next_offset <= bounds.start:
                        continue
                    batch = memoryview(data[position : position + header.size])
                    for record in decode(batch):
                        offset = record.position.offset
                        is_late = (record.timestamp or 0) >= timestamp
                        if is_late and bounds.start <= offset < bounds.end:
                            return offset
        return None

    def _note(self, path: Path, data: mmap.mmap, end: int) -> None:
        if path != self._path:
            found = load_index(path.with_suffix(".index"), int(path.stem), len(data))
            self._path = path
            self._index, self._noted = (found[0], len(data)) if found else (Index(), 0)
        for position, header in _walk(data, self._noted, end):
            self._index.note(header, header.base_offset, position)
            self._noted = position + header.size


def _walk(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """From header to header, up to what looks like none or stands at offset `end`."""
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)  # type: ignore[arg-type]
        if header.size < HEADER_BYTES or header.base_offset >= end:
            break
        yield position, header
        position += header.size
