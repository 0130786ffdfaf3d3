"""A topic as the source sees it, wherever its log is: bounds for planning, columns for reading.

The address is a data folder, whose segments are mapped; `host:port` of a server of ours, or
`kafka://host:port`, which are read over the wire, transactions that were aborted left out.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.errors import DataLost, OffsetOutOfRange, TopicNotFound
from penstock.log import Bounds
from penstock.log.mapped import MappedTopic

if TYPE_CHECKING:
    import pyarrow as pa

_ADDRESS = re.compile(r"(kafka://.+|[^/\s]+:\d+(,[^/\s]+:\d+)*)")

AppendTimes = list[tuple[int, int]]


class SourceTopic(Protocol):
    name: str
    is_stamped: bool  # whether a record's timestamp is when it was appended, whatever was sent

    @property
    def id(self) -> UUID:
        """Of the topic that has the name now."""

    def partitions(self) -> int: ...

    def bounds(self, partition: int) -> Bounds: ...

    def changed_files(self) -> list[Path]:
        """Those on this host that change when the topic grows; none when it is read elsewhere."""

    def offsets_at(self, partitions: Collection[int], timestamp: int) -> dict[int, int]:
        """The first offset in each whose record is as late (milliseconds), or the end."""

    def append_times(self, partition: int, start: int, end: int) -> AppendTimes | None:
        """Pairs of an offset and the milliseconds it was appended at; None if nobody knows."""

    def columns(
        self, partition: int, start: int, end: int, names: Sequence[str]
    ) -> Iterator["pa.RecordBatch"]:
        """The records of this range in these of `events.columns.COLUMNS`. Raises DataLost."""

    def close(self) -> None: ...


def is_address(log: str) -> bool:
    return _ADDRESS.fullmatch(log) is not None


def open_topic(log: str, topic: str, identity: str | None = None) -> SourceTopic:
    """Raises TopicNotFound, and DataLost when the topic is not the one of this identity."""
    found: SourceTopic
    if is_address(log):
        from penstock.streams.source.wire_topic import WireTopic

        found = WireTopic(log, topic)
    else:
        found = FolderTopic(log, topic)
    if identity is not None and identity != str(found.id):
        raise made_again(topic)
    return found


def made_again(topic: str) -> DataLost:
    return DataLost(
        f"topic {topic!r} was deleted and made again",
        hint="what this node has read is not what the topic holds now; start the node with "
        "--reset to read it from its beginning",
    )


def lost(topic: str, partition: int, start: int, first: int) -> DataLost:
    return DataLost(
        f"records {start} to {first - 1} of {topic}/{partition} are gone before they were read",
        hint="retention took them; give the topic a longer one, and start the node again with "
        "--reset to go on with what is left",
    )


class FolderTopic:
    """Mapped into memory, for those on the log's own host."""

    is_stamped = False  # the log notes beside the records when they were appended

    def __init__(self, folder: str, topic: str) -> None:
        self.name = topic
        self._folder = folder
        self._topic = MappedTopic(Path(folder), topic)

    @property
    def id(self) -> UUID:
        return self._topic.id

    def partitions(self) -> int:
        try:
            return self._topic.partitions
        except TopicNotFound:
            MappedTopic(self._folder, self.name)  # raises when there is no other of the name
            raise made_again(self.name) from None

    def bounds(self, partition: int) -> Bounds:
        return self._topic.bounds(partition)

    def changed_files(self) -> list[Path]:
        return self._topic.changed_files()

    def offsets_at(self, partitions: Collection[int], timestamp: int) -> dict[int, int]:
        return {number: self._topic.offset_at(number, timestamp) for number in partitions}

    def close(self) -> None:
        """Nothing is kept open."""

    def append_times(self, partition: int, start: int, end: int) -> AppendTimes:
        return self._topic.append_times(partition, start, end)

    def columns(
        self, partition: int, start: int, end: int, names: Sequence[str]
    ) -> Iterator["pa.RecordBatch"]:
        try:
            for piece in self._topic.columns(partition, start, end, names):
                if piece.batch.num_rows:
                    yield piece.batch
        except OffsetOutOfRange as gone:
            raise lost(self.name, partition, start, gone.start) from gone
