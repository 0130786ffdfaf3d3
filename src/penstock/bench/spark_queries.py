"""The queries that are measured: penstock's own, and what Spark offers for the same."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.readwriter import DataStreamWriter

import penstock as ps
from penstock.bench.spark_topics import Rows
from penstock.errors import NodeFailed
from penstock.events.schema import parse_schema
from penstock.streams.source.spec import SourceSpec
from penstock.streams.spark.origin import source_frame
from penstock.streams.spark.place import warm_folder

_WITHIN = 300.0


@dataclass(frozen=True)
class Bench:
    """Where everything is: one session for all, the log's folder, Kafka's address."""

    session: SparkSession
    log: Path
    kafka: str


Query = Callable[[Bench, Rows, int, str], DataFrame]
"""Over these rows, so many in a batch, with this checkpoint."""


def typed(bench: Bench, rows: Rows, batch: int, checkpoint: str) -> DataFrame:
    spec = SourceSpec(
        log=str(bench.log),
        topic=rows.topic,
        schema=parse_schema(rows.schema),
        max_rows=batch,
        checkpoint=checkpoint,
        name=rows.topic,
    )
    return source_frame(bench.session, spec, streaming=True)


def typed_by_spark(bench: Bench, rows: Rows, batch: int, checkpoint: str) -> DataFrame:
    reader = bench.session.readStream.format("kafka").option("subscribe", rows.topic)
    reader = reader.option("kafka.bootstrap.servers", bench.kafka)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch)
    value = sql.from_json(sql.col("value").cast("string"), rows.schema).alias("row")
    return reader.load().select(value).select("row.*")


def counted(bench: Bench, rows: Rows, batch: int, checkpoint: str) -> DataFrame:
    read = typed(bench, rows, batch, checkpoint)
    return ps.aggregate(read, by="key", checkpoint=checkpoint, n=ps.count(), total=ps.sum("number"))


def counted_by_spark(bench: Bench, rows: Rows, batch: int, checkpoint: str) -> DataFrame:
    grouped = typed(bench, rows, batch, checkpoint).groupBy("key")
    return grouped.agg(sql.count("*").alias("n"), sql.sum("number").alias("total"))


def last(bench: Bench, rows: Rows, batch: int, checkpoint: str) -> DataFrame:
    return ps.changes(typed(bench, rows, batch, checkpoint), "key", checkpoint=checkpoint)


def last_by_spark(bench: Bench, rows: Rows, batch: int, checkpoint: str) -> DataFrame:
    read = typed(bench, rows, batch, checkpoint)
    row = sql.struct(*(name for name in read.columns if name != "key"))
    return read.groupBy("key").agg(sql.max_by(row, "seq").alias("row")).select("key", "row.*")


def speed(query: Query, bench: Bench, rows: Rows, batch: int, *, warm: int) -> float:
    """Rows a second into nothing, by the batches after the first `warm`."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        checkpoint = f"{folder}/checkpoint"
        frame = query(bench, rows, batch, checkpoint)
        grouped = query in (counted_by_spark, last_by_spark)
        writer = frame.writeStream.outputMode("update" if grouped else "append").format("noop")
        batches = durations(writer, checkpoint)[warm:]
    return (rows.count - warm * batch) * 1_000 / sum(batches)


def durations(writer: DataStreamWriter, checkpoint: str) -> list[int]:
    """The milliseconds that each batch of a query takes, over all that there is to read."""
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    running = writer.start()
    if not running.awaitTermination(_WITHIN):  # type: ignore[arg-type]
        running.stop()
        raise NodeFailed(f"the query on {checkpoint} did not end within {_WITHIN:g} s")
    shutil.rmtree(warm_folder(checkpoint), ignore_errors=True)
    return [int(each["batchDuration"]) for each in running.recentProgress]


def milliseconds(frame: DataFrame, checkpoint: str, into: Path | None) -> int:
    """Of all batches of a query, whose rows go into Parquet files, or nowhere."""
    writer = frame.writeStream
    if into is None:
        writer = writer.format("noop")
    else:
        writer = writer.format("parquet").option("path", str(into))
    return sum(durations(writer, checkpoint))
