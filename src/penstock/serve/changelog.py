"""A view's topic, read by whole batches of the node that writes it.

On a log in a folder every batch of records says in which of the node's batches it was written, so
a cut through all partitions, and through the topics of several views, can be made between two of
them. Over the wire that is not told, and the query's own commits say where batches end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock import clock
from penstock.events.batch import BatchHeader
from penstock.log.mapped import MappedTopic
from penstock.log.storage.claims import FIRST_WRITER
from penstock.log.storage.published import read_durable_offset
from penstock.streams.source.progress import Progress
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import is_address, open_topic

Offsets = Mapping[int, int]
Spans = dict[str, dict[int, tuple[int, int]]]
"""By topic and partition, the first offset and the one after the last."""

_TOLD = 100  # batches back, which is how long commits are kept
_AT_ONCE = 200_000  # records that are applied in one transaction, or one batch if it has more


class NodeBatches(Protocol):
    """What is known of the batches of the node, or the group of nodes, that writes a view."""

    @property
    def committed(self) -> int:
        """The last one that is done, -1 before the first."""

    def committed_ms(self, batch: int) -> int | None:
        """When that was, None if nobody knows any more."""

    def read_by(self, batch: int) -> "Spans":
        """The topics and offsets that it has read; empty if nobody knows any more."""

    def ends_at(self, batch: int) -> Mapping[str, Offsets] | None:
        """By topic, where the batch ended in what it wrote; None if nobody knows any more."""


@dataclass(frozen=True)
class ViewSource:
    """Where a view comes from: a topic of upserts in `log`, a folder or an address.

    Views of one `group` are written under one batch number, have the same `batches`, and always
    show the same batch. A view without a group is one of its own.
    """

    name: str
    log: str
    topic: str
    schema: pa.Schema
    key: tuple[str, ...]
    batches: NodeBatches
    generation: int = 1
    versions_ms: int | None = None  # how long versions are kept; None keeps the present one alone
    group: str = ""


class Mark(NamedTuple):
    """Where one batch ends in a partition."""

    batch: int
    end: int


Marks = dict[int, list[Mark]]
"""By partition, for those that have new records."""


class Changes(NamedTuple):
    """Rows with their `_key` and `_deleted`, and the batch that wrote each."""

    rows: pa.RecordBatch
    batches: NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """The state after `batch`: `ends` are the next offsets of all partitions, and `marks` say for
    those that have moved which of their records belong to which batch."""

    batch: int
    ends: dict[int, int]
    marks: Marks

    @classmethod
    def after(cls, batch: int, begins: Offsets, marks: Marks) -> "Cut":
        """Where `marks` lead from `begins`, those of later batches left out."""
        whole = {
            number: own if own[-1].batch <= batch else [mark for mark in own if mark.batch <= batch]
            for number, own in marks.items()
        }
        marks = {number: own for number, own in whole.items() if own}
        ends = {number: own[-1].end for number, own in marks.items()}
        return cls(batch, {**begins, **ends}, marks)

    def batches_at(self, partition: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The batch of each of these offsets."""
        marks = self.marks[partition]
        if len(marks) == 1:
            return np.full(len(offsets), marks[0].batch, np.int64)
        ends = np.array([mark.end for mark in marks], np.int64)
        numbers = np.array([mark.batch for mark in marks], np.int64)
        found: NDArray[np.int64] = numbers[np.searchsorted(ends, offsets, side="right")]
        return found


def last_at_once(pending: Iterable[tuple[Offsets, Marks]], last: int) -> int:
    """The batch to which all of these topics are applied in one transaction: `last`, or the first
    that makes it enough records. Each topic is given by where it was and what is new in it."""
    sizes: defaultdict[int, int] = defaultdict(int)
    for begins, marks in pending:
        for number, own in marks.items():
            begin = begins.get(number, 0)
            for mark in own:
                if mark.batch <= last:
                    sizes[mark.batch] += mark.end - begin
                begin = mark.end
    total = 0
    for batch in sorted(sizes):
        total += sizes[batch]
        if total > _AT_ONCE:
            return batch
    return last


