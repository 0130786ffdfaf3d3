"""Analytics through Spark: the same as a stream and as a batch, and what each is for."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import penstock as ps
from penstock.errors import InvalidInput
from penstock.streams.spark.origin import time_column
from penstock.testing import assert_stream_equals_batch
from tests.streams.spark.dealings import EXAMPLES, MORNING, dealt, rows_of

SCHEMA = "id long, user string, ms long, at timestamp"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 240 * EXAMPLES)]


def all_analytics() -> ps.App:
    app = ps.App("analytics")
    time = ps.EventTime("at", wait="5s", correct_for="20s")
    app.stream("clicks", SCHEMA, event_time=time)
    app.stream("visits", SCHEMA, event_time=ps.EventTime("at", wait="5s"))

    @app.derive("rolled", key="id")
    def rolled(clicks: DataFrame) -> DataFrame:
        return ps.rolling(clicks, "15s", by="user", n=ps.count(), usual=ps.mean("ms"))

    @app.derive("slid", key=["window", "user"])
    def slid(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.sliding("15s"), by="user", emit="changes", n=ps.count())

    @app.derive("rates", key=["window", "user"])
    def rates(clicks: DataFrame) -> DataFrame:
        return ps.rate(clicks, ps.tumbling("10s"), by="user", per="1 minute")

    @app.derive("compared", key=["window", "user"])
    def compared(clicks: DataFrame) -> DataFrame:
        return ps.compare(clicks, ps.tumbling("10s"), by="user", to="20s", n=ps.count())

    @app.derive("measured", key="window")
    def measured(clicks: DataFrame) -> DataFrame:
        return ps.anomaly(clicks, ps.tumbling("5s"), history=8, total=ps.sum("ms"))

    @app.derive("once", key=["user", "at"])
    def once(clicks: DataFrame) -> DataFrame:
        return ps.dedup(clicks, "user", within="10s")

    @app.derive("newest", key="user")
    def newest(clicks: DataFrame) -> DataFrame:
        return ps.latest(clicks, "user")

    @app.derive("silent", key=["user", "since"])
    def silent(clicks: DataFrame) -> DataFrame:
        return ps.gaps(clicks, by="user", after="10s")

    @app.derive("known", key="id")
    def known(clicks: DataFrame) -> DataFrame:
        return ps.seen_before(clicks, "user")

    @app.derive("about_known", key="id")
    def about_known(visits: DataFrame) -> DataFrame:
        return ps.seen_before(visits, "user", error=0.01, expected=1_000)

    @app.derive("chained", key=["window", "user"])
    def chained(visits: DataFrame) -> DataFrame:
        once = ps.dedup(visits, "ms", within="10s", emit="final")
        rolled = ps.rolling(once, "15s", by="user", n=ps.count())
        return ps.window(rolled, ps.session("20s"), by="user", most=ps.max("n"))

    return app


@dealt(rows_of("user", ["ada", "bob"]))
def test_analytics_are_the_same_as_a_stream_and_as_a_batch(
    spark: SparkSession,
    rows: list[Any],
    partitions: int,
    seed: int,
    crash: str | None,
) -> None:
    rows = [{"id": number, **row} for number, row in enumerate(rows)]
    assert_stream_equals_batch(
        all_analytics(),
        {"clicks": rows, "visits": rows},
        spark=spark,
        partitions=partitions,
        variants=min(EXAMPLES, 2),
        seed=seed,
        crash=crash,
    )


def at(minutes: float) -> datetime:
    return MORNING + timedelta(minutes=minutes)


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    """With the event time `at`."""
    return ps.timed(spark.createDataFrame(list(rows), schema), "at")


def values(table: DataFrame, *columns: str, order: str = "at") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in table.orderBy(order).select(*columns).collect()]


def test_rate(spark: SparkSession) -> None:
    clicks = frame(spark, "at timestamp", (at(0),), (at(0.5),), (at(3),))
    table = ps.rate(clicks, ps.tumbling("2 minutes"), per="1 minute")
    assert values(table, "window.start", "events", "rate", order="window") == [
        (at(0).replace(tzinfo=None), 2, 1.0),
        (at(2).replace(tzinfo=None), 1, 0.5),
    ]


def test_rolling(spark: SparkSession) -> None:
    rows = [("a", 1.0, at(0)), ("a", 3.0, at(4.9)), ("b", 7.0, at(5)), ("a", 5.0, at(5))]
    readings = frame(spark, "sensor string, v double, at timestamp", *rows)
    table = ps.rolling(readings, "5 minutes", by="sensor", mean=ps.mean("v"))
    assert "_weight" not in table.columns
    assert time_column(table) == ("_time", 0, False)
    found = values(table.where("sensor = 'a'"), "v", "mean")
    assert found == [(1.0, 1.0), (3.0, 2.0), (5.0, 4.0)]


def test_compare_with_the_window_before_and_with_an_earlier_one(spark: SparkSession) -> None:
    rows = [(at(minute),) for minute, n in enumerate((2, 3, 0, 6)) for _ in range(n)]
    clicks = frame(spark, "at timestamp", *rows)
    names = ("n", "n_before", "n_difference", "n_ratio")
    before = ps.compare(clicks, ps.tumbling("1 minute"), n=ps.count())
    assert values(before, *names, order="window") == [
        (2, None, None, None), (3, 2, 1, 1.5), (6, None, None, None),
    ]  # fmt: skip
    earlier = ps.compare(clicks, ps.tumbling("1 minute"), to="2 minutes", n=ps.count())
    assert values(earlier, *names, order="window")[-1] == (6, 3, 3, 2.0)


def test_anomaly(spark: SparkSession) -> None:
    counts = [10, 11, 9, 10, 12, 10, 60, 1, 10]
    rows = [(at(minute),) for minute, n in enumerate(counts) for _ in range(n)]
    table = ps.anomaly(frame(spark, "at timestamp", *rows), ps.tumbling("1 minute"), n=ps.count())
    found = values(table, "n", "n_expected", "n_unusual", order="window")
    assert [each for each in found if each[2]] == [(60, 10.0, "high"), (1, 10.0, "low")]


def test_dedup_of_which_sessions_are_made(spark: SparkSession) -> None:
    rows = [("x", 2, at(1)), ("x", 1, at(0)), ("y", 3, at(0)), ("x", 4, at(61)), ("x", 5, at(200))]
    orders = frame(spark, "id string, n long, at timestamp", *rows)
    assert values(ps.dedup(orders, "id", within="1 hour"), "n", order="n") == [
        (1,),
        (3,),
        (4,),
        (5,),
    ]
    once = ps.dedup(orders, "id", within="61 minutes", emit="final")
    visits = ps.window(once, ps.session("1 hour"), by="id", n=ps.count())
    assert values(visits, "id", "n", order="id") == [("x", 1), ("x", 1), ("y", 1)]


def test_latest_is_a_row_as_it_was(spark: SparkSession) -> None:
    rows = [("s", 1, 2, at(0)), ("s", None, 3, at(2)), ("s", 7, None, at(1)), ("t", 1, 1, at(0))]
    readings = frame(spark, "sensor string, a long, b long, at timestamp", *rows)
    table = ps.latest(readings, "sensor")
    assert values(table, "sensor", "a", "b", order="sensor") == [("s", None, 3), ("t", 1, 1)]


def test_gaps(spark: SparkSession) -> None:
    rows = [("s", at(0)), ("s", at(5)), ("s", at(11)), ("t", at(3))]
    table = ps.gaps(frame(spark, "s string, at timestamp", *rows), by="s", after="5 minutes")
    found = values(
        table.selectExpr("s", "minute(since) AS since", "minute(until) AS until"),
        "*",
        order="since",
    )
    assert found == [("t", 3, None), ("s", 5, 11), ("s", 11, None)]


@pytest.mark.parametrize("error", [None, 0.01])
def test_seen_before(spark: SparkSession, error: float | None) -> None:
    rows = [("ada", at(1)), ("ada", at(0)), ("bob", at(2)), ("ada", at(3)), (None, at(4))]
    clicks = frame(spark, "user string, at timestamp", *rows)
    table = ps.seen_before(clicks, "user", error=error)
    assert values(table, "user", "seen_before") == [
        ("ada", False), ("ada", True), ("bob", False), ("ada", True), (None, False),
    ]  # fmt: skip


def test_what_cannot_be_meant_is_refused(spark: SparkSession) -> None:
    clicks = frame(spark, "rate long, at timestamp", (1, at(0)))
    bad: list[Callable[[], DataFrame]] = [
        lambda: ps.rolling(clicks, ps.sliding("1 hour"), n=ps.count()),  # type: ignore[arg-type]
        lambda: ps.compare(clicks, "1 minute", to="1 day", n=ps.count()),  # type: ignore[arg-type]
        lambda: ps.compare(clicks, ps.session("1 minute"), n=ps.count()),
        lambda: ps.window(clicks, "1 minute", n=ps.count()),  # type: ignore[arg-type]
        lambda: ps.window(clicks, ps.tumbling("1 minute")),
        lambda: ps.window(clicks, ps.tumbling("1 minute"), n=5),  # type: ignore[arg-type]
        lambda: ps.window(clicks, ps.tumbling("1 day"), n=col("rate")),  # type: ignore[arg-type]
        lambda: ps.aggregate(clicks, by=col("rate"), n=ps.count()),  # type: ignore[arg-type]
        lambda: ps.window(clicks, ps.tumbling("99999999999 years"), n=ps.count()),
        lambda: ps.rate(clicks, ps.tumbling("1 minute"), by="rate"),
        lambda: ps.timed(clicks, "at"),
        lambda: ps.timed(spark.range(1), "id"),
        lambda: ps.seen_before(clicks, "rate", expected=5),
        lambda: ps.dedup(spark.range(1), "id", within="1 day"),
    ]
    for each in bad:
        with pytest.raises(InvalidInput) as refused:
            each()
        assert refused.value.hint
