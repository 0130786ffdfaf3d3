"""Reading a topic's files on the host of its log, while a server may be writing to them.

    topic = MappedTopic("penstock-data", "orders")
    start, end = topic.bounds(0)
    for columns in topic.columns(0, start, end):
        columns.batch["value"]

No server is asked: it publishes beside the segments how far they are durable and where they begin.
"""

import json
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from penstock.errors import (
    CorruptBatch,
    InvalidInput,
    LogError,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicNotFound,
)
from penstock.events.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.log.contract import Bounds
from penstock.log.mapped_times import MappedTimes
from penstock.log.policy import check_topic_name
from penstock.log.storage.append_times import read_in_force
from penstock.log.storage.index import load_index
from penstock.log.storage.published import DURABLE_FILE, read_durable_offset, read_start_offset

if TYPE_CHECKING:
    from penstock.events.columns import Columns


class _Name(NamedTuple):
    """Of a segment, among all of all logs."""

    topic: UUID
    partition: int
    base_offset: int


class _Place(NamedTuple):
    """At `position` stands the batch that holds `offset`, or will once it is written."""

    offset: int
    position: int


# Where the reading of a segment ended, for the next one: a segment that is still written to has no
# index yet. A process reads a handful of segments; this many bound the memory.
_ENDS: dict[_Name, _Place] = {}
_MAX_ENDS = 4096


class MappedTopic:
    """What is read is the topic as it was found first, or TopicNotFound once that one is deleted.

    Nothing is kept open between calls. One object serves one thread.
    """

    def __init__(self, data_folder: str | Path, topic: str) -> None:
        """Raises TopicNotFound, and LogError for a topic that is kept in memory."""
        check_topic_name(topic)
        self.topic = topic
        self._folder = Path(data_folder) / "topics" / topic
        self._seen = (0, 0)
        self._partitions = 0
        self._times: dict[int, MappedTimes] = {}
        self.id = UUID(int=0)
        self._look()

    def _look(self) -> None:
        """Notices what became of the topic; costs one system call while nothing did."""
        path = self._folder / "topic.json"
        try:
            about = path.stat()
            if (about.st_ino, about.st_mtime_ns) == self._seen:
                return
            facts = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            raise TopicNotFound(
                f"there is no topic {self.topic!r} in {self._folder.parent.parent}",
                hint="create it first, or look for a typing error",
            ) from None
        found = UUID(facts["id"])
        if self.id.int and found != self.id:
            raise TopicNotFound(
                f"topic {self.topic!r} was deleted, and another one made of the same name",
                hint="what was read belongs to the old one; begin again with the new one",
            )
        if facts["settings"].get("durability") == "memory":
            raise LogError(
                f"topic {self.topic!r} is kept in memory, not in files",
                hint="read it over the wire",
            )
        self.id, self._partitions = found, int(facts["partitions"])
        self._seen = (about.st_ino, about.st_mtime_ns)

    @property
    def partitions(self) -> int:
        """How many there are now."""
        self._look()
        return self._partitions

    def folder(self, partition: int) -> Path:
        if not 0 <= partition < self.partitions:
            raise PartitionNotFound(
                f"topic {self.topic!r} has no partition {partition}",
                hint=f"it has {self._partitions}, numbered from 0",
            )
        return self._folder / str(partition)

    def changed_files(self) -> list[Path]:
        """Those that are written to when records become durable, and the folder in which others
        are made when partitions are added."""
        durable = (self._folder / str(each) / DURABLE_FILE for each in range(self.partitions))
        return [self._folder, *durable]

    def bounds(self, partition: int) -> Bounds:
        """What can be read now."""
        folder = self.folder(partition)
        bounds = _bounds(folder)
        self._look()  # the numbers are this topic's if it is still there after they were read
        return bounds

    def offset_at(self, partition: int, timestamp: int) -> int:
        """As Log.offset_at."""
        folder = self.folder(partition)
        bounds = _bounds(folder)
        segments = segments_for(folder, bounds.start, bounds.end)
        found = self._times.setdefault(partition, MappedTimes()).first(segments, timestamp, bounds)
        self._look()
        return bounds.end if found is None else found

    def append_times(self, partition: int, start: int, end: int) -> list[tuple[int, int]]:
        """As Log.append_times."""
        found = read_in_force(self.folder(partition), start, end)
        self._look()
        return found

    def columns(
        self,
        partition: int,
        from_offset: int,
        until_offset: int,
        columns: Sequence[str] | None = None,
        rows: int | None = None,
    ) -> Iterator["Columns"]:
        """The records from `from_offset` to before `until_offset`, in pieces of about `rows`.

        A piece may have no rows. Raises OffsetOutOfRange at once when not all of them can be read,
        and later when retention takes what was not reached yet; CorruptBatch where the files are
        damaged; TopicNotFound when the topic is deleted meanwhile.
        """
        folder = self.folder(partition)
        self._check_range(partition, folder, from_offset, until_offset)
        return self._columns(partition, folder, from_offset, until_offset, columns, rows)

    def batches(self, partition: int, from_offset: int, until_offset: int) -> Iterator[BatchHeader]:
        """The headers of the batches that hold these offsets, which tell who wrote each and in
        which append. Raises as `columns` does."""
        folder = self.folder(partition)
        self._check_range(partition, folder, from_offset, until_offset)
        at = from_offset
        for path in segments_for(folder, from_offset, until_offset):
            position = _position(_Name(self.id, partition, int(path.stem)), path, at)
            for header in _headers(path, position):
                if header.next_offset > at:
                    yield header
                    at = header.next_offset
                if at >= until_offset:
                    return

    def _columns(
        self,
        partition: int,
        folder: Path,
        at: int,
        until: int,
        names: Sequence[str] | None,
        rows: int | None,
    ) -> Iterator["Columns"]:
        while at < until:
            segments = segments_for(folder, at, until)
            if not segments:
                self._check_range(partition, folder, at, until)
                raise _missing(folder, at, until)
            for path, after in zip(segments, [*segments[1:], None], strict=True):
                end = until if after is None else min(until, int(after.stem))
                try:
                    name = _Name(self.id, partition, int(path.stem))
                    pieces = _read(name, path, at, end, names, rows)
                except FileNotFoundError:  # retention, or the topic was deleted
                    self._check_range(partition, folder, at, until)
                    if path.exists():
                        break  # a segment's file came and went and came: look again
                    raise _missing(folder, at, until) from None
                self._look()
                for piece in pieces:
                    yield piece
                    at = max(at, piece.next_offset)
                if at < end:
                    raise _missing(path, at, end)

    def _check_range(self, partition: int, folder: Path, start: int, until: int) -> None:
        bounds = _bounds(folder)
        self._look()
        if start > until:
            raise InvalidInput(f"offset {start} is behind {until}", hint="give the lower one first")
        if start < bounds.start or until > bounds.end:
            raise OffsetOutOfRange(
                f"{self.topic}/{partition} holds offsets {bounds.start} to {bounds.end}, "
                f"not {start} to {until}",
                start=bounds.start,
                end=bounds.end,
                hint="records before the start were deleted by the topic's retention or by hand",
            )


