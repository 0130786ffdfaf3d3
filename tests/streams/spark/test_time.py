"""When things happened, and when they were heard of: what event time is there for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.testing import Run, wait_until

MORNING = datetime(2026, 1, 31, 10, tzinfo=UTC)

pytestmark = pytest.mark.timeout(300)


def at(text: str) -> str:
    """A time of that day, such as 10:03:39."""
    return f"2026-01-31T{text}Z"


def test_star_wars_is_seen_in_the_order_of_its_episodes(spark: SparkSession) -> None:
    """They came out as IV, V, VI, I, II, III, VII, VIII, IX, and tell of other times than those."""
    app = ps.App("saga")
    schema = "saga string, episode string, released int, takes_place timestamp"
    app.stream("films", schema, event_time=ps.EventTime("takes_place", wait="100 days"))

    @app.derive("told", key="saga")
    def told(films: DataFrame) -> DataFrame:
        return ps.aggregate(
            films, by="saga", episodes=ps.collect("episode"), newest=ps.last("released")
        )

    released = {
        "IV": 1977, "V": 1980, "VI": 1983, "I": 1999, "II": 2002, "III": 2005,
        "VII": 2015, "VIII": 2017, "IX": 2019,
    }  # fmt: skip
    order = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
    with Run(app, spark=spark, partitions=3) as run:
        for number, (episode, year) in enumerate(released.items()):
            then = (MORNING + timedelta(days=order.index(episode))).isoformat()
            film = {"saga": "Star Wars", "episode": episode, "released": year, "takes_place": then}
            run.feed("films", [film], partition=number % 3)
            if number % 4 == 0:
                run.drain()
        run.drain()
        (row,) = run.view("told")
        assert row == {
            "saga": "Star Wars",
            "episodes": {"values": order, "more": 0},
            "newest": 2019,
        }


def test_web_servers_a_and_b_out_of_order(spark: SparkSession) -> None:
    """The first request went to A, the second to B, and B's event came first."""
    app = ps.App("requests")
    schema = "user string, server string, at timestamp"
    app.stream("requests", schema, event_time=ps.EventTime("at", wait="1 minute"))

    @app.derive("visits", key=["user", "window"])
    def visits(requests: DataFrame) -> DataFrame:
        servers = ps.collect("server")
        return ps.window(requests, ps.session("30s"), by="user", servers=servers)

    with Run(app, spark=spark, partitions=2) as run:
        run.feed("requests", [{"user": "ada", "server": "B", "at": at("10:00:02")}], partition=1)
        run.drain()
        run.feed("requests", [{"user": "ada", "server": "A", "at": at("10:00:01")}], partition=0)
        run.drain()
        assert run.view("visits") == []
        run.advance(MORNING + timedelta(minutes=1))
        run.drain()
        (row,) = run.view("visits")
        assert row["servers"]["values"] == ["A", "B"]


def test_device_clocks_wrong_by_days(spark: SparkSession) -> None:
    """A phone that is three days ahead and one that is two behind; both sent what they had
    gathered offline, and all of it is put where it happened."""
    app = ps.App("phones")
    schema = "phone string, taken timestamp, sent timestamp"
    app.stream(
        "steps",
        schema,
        event_time=ps.EventTime(occurred="taken", sent="sent", wait="2 hours"),
    )

    @app.derive("hours", key="window")
    def hours(steps: DataFrame) -> DataFrame:
        return ps.window(steps, ps.tumbling("1 hour"), phones=ps.collect("phone"))

    noon = round((MORNING + timedelta(hours=2)).timestamp() * 1_000)
    off = {"ahead": timedelta(days=3), "behind": timedelta(days=-2), "right": timedelta()}
    rows: list[dict[str, Any]] = []
    for phone, wrong in off.items():
        sent = MORNING + timedelta(hours=2) + wrong
        for before in (timedelta(minutes=90), timedelta(minutes=30)):
            taken = (sent - before).isoformat()
            rows.append({"phone": phone, "taken": taken, "sent": sent.isoformat()})
    with Run(app, spark=spark, partitions=1) as run:
        run.feed("steps", rows, timestamp=noon)
        run.advance(MORNING + timedelta(hours=3))
        run.drain()
        found = {f"{row['window']['start']:%H}": row["phones"] for row in run.view("hours")}
        assert {hour: sorted(phones["values"]) for hour, phones in found.items()} == {
            "10": ["ahead", "behind", "right"],
            "11": ["ahead", "behind", "right"],
        }
        assert run.rejected("steps") == []


def test_one_input_silent(spark: SparkSession) -> None:
    """It leaves the minimum after `idle_after`; what it sends later corrects, or is counted as late
    once the state that it belongs to is gone."""
    app = ps.App("silent")
    time = ps.EventTime("at", correct_for="10 minutes", idle_after="500ms")
    app.stream("clicks", "at timestamp", event_time=time)

    @app.derive("minutes", key="window")
    def minutes(clicks: DataFrame) -> DataFrame:
        return ps.window(clicks, ps.tumbling("1 minute"), n=ps.count())

    def counted() -> dict[str, int]:
        run.drain()
        return {f"{row['window']['start']:%H:%M}": row["n"] for row in run.view("minutes")}

    with Run(app, spark=spark, partitions=2) as run:
        run.feed("clicks", [{"at": at("10:00:00")}], partition=1)
        run.feed("clicks", [{"at": at("10:00:30")}, {"at": at("10:15:00")}], partition=0)
        wait_until(lambda: counted() == {"10:00": 2}, within=60, what="the silent one to be left")
        run.feed("clicks", [{"at": at("10:06:00")}], partition=1)
        assert counted() == {"10:00": 2, "10:06": 1}
        run.feed("clicks", [{"at": at("10:04:59")}], partition=1)
        assert counted() == {"10:00": 2, "10:06": 1}
        (watch,) = run._watches
        assert watch.statuses[0].late == 1
