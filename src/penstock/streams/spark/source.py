"""The data source `penstock`: topics as typed rows, in batches and in streams.

    register(spark)
    spark.readStream.format("penstock").option("log", "penstock-data").option("topic", "orders") \\
        .option("schema", "id long, amount double, at timestamp").load()

The options are those of `SourceSpec`. Planning runs in a Python process beside the driver, reading
in the workers; neither the log nor the clock of a stream passes through the JVM.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.streams.source.offsets import ProgressFiles, SourceOffset
from penstock.streams.source.planning import Planner
from penstock.streams.source.ranges import Range
from penstock.streams.source.spec import PACKED, WHOLE, SourceSpec
from penstock.streams.source.topic import SourceTopic, open_topic
from penstock.streams.spark.given_up import end_quietly

end_quietly()  # this is read by processes that Spark starts for a source


class Penstock(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        if "pack" in self.options:
            return from_arrow_schema(PACKED)
        return from_arrow_schema(SourceSpec.parse(self.options).row_schema)

    def _spec(self, schema: StructType) -> SourceSpec:
        if "schema" in self.options or self.options.get("format") in WHOLE:
            return SourceSpec.parse(self.options)
        return SourceSpec.parse(self.options, to_arrow_schema(schema, timezone="UTC"))

    def reader(self, schema: StructType) -> "_BatchReader":
        return _BatchReader(self._spec(schema), self.options.get("pack"))

    def streamReader(self, schema: StructType) -> "_StreamReader":  # noqa: N802
        return _StreamReader(self._spec(schema), self.options.get("pack"))


def register(session: SparkSession) -> None:
    """Makes the source known to a session, anew for each query.

    What is registered has a map of settings that the threads of all its queries write to, and one
    that two wrote to at once stays broken as long as the session lives.
    """
    session.dataSource.register(Penstock)


class RangePartition(InputPartition):
    def __init__(self, topic: str, wanted: Range | None) -> None:
        self.topic = topic
        self.range = wanted


@lru_cache(maxsize=64)
def _opened(log: str, topic: str, identity: str) -> SourceTopic:
    """Kept by the workers between tasks, unless the topic is another one of the same name."""
    return open_topic(log, topic, identity)


class _Reading:
    def __init__(self, spec: SourceSpec, pack: str | None) -> None:
        self._spec = spec
        self._pack = pack

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the workers: what is open here is not open there."""
        return {"_spec": self._spec, "_pack": self._pack}

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self._spec, open_topic(self._spec.log, self._spec.topic))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        wanted: Range | None = partition.range
        # Compiled code is loaded where rows are read, not in the processes that only plan.
        from penstock.streams.source.rows import RowReader, in_larger_batches
        from penstock.streams.spark.packing import Packer

        rows: Iterator[pa.RecordBatch] = iter(())
        if wanted is not None:
            topic = _opened(self._spec.log, self._spec.topic, partition.topic)
            rows = in_larger_batches(RowReader(self._spec).read(topic, wanted))
        yield from rows if self._pack is None else Packer.parse(self._pack)(rows)
        if wanted is not None and self._spec.checkpoint:
            files = ProgressFiles(self._spec.checkpoint, self._spec.name)
            files.write(wanted.partition, wanted.progress)

    def _ranges(self, end: SourceOffset) -> list[RangePartition]:
        ranges = [
            RangePartition(end.topic, Range(number, until, end.progress[number], end.planned))
            for number, until in end.next.items()
            if until > end.progress[number].at
        ]
        # Spark plans nothing over a source without partitions, not even the stages behind it.
        return ranges or [RangePartition(end.topic, None)]


class _BatchReader(_Reading, DataSourceReader):
    def partitions(self) -> list[RangePartition]:
        return self._ranges(self._planner.present(self._planner.first()))


class _StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._planner.first().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()  # the planner admits what the source's own options allow

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.stop_at_present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._planner.next(SourceOffset.from_json(start)).as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        return self._ranges(SourceOffset.from_json(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: consumer groups are told by the runtime, once the batch is durable."""
