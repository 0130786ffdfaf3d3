"""Windows through Spark: the same as a stream and as a batch, and the hard cases by their names."""

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import App, EventTime
from penstock.testing import Run, assert_stream_equals_batch
from tests.streams.spark.dealings import EXAMPLES, MORNING, dealt, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 240 * EXAMPLES)]


def at(text: str) -> str:
    """A time of that day, such as 10:03:39."""
    return f"2026-01-31T{text}Z"


def clicks(name: str, **event_time: Any) -> App:
    app = App(name)
    app.stream(
        "clicks", "page string, ms long, at timestamp", event_time=EventTime("at", **event_time)
    )
    return app


def many_windows() -> App:
    app = clicks("windows", wait="5s", correct_for="20s")

    @app.derive("tens", key=["page", "window"])
    def tens(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.tumbling("10s"), by="page", n=ps.count(), slowest=ps.max("ms"))

    @app.derive("overlapping", key=["page", "window"])
    def overlapping(clicks: DataFrame) -> DataFrame:
        window = ps.hopping("20s", "5s")
        return ps.window(
            clicks, window, by="page", emit="changes", n=ps.count(), last=ps.last("ms")
        )

    @app.derive("visits", key=["page", "window"])
    def visits(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.session("7s"), by="page", n=ps.count())

    @app.derive("told", key="window")
    def told(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.tumbling("30s"), every="10s", n=ps.count())

    @app.derive("minutes", key=["page", "window"])
    def minutes(tens: DataFrame) -> DataFrame:
        return ps.window(
            tens, ps.tumbling("1 minute"), by="page", windows=ps.count(), n=ps.sum("n")
        )

    return app


@dealt(rows_of("page", ["home", "cart"]))
def test_windows_are_the_same_as_a_stream_and_as_a_batch(
    spark: SparkSession,
    rows: list[Any],
    partitions: int,
    seed: int,
    crash: str | None,
) -> None:
    assert_stream_equals_batch(
        many_windows(), {"clicks": rows}, spark=spark, partitions=partitions, seed=seed, crash=crash
    )


def test_window_10_03_to_10_04_contains_its_start_and_not_its_end(spark: SparkSession) -> None:
    app = clicks("minutes")

    @app.derive("minutes", key="window")
    def minutes(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.tumbling("1 minute"), n=ps.count())

    with Run(app, spark=spark, partitions=1) as run:
        run.feed("clicks", [{"at": at(each)} for each in ("10:03:00", "10:03:59.999", "10:04:00")])
        run.advance(MORNING + timedelta(hours=1))
        run.drain()
        assert starts(run.view("minutes")) == {"10:03": 2, "10:04": 1}


def test_session_gap_events_exactly_gap_apart(spark: SparkSession) -> None:
    app = clicks("visits")

    @app.derive("visits", key="window")
    def visits(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.session("1 minute"), n=ps.count())

    with Run(app, spark=spark, partitions=1) as run:
        run.feed("clicks", [{"at": at(each)} for each in ("10:03:00", "10:04:00", "10:05:00.001")])
        run.advance(MORNING + timedelta(hours=1))
        run.drain()
        assert starts(run.view("visits")) == {"10:03": 2, "10:05": 1}


def test_5_minute_sliding_window_10_03_39_and_10_08_12(spark: SparkSession) -> None:
    """Together; at exactly 5 minutes apart, not."""
    app = clicks("sliding")

    @app.derive("slid", key="window")
    def slid(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.sliding("5 minutes"), n=ps.count())

    with Run(app, spark=spark, partitions=1) as run:
        run.feed("clicks", [{"at": at(each)} for each in ("10:03:39", "10:08:12", "10:13:12")])
        run.advance(MORNING + timedelta(hours=1))
        run.drain()
        ends = {f"{row['window']['end']:%H:%M:%S}": row["n"] for row in run.view("slid")}
        assert ends == {"10:03:39": 1, "10:08:12": 2, "10:13:12": 1}


def starts(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {f"{row['window']['start']:%H:%M}": row["n"] for row in rows}


def test_sessions_0_and_18_with_gap_10_then_a_straggler_at_9(spark: SparkSession) -> None:
    """One session [0, 28) of three; the two that were given out are taken back first."""
    app = clicks("joined", correct_for="1 hour")
    told: list[tuple[str, int, int]] = []

    @app.derive("visits", key="window")
    def visits(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.session("10s"), n=ps.count())

    def note(rows: DataFrame, batch: int) -> None:
        for row in rows.collect():
            span = f"{row.window.start.second}-{row.window.end.second}"
            told.append((span, row.n, row._weight))

    app.sink("visits", ps.each_batch(note))
    with Run(app, spark=spark, partitions=1) as run:
        run.feed("clicks", [{"at": at("10:00:00")}, {"at": at("10:00:18")}])
        run.advance(MORNING + timedelta(seconds=40))
        run.drain()
        assert sorted(told) == [("0-10", 1, 1), ("18-28", 1, 1)]
        told.clear()
        run.feed("clicks", [{"at": at("10:00:09")}])
        run.drain()
        # Of two keys, which come in any order; of one, what goes comes before what is there now.
        assert sorted(told) == [("0-10", 1, -1), ("0-28", 3, 1), ("18-28", 1, -1)]
        assert told.index(("0-10", 1, -1)) < told.index(("0-28", 3, 1))


def test_one_event_from_2099_does_not_close_windows(spark: SparkSession) -> None:
    app = clicks("future")

    @app.derive("minutes", key="window")
    def minutes(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.tumbling("1 minute"), n=ps.count())

    with Run(app, spark=spark, partitions=1) as run:
        run.feed("clicks", [{"at": at("10:00:00")}, {"at": "2099-01-01T00:00:00Z"}])
        run.feed("clicks", [{"at": at("10:00:30")}, {"at": at("10:01:00")}])
        run.drain()
        assert starts(run.view("minutes")) == {"10:00": 2}
        assert [row["reason"] for row in run.rejected("clicks")] == ["future"]


def test_an_event_exactly_wait_behind_the_highest_is_on_time(spark: SparkSession) -> None:
    app = clicks("waiting", wait="10s")

    @app.derive("seconds", key="window")
    def seconds(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.tumbling("1s"), n=ps.count())

    with Run(app, spark=spark, partitions=1) as run:
        rows = ("10:00:10", "10:00:00", "09:59:59.999")
        run.feed("clicks", [{"at": at(each)} for each in rows])
        run.advance(MORNING + timedelta(minutes=1))
        run.drain()
        assert [row["n"] for row in run.view("seconds")] == [1, 1]
        assert [row["reason"] for row in run.rejected("clicks")] == ["late"]
