"""A topic as the source sees it, wherever its log is: bounds for planning, columns for reading.

The address is a data folder, whose segments are mapped; `host:port` of a server of ours, or
`kafka://host:port`, which are read over the wire, transactions that were aborted left out.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.errors import DataLost, OffsetOutOfRange
from penstock.log import Bounds, Log
from penstock.log.mapped import MappedTopic

if TYPE_CHECKING:
    import pyarrow as pa

_ADDRESS = re.compile(r"(kafka://.+|[^/\s]+:\d+(,[^/\s]+:\d+)*)")

AppendTimes = list[tuple[int, int]]


class SourceTopic(Protocol):
    name: str

    @property
    def id(self) -> UUID: ...

    def partitions(self) -> int: ...

    def bounds(self, partition: int) -> Bounds: ...

    def offset_at(self, partition: int, timestamp: int) -> int: ...

    def append_times(self, partition: int, start: int, end: int) -> AppendTimes | None:
        """Pairs of an offset and the milliseconds it was appended at; None if nobody knows."""

    def columns(self, partition: int, start: int, end: int) -> Iterator["pa.RecordBatch"]:
        """The records of this range as `events.columns` gives them. Raises DataLost."""


def is_address(log: str) -> bool:
    return _ADDRESS.fullmatch(log) is not None


def open_topic(log: str, topic: str) -> SourceTopic:
    """Raises TopicNotFound."""
    if not is_address(log):
        return FolderTopic(log, topic)
    from penstock.streams.source.wire_topic import WireTopic

    return WireTopic(log, topic)


def lost(topic: str, partition: int, start: int, first: int) -> DataLost:
    return DataLost(
        f"records {start} to {first - 1} of {topic}/{partition} are gone before they were read",
        hint="retention took them; give the topic a longer one, and start the node again with "
        "--reset to go on with what is left",
    )


class FolderTopic:
    """Mapped into memory, for those on the log's own host."""

    def __init__(self, folder: str, topic: str) -> None:
        self.name = topic
        self._folder = folder
        self._topic = MappedTopic(Path(folder), topic)

    @property
    def id(self) -> UUID:
        return self._topic.id

    def partitions(self) -> int:
        return self._topic.partitions

    def bounds(self, partition: int) -> Bounds:
        return self._topic.bounds(partition)

    def offset_at(self, partition: int, timestamp: int) -> int:
        return self._server.offset_at(self.name, partition, timestamp)

    @cached_property
    def _server(self) -> Log:
        return Log.join(self._folder)

    def append_times(self, partition: int, start: int, end: int) -> AppendTimes:
        return self._topic.append_times(partition, start, end)

    def columns(self, partition: int, start: int, end: int) -> Iterator["pa.RecordBatch"]:
        try:
            for piece in self._topic.columns(partition, start, end):
                if piece.batch.num_rows:
                    yield piece.batch
        except OffsetOutOfRange as gone:
            raise lost(self.name, partition, start, gone.start) from gone