class Changelog:
    """Belongs to one thread."""

    def __init__(self, source: ViewSource) -> None:
        """Raises TopicNotFound."""
        self.source = source
        self._topic = open_topic(source.log, source.topic)
        self._mapped = None if is_address(source.log) else MappedTopic(source.log, source.topic)
        self._folders: list[Path] = []
        self._reader = RowReader(
            SourceSpec(
                log=source.log,
                topic=source.topic,
                schema=source.schema,
                key=source.key,
                metadata=("key", "offset"),
            )
        )
        self.refused = 0  # records that are no rows of the view, in what was read last

    @property
    def identity(self) -> str:
        return str(self._topic.id)

    def starts(self) -> dict[int, int]:
        return {number: self._topic.bounds(number).start for number in self._partitions()}

    def ends(self) -> dict[int, int]:
        if self._mapped is None:
            return {number: self._topic.bounds(number).end for number in self._partitions()}
        # Asked of every view in every step, so only the one file is read that says it.
        count = self._topic.partitions()
        while len(self._folders) < count:
            self._folders.append(self._mapped.folder(len(self._folders)))
        return {number: read_durable_offset(self._folders[number]) for number in range(count)}

    def _partitions(self) -> range:
        return range(self._topic.partitions())

    def marks(self, after: Offsets, batch: int, until: int) -> tuple[Marks, int]:
        """Where the batches end that were written after these offsets, which are those of `batch`;
        and the last one that is whole in this, `until` or an earlier one where there is enough
        before it. All batches up to `until` are in the topic already."""
        if self._mapped is None:
            return self._told_marks(after, batch, until)
        ends = {n: end for n, end in self.ends().items() if end > after.get(n, 0)}
        found: Marks = {}
        for number, end in ends.items():
            headers = self._mapped.batches(number, after.get(number, 0), end)
            marks, until = _marks(headers, after.get(number, 0), batch, until)
            if marks:
                found[number] = marks
        return found, until

    def _told_marks(self, after: Offsets, batch: int, until: int) -> tuple[Marks, int]:
        """As the query's own commits tell it: over the wire, records do not say which batch wrote
        them. Where it has forgotten batches, these are one with the next."""
        found: Marks = {}
        reached = dict(after)
        for number in range(max(batch + 1, until - _TOLD), until + 1):
            ends = self.source.batches.ends_at(number) or {}
            for partition, end in ends.get(self.source.topic, {}).items():
                if end > reached.get(partition, 0):
                    found.setdefault(partition, []).append(Mark(number, end))
                    reached[partition] = end
            if sum(reached.values()) - sum(after.values()) > _AT_ONCE:
                return found, number
        return found, until

    def rows(self, after: Offsets, cut: Cut) -> Iterator[Changes]:
        """What was written between these offsets and the cut, partition after partition."""
        self.refused = 0
        for number in cut.marks:
            progress = Progress(after.get(number, 0))
            wanted = Range(number, cut.ends[number], progress, clock.now_ms())
            for rows in self._reader.read(self._topic, wanted):
                yield Changes(rows, cut.batches_at(number, rows["_offset"].to_numpy()))
            self.refused += progress.rejected.total()

    def appended_ms(self, partition: int, offset: int) -> int | None:
        """When a record was appended, within a second."""
        times = self._topic.append_times(partition, offset, offset + 1)
        return times[-1][1] if times else None

    def close(self) -> None:
        self._topic.close()


def _marks(
    headers: Iterable[BatchHeader], begin: int, batch: int, until: int
) -> tuple[list[Mark], int]:
    """As Changelog.marks, of one partition."""
    marks: list[Mark] = []
    for header in headers:
        if header.producer_id >= FIRST_WRITER:
            number = header.base_sequence
        else:  # somebody has put it there by hand
            number = marks[-1].batch if marks else max(batch, 0)
        if number > until:
            break
        if marks and number == marks[-1].batch:
            marks[-1] = Mark(number, header.next_offset)
        elif marks and marks[-1].end - begin > _AT_ONCE:
            return marks, number - 1
        else:
            marks.append(Mark(number, header.next_offset))
    return marks, until
