"""Views of an app: on streams, on tables and on other views."""

import math

import pytest
from pyspark.sql import SparkSession

from penstock import App, EventTime
from penstock.testing import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_timelines_and_totals(spark: SparkSession) -> None:
    app = App("gossip")
    app.stream("likes", "tweet long, at timestamp", event_time=EventTime("at"))
    app.table("tweets", "id long, sender_id long, timestamp long", key="id")
    app.table("follows", "id long, follower_id long, followee_id long", key="id")
    app.view(
        "timelines",
        sql="""
            SELECT follows.follower_id AS timeline_id,
                   array_agg(tweets.* ORDER BY tweets.timestamp DESC)
            FROM tweets
            JOIN follows ON follows.followee_id = tweets.sender_id
            GROUP BY follows.follower_id
        """,
    )
    app.view("n", sql="SELECT count(*) AS n FROM tweets")  # one row, without a key
    app.view("senders", sql="SELECT sender_id FROM tweets")  # rows that are there twice
    app.view("liked", sql="SELECT tweet, count(*) AS likes FROM likes GROUP BY tweet")
    app.view("popular", sql="SELECT likes, count(*) AS tweets FROM liked GROUP BY likes")

    def timelines() -> dict[int, list[int]]:
        rows = run.view("timelines")
        return {row["timeline_id"]: [each["id"] for each in row["array_agg"]] for row in rows}

    with Run(app, spark=spark) as run:
        for number, (follower, followee) in enumerate([(7, 1), (7, 2), (8, 1)]):
            run.upsert("follows", id=number, follower_id=follower, followee_id=followee)
        for tweet, sender in ((10, 1), (11, 2), (12, 1)):
            run.upsert("tweets", id=tweet, sender_id=sender, timestamp=tweet)
        run.feed("likes", [{"tweet": 10, "at": "2026-01-31T10:00:00Z"}] * 2)
        run.feed("likes", [{"tweet": 12, "at": "2026-01-31T10:00:01Z"}] * 2)
        run.drain()
        assert timelines() == {7: [12, 11, 10], 8: [12, 10]}
        assert run.view("popular") == [{"likes": 2, "tweets": 2}]
        assert run.view("n") == [{"n": 3}]
        assert [tuple(row.values()) for row in run.view("senders")] == [(1, 1), (1, 2), (2, 1)]

        run.delete("tweets", 12)
        run.delete("follows", 2)
        run.feed("likes", [{"tweet": 10, "at": "2026-01-31T10:00:02Z"}])
        run.drain()
        assert timelines() == {7: [11, 10]}
        assert run.view("n") == [{"n": 2}]
        assert [tuple(row.values()) for row in run.view("senders")] == [(1, 1), (2, 1)]
        assert run.view("popular") == [{"likes": 2, "tweets": 1}, {"likes": 3, "tweets": 1}]


def test_a_zero_is_deleted_whatever_its_sign(spark: SparkSession) -> None:
    """Of two equal rows in one batch the key was written as 0, of one alone as -0."""
    app = App("zeros")
    app.table("t", "id long, s string", key="id")
    app.view("numbers", sql="SELECT CAST(s AS DOUBLE) AS k FROM t")
    with Run(app, spark=spark) as run:
        for number in (1, 2):
            run.upsert("t", id=number, s="-0.0")
        run.drain()
        assert [row["copy"] for row in run.view("numbers")] == [1, 2]
        run.delete("t", 1)
        run.drain()
        run.delete("t", 2)
        run.drain()
        assert run.view("numbers") == []
        assert list(run.views["numbers"].rows()) == []


def test_numbers_that_json_does_not_have_stay_what_they_are(spark: SparkSession) -> None:
    app = App("edges")
    app.table("t", "id long, x double", key="id")
    app.view("xs", sql="SELECT x, count(*) AS n FROM t GROUP BY x")
    infinite = [{"x": -math.inf, "n": 1}, {"x": math.inf, "n": 1}]
    nan = {"x": math.nan, "n": 2}
    with Run(app, spark=spark) as run:
        for number, x in enumerate([math.nan, math.inf, -math.inf, math.nan]):
            run.upsert("t", id=number, x=x)
        run.drain()
        assert not run.rejected("t")
        assert repr(run.view("xs")) == repr([*infinite, nan])
        assert repr(list(run.views["xs"].rows())) == repr([*infinite, nan])
        assert repr(run.views["xs"].get(math.nan)) == repr(nan)
        assert repr(list(run.views["xs"].rows(x=math.nan))) == repr([nan])
        run.delete("t", 0)
        run.delete("t", 3)
        run.drain()
        assert run.view("xs") == infinite
        assert list(run.views["xs"].rows()) == infinite
