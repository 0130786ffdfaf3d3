"""Rows that make Spark fail, in what it computes between operators, are rejected; the others go on.

What remains is held against plain Python over the same rows.
"""

import json
import os
import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, rand, udf
from pyspark.sql.types import LongType

import penstock as ps
from penstock.errors import NodeFailed
from penstock.streams.spark.query import segments
from penstock.streams.spark.query.handed import HandedRows, handed_files, write_handed_rows
from penstock.streams.spark.query.program import ToSpark
from penstock.testing import Run

POISON = {3: "x", 17: "", 18: "7.5", 40: "-"}
TEXTS = {n: POISON.get(n, str(n * 10)) for n in range(50)}


@udf(returnType=LongType(), useArrow=False)
def whole(text: str) -> int:
    return int(text)


def readings() -> list[dict[str, Any]]:
    return [{"id": n, "text": text} for n, text in TEXTS.items()]


def app_of(function: Any, **more: Any) -> ps.App:
    app = ps.App("meters")
    app.stream("readings", "id long, text string", partitions=1)
    app.derive("numbers", **more)(function)
    return app


def as_numbers(readings: DataFrame) -> DataFrame:
    return readings.select("id", whole("text").alias("n"))


def told(run: Run, node: str) -> dict[str, int]:
    statuses = [each for watch in run._watches for each in watch.statuses]
    (found,) = [each.uncomputable for each in statuses if each.name == node]
    return found


def test_rows_for_which_a_function_raises_are_rejected(spark: SparkSession) -> None:
    app = app_of(as_numbers)

    @app.view("sums", key="even")
    def sums(numbers: DataFrame) -> DataFrame:
        return ps.aggregate(numbers.withColumn("even", col("id") % 2), by="even", n=ps.sum("n"))

    @app.derive("texts")
    def texts(readings: DataFrame) -> DataFrame:
        return readings.select("id", udf(lambda text: text.upper())("text").alias("text"))

    with Run(app, spark=spark) as run:
        run.feed("readings", readings())
        run.crash("after-commit", "numbers")
        run.drain()
        assert run.crashes == 1
        good = {n: int(text) for n, text in TEXTS.items() if n not in POISON}
        assert {row["id"]: row["n"] for row in run.topic("numbers")} == good
        assert len(run.topic("numbers")) == len(good)
        expected = [sum(n for at, n in good.items() if at % 2 == odd) for odd in (0, 1)]
        assert [row["n"] for row in run.view("sums")] == expected
        # Who reads the same rows, and can compute them, has all of them.
        assert {row["id"] for row in run.topic("texts")} == set(TEXTS)

        rejected = run.rejected("numbers")
        assert [row["offset"] for row in rejected] == sorted(POISON)
        assert [json.loads(row["row"]) for row in rejected] == [
            {"id": n, "text": text} for n, text in sorted(POISON.items())
        ]
        for row in rejected:
            assert row["reason"] == "ValueError"
            text = POISON[row["offset"]]
            said, place = row["detail"].splitlines()
            assert said == f"ValueError: invalid literal for int() with base 10: {text!r}"
            assert re.fullmatch(r"\(.*/test_poison_rows\.py, line \d+, in whole\)", place)
            assert (row["topic"], row["partition"], row["operator"]) == ("readings", 0, None)
            assert row["batch"] == 0
        assert told(run, "numbers") == {"ValueError": 4}
        assert told(run, "texts") == {}

        run.feed("readings", [{"id": 50, "text": "1"}, {"id": 51, "text": "?"}])
        run.drain()
        assert run.rejected("numbers")[4]["batch"] == 1
        assert {row["id"] for row in run.topic("numbers")} == {*good, 50}
        assert told(run, "numbers") == {"ValueError": 5}


def test_what_only_spark_can_compute(spark: SparkSession) -> None:
    def cast(readings: DataFrame) -> DataFrame:
        spelled = readings.select("id", expr("soundex(text)").alias("sound"), "text")
        return spelled.select("id", expr("cast(text AS int)").alias("n"), "sound")

    with Run(app_of(cast), spark=spark, max_rows=20) as run:
        run.feed("readings", readings())
        run.drain()
        assert {row["id"] for row in run.topic("numbers")} == TEXTS.keys() - POISON.keys()
        rejected = run.rejected("numbers")
        assert [row["offset"] for row in rejected] == sorted(POISON)
        assert {row["reason"] for row in rejected} == {"cast invalid input"}
        assert rejected[0]["detail"].startswith("The value 'x' of the type \"STRING\" cannot be")


