"""Leaves: streams to Spark, and batches that read anew whenever they run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody does
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.errors import InvalidInput
from penstock.streams.spark.leaves import (
    LEAF,
    Read,
    batch_frame,
    check_stateless,
    leaf_frame,
    leaf_rows,
    run_fresh,
    with_rows,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCHEMA = StructType(
    [StructField("a", LongType(), True, {"kept": True}), StructField("b", StringType())]
)


def reader(path: Path) -> Read:
    """Yields as many rows as the file says, in each task, with the number of the partition."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (partition,) = (number for each in batches for number in each.column("id").to_pylist())
        count = int(path.read_text())
        yield pa.RecordBatch.from_pydict(
            {"a": pa.array(range(count), pa.int64()), "b": [str(partition)] * count}
        )

    return read


@pytest.fixture
def count(tmp_path: Path) -> Path:
    path = tmp_path / "count"
    path.write_text("2")
    return path


def reading(frame: DataFrame, count: Path, partitions: int = 1) -> DataFrame:
    """With the rows of its leaves."""

    def rows(number: int, schema: StructType) -> JavaObject:
        return leaf_rows(frame.sparkSession, schema, reader(count), partitions)

    return with_rows(frame, rows)


def test_a_leaf_is_a_stream_that_is_known_by_its_number(spark: SparkSession, count: Path) -> None:
    bare = leaf_frame(spark, 5, SCHEMA)
    assert bare.isStreaming
    assert batch_frame(spark, bare).collect() == []
    leaf = reading(bare, count, partitions=3)
    assert leaf.isStreaming
    assert leaf.schema.fields[0].metadata == {"kept": True, LEAF: 5}
    assert leaf.schema.fields[1].metadata == {}
    execution = run_fresh(spark, leaf)
    assert execution.toRdd().getNumPartitions() == 3
    assert execution.toRdd().count() == 6
    assert sorted(row.b for row in batch_frame(spark, leaf).collect()) == list("001122")
    assert spark.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "true"


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


STATELESS: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "leaf": lambda leaf, static: leaf,
    "filter": lambda leaf, static: leaf.filter("a >= 0"),
    "columns": lambda leaf, static: leaf.select("b").withColumn("z", F.rand()),
    "map": lambda leaf, static: leaf.mapInArrow(unchanged, "a long, b string"),
    "join": lambda leaf, static: leaf.join(static, "a", "left"),
    "static on the left": lambda leaf, static: static.join(leaf, "a", "right"),
    "static side computed": lambda leaf, static: leaf.join(
        static.groupBy("a").count().orderBy("a"), "a", "left"
    ),
    "repartition": lambda leaf, static: leaf.repartition(2, "a"),
}


@pytest.mark.parametrize("name", STATELESS)
def test_every_run_reads_anew(spark: SparkSession, count: Path, name: str) -> None:
    static = spark.createDataFrame([(1, "one")], "a long, name string")
    bare = STATELESS[name](leaf_frame(spark, 0, SCHEMA), static)
    check_stateless(bare)
    frame = reading(bare, count)
    for rows in (2, 5):
        count.write_text(str(rows))
        assert run_fresh(spark, frame).toRdd().count() == rows
        batch = batch_frame(spark, frame)
        assert not batch.isStreaming
        assert len(batch.collect()) == batch.toArrow().num_rows == rows
        assert batch.groupBy().count().collect() == [(rows,)]


STATEFUL: dict[str, tuple[Callable[[DataFrame, Any], DataFrame], str]] = {
    "groupBy": (lambda leaf, static: leaf.groupBy("b").count(), "ps.aggregate"),
    "agg": (lambda leaf, static: leaf.agg(F.max("a")), "ps.window"),
    "distinct": (lambda leaf, static: leaf.distinct(), "ps.dedup"),
    "dropDuplicates": (lambda leaf, static: leaf.dropDuplicates(["a"]), "ps.dedup"),
    "order": (lambda leaf, static: leaf.orderBy("a"), "ps.top"),
    "order in partitions": (lambda leaf, static: leaf.sortWithinPartitions("a"), "ps.top"),
    "limit": (lambda leaf, static: leaf.limit(3), "ps.top"),
    "offset": (lambda leaf, static: leaf.offset(3), "ps.top"),
    "window function": (
        lambda leaf, static: leaf.select(F.row_number().over(Window.orderBy("a"))),
        "ps.rolling",
    ),
    "two streams": (lambda leaf, static: leaf.join(leaf.select("a"), "a"), "ps.join"),
    "stream with its aggregate": (
        lambda leaf, static: leaf.join(leaf.groupBy("a").count(), "a"),
        "ps.join",
    ),
    "intersect": (lambda leaf, static: leaf.intersect(leaf), "ps.join"),
    "except all": (lambda leaf, static: leaf.exceptAll(leaf), "ps.join"),
    "groups": (
        lambda leaf, static: leaf.groupBy("b").applyInPandas(lambda rows: rows, leaf.schema),
        "ps.aggregate",
    ),
    "outer to a stream": (lambda leaf, static: static.join(leaf, "a", "left"), "ps.aggregate"),
    "sample": (lambda leaf, static: leaf.sample(0.5), "ps.aggregate"),
    "below other things": (
        lambda leaf, static: leaf.distinct().filter("a > 1").join(static, "a").select("b"),
        "ps.dedup",
    ),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_what_spark_would_do_for_one_batch_alone_is_refused(spark: SparkSession, name: str) -> None:
    leaf = leaf_frame(spark, 0, SCHEMA)
    static = spark.createDataFrame([(1, "one")], "a long, name string")
    build, hint = STATEFUL[name]
    with pytest.raises(InvalidInput) as refused:
        check_stateless(build(leaf, static))
    assert hint in refused.value.hint


def test_a_view_does_not_hide_it(spark: SparkSession) -> None:
    leaf_frame(spark, 0, SCHEMA).createOrReplaceTempView("given")
    check_stateless(spark.sql("WITH some AS (SELECT a FROM given) SELECT * FROM some WHERE a > 1"))
    spark.sql("CREATE OR REPLACE TEMP VIEW different AS SELECT DISTINCT a FROM given")
    with pytest.raises(InvalidInput, match="DISTINCT"):
        check_stateless(spark.table("different"))
