"""A view's topic, read by whole batches of the node that writes it.

On a log in a folder every batch of records says in which of the node's batches it was written, so
a cut through all partitions can be made between two of them. Over the wire that is not told, and
the cut is wherever the partitions end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import clock
from penstock.log.mapped import MappedTopic
from penstock.log.storage.claims import FIRST_WRITER
from penstock.streams.source.progress import Progress
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import is_address, open_topic

Offsets = Mapping[int, int]
Spans = dict[str, dict[int, tuple[int, int]]]
"""By topic and partition, the first offset and the one after the last."""

_AT_ONCE = 200_000  # records that are applied in one transaction, or one batch if it has more


class NodeBatches(Protocol):
    """What is known of the batches of the node that writes a view."""

    @property
    def committed(self) -> int:
        """The last one that is done, -1 before the first."""

    def committed_ms(self, batch: int) -> int | None:
        """When that was, None if nobody knows any more."""

    def read_by(self, batch: int) -> "Spans":
        """The topics and offsets that it has read; empty if nobody knows any more."""


@dataclass(frozen=True)
class ViewSource:
    """Where a view comes from: a topic of upserts in `log`, a folder or an address."""

    name: str
    log: str
    topic: str
    schema: pa.Schema
    key: tuple[str, ...]
    batches: NodeBatches
    generation: int = 1
    versions_ms: int | None = None  # how long versions are kept; None keeps the present one alone


class Mark(NamedTuple):
    """Where one batch ends in a partition."""

    batch: int
    end: int


@dataclass(frozen=True)
class Cut:
    """The state after `batch`: `ends` are the next offsets of all partitions, and `marks` say for
    those that have moved which of their records belong to which batch."""

    batch: int
    ends: dict[int, int]
    marks: dict[int, list[Mark]]

    def batches_at(self, partition: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The batch of each of these offsets."""
        marks = self.marks[partition]
        ends = np.array([mark.end for mark in marks], np.int64)
        numbers = np.array([mark.batch for mark in marks], np.int64)
        found: NDArray[np.int64] = numbers[np.searchsorted(ends, offsets, side="right")]
        return found


class Changelog:
    """Belongs to one thread."""

    def __init__(self, source: ViewSource) -> None:
        """Raises TopicNotFound."""
        self.source = source
        self._topic = open_topic(source.log, source.topic)
        self._mapped = None if is_address(source.log) else MappedTopic(source.log, source.topic)
        self._reader = RowReader(
            SourceSpec(
                log=source.log,
                topic=source.topic,
                schema=source.schema,
                key=source.key,
                metadata=("key", "offset"),
            )
        )
        self.refused = 0  # records that are no rows of the view, so far

    @property
    def identity(self) -> str:
        return str(self._topic.id)

    def starts(self) -> dict[int, int]:
        return {number: self._topic.bounds(number).start for number in self._partitions()}

    def ends(self) -> dict[int, int]:
        return {number: self._topic.bounds(number).end for number in self._partitions()}

    def _partitions(self) -> range:
        return range(self._topic.partitions())

    def cut(self, after: Offsets, batch: int) -> Cut | None:
        """The next state to go to from that after `batch`; None when there is nothing new."""
        ends = self.ends()
        begins = {number: after.get(number, 0) for number in ends}
        if all(end <= begins[number] for number, end in ends.items()):
            return None
        if self._mapped is None:
            marks = {n: [Mark(batch + 1, ends[n])] for n in begins if ends[n] > begins[n]}
            return Cut(batch + 1, ends, marks)
        committed = self.source.batches.committed  # asked first: all of it is in the topic
        found: dict[int, list[Mark]] = {}
        last = committed
        for number, begin in begins.items():
            found[number], left_out = self._marks(self._mapped, number, begin, batch, committed)
            last = min(last, left_out - 1)
        whole = {
            number: [mark for mark in marks if mark.batch <= last]
            for number, marks in found.items()
        }
        marks = {number: marks for number, marks in whole.items() if marks}
        if not marks:
            return None
        ends = begins | {number: own[-1].end for number, own in marks.items()}
        return Cut(max(own[-1].batch for own in marks.values()), ends, marks)

    def _marks(
        self, topic: MappedTopic, partition: int, begin: int, batch: int, committed: int
    ) -> tuple[list[Mark], int]:
        """Where each batch ends, and the first that was left out, as it is not committed or there
        are enough before it."""
        marks: list[Mark] = []
        end = topic.bounds(partition).end
        for header in topic.batches(partition, begin, end) if begin < end else ():
            if header.producer_id >= FIRST_WRITER:
                number = header.base_sequence
            else:  # somebody has put it there by hand
                number = marks[-1].batch if marks else max(batch, 0)
            if number > committed:
                break
            if marks and number == marks[-1].batch:
                marks[-1] = Mark(number, header.next_offset)
            elif marks and marks[-1].end - begin > _AT_ONCE:
                return marks, number
            else:
                marks.append(Mark(number, header.next_offset))
        return marks, committed + 1

    def rows(self, after: Offsets, cut: Cut) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Partition after partition, the rows with their `_key`, `_offset` and `_deleted`."""
        for number in cut.marks:
            progress = Progress(after.get(number, 0))
            wanted = Range(number, cut.ends[number], progress, clock.now_ms())
            for rows in self._reader.read(self._topic, wanted):
                yield number, rows
            self.refused += progress.rejected.total()

    def appended_ms(self, partition: int, offset: int) -> int | None:
        """When a record was appended, within a second."""
        times = self._topic.append_times(partition, offset, offset + 1)
        return times[-1][1] if times else None

    def close(self) -> None:
        self._topic.close()