def _bounds(folder: Path) -> Bounds:
    start = read_start_offset(folder)
    return Bounds(start, max(start, read_durable_offset(folder)))


def segments_for(folder: Path, from_offset: int, until_offset: int) -> list[Path]:
    """The segments of the partition in this folder that hold these offsets, in order."""
    if not folder.is_dir():
        return []
    paths = sorted(folder.glob("*.log"))
    bases = [int(path.stem) for path in paths]
    first = bisect_right(bases, from_offset) - 1
    if first < 0:
        return []
    return [path for path, base in zip(paths, bases, strict=True) if base < until_offset][first:]


def _read(
    name: _Name, path: Path, start: int, end: int, names: Sequence[str] | None, rows: int | None
) -> Iterator["Columns"]:
    """Opens the segment now, and reads it piece by piece."""
    # Brought here: who only asks for bounds need not wait for compiled code.
    from penstock.events.columns import CHUNK_ROWS, COLUMNS, read_segment

    position = _position(name, path, start)
    pieces = read_segment(
        path,
        columns=names or COLUMNS,
        from_offset=start,
        until_offset=end,
        at=position,
        rows=rows or CHUNK_ROWS,
    )
    return _noting(name, pieces)


def _noting(name: _Name, pieces: Iterator["Columns"]) -> Iterator["Columns"]:
    for piece in pieces:
        _ENDS.pop(name, None)
        _ENDS[name] = _Place(piece.next_offset, piece.end)
        if len(_ENDS) > _MAX_ENDS:
            _ENDS.pop(next(iter(_ENDS)), None)
        yield piece


def _position(name: _Name, path: Path, offset: int) -> int:
    """Where a batch stands from which on `offset` is found, as near before it as is cheap."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if offset <= name.base_offset or not size:
            return 0
        found = load_index(path.with_suffix(".index"), name.base_offset, size)
        entry = found and found[0].before_offset(offset)
        if entry:
            return entry[0]
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            end = _ENDS.get(name)
            near = end.position if end and end.offset <= offset and _fits(end, data) else 0
            return _walk(data, near, offset)


def _fits(place: _Place, data: mmap.mmap) -> bool:
    """Not when a crash took what was read, and other batches stand there by now."""
    if place.position + HEADER_BYTES > len(data):
        return place.position == len(data)
    header = read_header(data, place.position)  # type: ignore[arg-type]
    return header.magic == 2 and header.base_offset <= place.offset < header.next_offset


def _walk(data: mmap.mmap, position: int, offset: int) -> int:
    """From header to header; what does not look like one is left to the reader to judge."""
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)  # type: ignore[arg-type]
        if header.size < HEADER_BYTES or header.next_offset > offset:
            break
        position += header.size
    return position


def _headers(path: Path, position: int) -> Iterator[BatchHeader]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            while position + HEADER_BYTES <= size:
                header = read_header(data, position)  # type: ignore[arg-type]
                if header.size < HEADER_BYTES:
                    return
                yield header
                position += header.size


def _missing(path: Path, start: int, end: int) -> CorruptBatch:
    return CorruptBatch(
        f"{path}: offsets {start} to {end - 1} are missing",
        file=str(path),
        hint="run penstock log verify while no server runs",
    )