def test_rows_of_two_streams_and_of_an_operator(spark: SparkSession) -> None:
    app = ps.App("meters")
    app.stream("one", "id long, text string", partitions=1)
    app.stream("other", "id long, text string", partitions=2)

    @app.derive("both")
    def both(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.union(other).select("id", whole("text").alias("n"))

    @app.derive("longest", key="id")
    def longest(one: DataFrame) -> DataFrame:
        found = ps.aggregate(one, by="id", text=ps.max("text"))
        return found.select("id", whole("text").alias("n"), "_weight")

    with Run(app, spark=spark) as run:
        run.feed("one", [{"id": 1, "text": "1"}, {"id": 2, "text": "b"}])
        run.feed("other", [{"id": 3, "text": "c"}, {"id": 4, "text": "4"}], partition=1)
        run.drain()
        assert sorted(row["n"] for row in run.topic("both")) == [1, 4]
        places = [(r["topic"], r["partition"], r["offset"]) for r in run.rejected("both")]
        assert places == [("one", 0, 1), ("other", 1, 0)]
        assert run.view("longest") == [{"id": 1, "n": 1}]
        (row,) = run.rejected("longest")
        assert (row["topic"], row["offset"], row["batch"]) == (None, None, 0)
        assert row["operator"].startswith("longest/")
        assert row["operator"].endswith("-aggregate")

        # What was rejected is retracted without a word.
        run.feed("one", [{"id": 2, "text": "x"}, {"id": 1, "text": "9"}])
        run.drain()
        assert run.view("longest") == [{"id": 1, "n": 9}]
        assert [json.loads(each["row"])["text"] for each in run.rejected("longest")] == ["b", "x"]


@udf(returnType=LongType(), useArrow=False)
def out_of_reach(text: str) -> int:
    raise ConnectionError("nobody there")


@udf(returnType=LongType(), useArrow=False)
def killed(text: str) -> int:
    os._exit(1)


@udf(returnType=LongType(), useArrow=False)
def by_chance(text: str) -> int:
    raise ValueError("by chance")


@pytest.mark.parametrize(
    "function",
    [
        lambda readings: readings.select(out_of_reach("text")),
        lambda readings: readings.select(killed("text")),
        lambda readings: readings.select(by_chance.asNondeterministic()("text")),
        lambda readings: readings.select(whole("text"), rand()),
        lambda readings: readings.mapInArrow(_sums, "n long"),
    ],
    ids=["network", "killed", "nondeterministic", "random", "whole batches"],
)
def test_what_is_not_about_rows_fails_the_node(spark: SparkSession, function: Any) -> None:
    app = app_of(lambda readings: _named(function(readings)))
    with Run(app, spark=spark) as run:
        run.feed("readings", readings()[:5])
        with pytest.raises(NodeFailed):
            run.drain()


def _named(df: DataFrame) -> DataFrame:
    return df.toDF(*[f"c{n}" for n in range(len(df.columns))])


def _sums(batches: Any) -> Any:
    for batch in batches:
        if batch.num_rows:
            raise ValueError("of the whole")
        yield batch.select(["id"]).rename_columns(["n"])


def test_too_many_fail_the_node(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MOST_ROWS", 3)
    with Run(app_of(as_numbers), spark=spark) as run:
        run.feed("readings", readings())
        with pytest.raises(
            NodeFailed, match=r"invalid literal.*test_poison_rows\.py, line \d+, in whole"
        ):
            run.drain()


def test_equal_text_of_two_functions_is_not_one_function(spark: SparkSession) -> None:
    app = ps.App("meters")
    app.stream("readings", "id long, text string", partitions=1)

    @app.derive("once")
    def once(readings: DataFrame) -> DataFrame:
        return readings.select(udf(lambda n: n * 1, "long")("id").alias("n"))

    @app.derive("twice")
    def twice(readings: DataFrame) -> DataFrame:
        return readings.select(udf(lambda n: n * 2, "long")("id").alias("n"))

    with Run(app, spark=spark) as run:
        run.feed("readings", readings()[:3])
        run.drain()
        assert [row["n"] for row in run.topic("once")] == [0, 1, 2]
        assert [row["n"] for row in run.topic("twice")] == [0, 2, 4]


def test_others_do_not_wait_long_for_the_search(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(segments, "PATIENCE", -1.0)
    app = app_of(as_numbers)

    @app.derive("copies")
    def copies(readings: DataFrame) -> DataFrame:
        return readings.select("id")

    with Run(app, spark=spark) as run:
        run.feed("readings", readings())
        run.drain()
        assert "query main failed" in caplog.text
        # By itself it has all the time it needs.
        assert {row["id"] for row in run.topic("copies")} == set(TEXTS)
        assert {row["id"] for row in run.topic("numbers")} == TEXTS.keys() - POISON.keys()
        assert [row["offset"] for row in run.rejected("numbers")] == sorted(POISON)


def test_what_a_killed_run_has_handed_over_is_not_taken_up(spark: SparkSession) -> None:
    app = app_of(as_numbers)
    with Run(app, spark=spark) as run:
        graph = run._installed().queries[0].graph
        program = graph.program
        (leaf,) = [taker.leaf for taker in program.takers[0] if isinstance(taker, ToSpark)]
        stale = pa.record_batch({"id": pa.array([99], pa.int64()), "text": ["99"]})
        for task in range(program.buckets):
            write_handed_rows(f"{program.handed}/0", leaf, task, [HandedRows(0, stale)])
        assert len(handed_files(program.handed, 0, [leaf])) == program.buckets > 1
        run.feed("readings", [{"id": 1, "text": "1"}])
        run.drain()
        assert [row["id"] for row in run.topic("numbers")] == [1]


def test_who_cannot_add_up_rows_is_left_to_itself(spark: SparkSession) -> None:
    app = ps.App("meters")
    app.stream("readings", "id long, n long", partitions=1)

    @app.derive("sums", key="one")
    def sums(readings: DataFrame) -> DataFrame:
        return ps.aggregate(readings.selectExpr("1 AS one", "n"), by="one", n=ps.sum("n"))

    @app.derive("copies")
    def copies(readings: DataFrame) -> DataFrame:
        return readings.select("id")

    with Run(app, spark=spark) as run:
        run.feed("readings", [{"id": n, "n": 2**63 - 1} for n in range(2)])
        with pytest.raises(NodeFailed, match="sums"):
            run.drain()
        assert [row["id"] for row in run.topic("copies")] == [0, 1]
