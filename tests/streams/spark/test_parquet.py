"""Files of Parquet give operators what Spark's own reading of them gives, and move the clock."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.errors import InvalidInput, UnknownName
from penstock.streams.spark.place import forget_warm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "kind of": pa.string(),
        "at": pa.timestamp("ms", "UTC"),
        "price": pa.int32(),
        "more": pa.list_(pa.string()),
    }
)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "kind of": ["a", "b", None][number % 3],
            "at": None if number % 11 == 7 else START + timedelta(seconds=number),
            "price": number % 5,
            "more": [str(number)],
        }
        for number in range(first, first + count)
    ]


def write(folder: Path, number: int, content: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    fresh = folder / f".{number}.unfinished"
    pq.write_table(pa.Table.from_pylist(content, SCHEMA), fresh, row_group_size=7)
    fresh.rename(folder / f"part {number:02} ä%.parquet")


def added_up(spark: SparkSession, frame: DataFrame, checkpoint: Path) -> dict[tuple[Any, ...], int]:
    """What the changes of a query come to, over all files that are there."""
    out = f"{checkpoint}-out"
    writer = frame.writeStream.format("parquet").option("path", out)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert writer.start().awaitTermination(120)
    forget_warm(str(checkpoint))
    found: Counter[tuple[Any, ...]] = Counter()
    for row in spark.read.parquet(out).collect():
        *values, weight = row
        found[tuple(values)] += weight
    return {row: count for row, count in found.items() if count}


def test_views_over_files_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "in", number, rows(20 * number, 20))
    write(tmp_path / "in", 3, [])
    text = {
        "by kind": "SELECT `kind of` AS kind, count(*) AS n, sum(price) AS p FROM f GROUP BY 1",
        "filtered": "SELECT id, price FROM f WHERE price > 1 AND `kind of` <> 'b'",
        "all": "SELECT count(*) AS n FROM f",
        "joined": "SELECT f.id, g.price FROM f JOIN f AS g ON f.id = g.id WHERE f.price <= g.price",
    }
    for name, query in text.items():
        files = str(tmp_path / "in" / "*.parquet")
        expected = duckdb.execute(
            query.replace("`", '"')
            .replace("FROM f", f"FROM '{files}' AS f")
            .replace("JOIN f ", f"JOIN '{files}' ")
        ).fetchall()
        checkpoint = tmp_path / name.replace(" ", "-")
        for streaming in (True, False):
            frame = ps.parquet(spark, str(tmp_path / "in"), max_files=1, streaming=streaming)
            if streaming:
                found = added_up(
                    spark, ps.sql(query, checkpoint=str(checkpoint), f=frame), checkpoint
                )
            else:
                found = {tuple(row)[:-1]: row[-1] for row in ps.sql(query, f=frame).collect()}
            assert found == dict.fromkeys(expected, 1), (name, streaming)


def test_the_clock_goes_by_what_is_in_the_files(spark: SparkSession, tmp_path: Path) -> None:
    """Of which Spark sees nothing, as the rows are packed where they are read."""
    for number in range(4):
        timed = [row for row in rows(30 * number, 30) if row["at"] is not None]
        write(tmp_path / "in", number, timed)

    def counted(source: DataFrame, name: str) -> dict[tuple[Any, ...], int]:
        timed = ps.timed(source, "at", wait="5s")
        checkpoint = tmp_path / name
        windows = ps.window(timed, ps.tumbling("10s"), checkpoint=str(checkpoint), n=ps.count())
        return added_up(spark, windows, checkpoint)

    columns = {"at": "at", "who": "id"}
    ours = ps.parquet(spark, str(tmp_path / "in"), columns=columns, max_files=1)
    reader = spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema)
    theirs = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    found = counted(ours, "ours")
    assert found == counted(theirs.selectExpr("at", "id AS who"), "theirs")
    assert len(found) == 8  # the clock of the last batch is at 84 s


def test_files_that_come_later_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    def total() -> dict[tuple[Any, ...], int]:
        frame = ps.parquet(spark, str(tmp_path / "in"), "id long, price int")
        view = ps.sql("SELECT sum(id) AS s FROM f", checkpoint=str(tmp_path / "c"), f=frame)
        return added_up(spark, view, tmp_path / "c")

    (tmp_path / "in").mkdir()
    write(tmp_path / "in", 0, rows(1, 3))
    assert total() == {(6,): 1}
    write(tmp_path / "in", 1, rows(4, 1))
    assert total() == {(10,): 1}


def test_what_cannot_be_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no file"):
        ps.parquet(spark, str(tmp_path))
    write(tmp_path, 0, rows(0, 1))
    with pytest.raises(UnknownName, match="'prize'"):
        ps.parquet(spark, str(tmp_path), columns=["prize"])
