"""Analytics through Spark: the same as a stream and as a batch, and what each is for."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.streams.spark.crash import POINTS
from penstock.testing import assert_stream_equals_batch

EXAMPLES = int(os.environ.get("EXAMPLES", "1"))
MORNING = datetime(2026, 1, 31, 10, tzinfo=UTC)
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

    return app


_rows = st.lists(
    st.fixed_dictionaries(
        {
            "user": st.none() | st.sampled_from(["ada", "bob"]),
            "ms": st.none() | st.integers(0, 9),
            "at": st.integers(0, 120).map(lambda later: MORNING + timedelta(seconds=later)),
        }
    ),
    min_size=5,
    max_size=60,
)


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[phase for phase in settings().phases if phase.name != "shrink"],
)
@given(
    rows=_rows,
    in_order=st.booleans(),
    partitions=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    crash=st.sampled_from([None, *POINTS]),
)
def test_analytics_are_the_same_as_a_stream_and_as_a_batch(
    spark: SparkSession,
    rows: list[Any],
    in_order: bool,
    partitions: int,
    seed: int,
    crash: str | None,
) -> None:
    if in_order:
        rows = sorted(rows, key=lambda row: row["at"])
    rows = [{"id": number, **row} for number, row in enumerate(rows)]
    assert_stream_equals_batch(
        all_analytics(),
        {"clicks": rows, "visits": rows},
        spark=spark,
        partitions=partitions,
        seed=seed,
        crash=crash,
    )
