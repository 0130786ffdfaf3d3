"""A topic that is a list, for tests that have no need of a log."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa

from penstock import Record
from penstock.events import columns
from penstock.log import Bounds
from penstock.streams.source.progress import Progress
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import AppendTimes, lost

NOW = 1_800_000_000_000  # milliseconds


class ListedTopic:
    """Where None stands for a record, there is an offset without one, as behind a transaction."""

    def __init__(self, *partitions: Sequence[Record | None], chunk: int = 1_000) -> None:
        self.name = "listed"
        self.is_stamped = False
        self.id: UUID = uuid4()
        self.records = [list(each) for each in partitions]
        self.starts = [0] * len(partitions)
        self.chunk = chunk
        self.appended: AppendTimes | None = None
        self.lookups = 0

    def partitions(self) -> int:
        return len(self.records)

    def bounds(self, partition: int) -> Bounds:
        return Bounds(self.starts[partition], len(self.records[partition]))

    def changed_files(self) -> list[Path]:
        return []

    def offsets_at(self, partitions: Collection[int], timestamp: int) -> dict[int, int]:
        self.lookups += 1
        return {number: self._offset_at(number, timestamp) for number in partitions}

    def _offset_at(self, partition: int, timestamp: int) -> int:
        records = enumerate(self.records[partition])
        late = (at for at, record in records if record and (record.timestamp or 0) >= timestamp)
        return next(late, len(self.records[partition]))

    def close(self) -> None:
        pass

    def append_times(self, partition: int, start: int, end: int) -> AppendTimes | None:
        return self.appended

    def columns(
        self, partition: int, start: int, end: int, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        if start < self.starts[partition]:
            raise lost(self.name, partition, start, self.starts[partition])
        for first in range(start, end, self.chunk):
            some = range(first, min(first + self.chunk, end))
            records = [(at, self.records[partition][at]) for at in some]
            rows = [
                {
                    "key": record.key,
                    "value": record.value,
                    "timestamp": NOW if record.timestamp is None else record.timestamp,
                    "headers": [{"key": name, "value": value} for name, value in record.headers],
                    "offset": at,
                }
                for at, record in records
                if record is not None
            ]
            stamps = pa.array([row.pop("timestamp") for row in rows], pa.int64())
            batch = pa.RecordBatch.from_pylist(rows, schema=columns.SCHEMA)
            place = columns.SCHEMA.get_field_index("timestamp")
            kind = columns.SCHEMA.field(place).type
            yield batch.set_column(place, "timestamp", stamps.view(kind)).select(list(names))


def read(
    spec: SourceSpec,
    topic: ListedTopic,
    progress: Progress | None = None,
    *,
    until: int | None = None,
    partition: int = 0,
    planned: int = NOW,
) -> tuple[pa.Table, Progress]:
    """The rows of a partition from where the progress is, and the progress after them."""
    progress = progress or Progress(0)
    end = len(topic.records[partition]) if until is None else until
    batches = list(RowReader(spec).read(topic, Range(partition, end, progress, planned)))
    return pa.Table.from_batches(batches, schema=spec.row_schema), progress
