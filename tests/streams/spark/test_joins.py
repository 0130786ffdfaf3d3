"""Joins through Spark: the hard cases by name, streams against batches, and arrivals shuffled."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.errors import InvalidInput
from penstock.streams.state import state_info
from penstock.testing import Run

MORNING = datetime(2026, 1, 31, 10, tzinfo=UTC)

pytestmark = pytest.mark.timeout(300)


def at(seconds: float) -> str:
    return (MORNING + timedelta(seconds=seconds)).isoformat()


def shown(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def searches_and_clicks(correct_for: str = "1h") -> ps.App:
    app = ps.App("ads")
    app.stream(
        "searches",
        "search long, user string, at timestamp",
        event_time=ps.EventTime("at", wait="1s", correct_for=correct_for),
    )
    app.stream(
        "clicks",
        "page string, who string, seen timestamp",
        event_time=ps.EventTime("seen", wait="1s", correct_for=correct_for),
    )
    return app


def test_left_join_within_5_s_gives_a_null_row_only_once_the_clock_passes(
    spark: SparkSession,
) -> None:
    """And -null row, then +joined row, for a straggler after it was given out."""
    app = searches_and_clicks()

    @app.derive("ads", key="search")
    def ads(searches: DataFrame, clicks: DataFrame) -> DataFrame:
        return ps.join(searches, clicks, on="user = who", within=("0s", "5s"), how="left")

    with Run(app, spark=spark, partitions=1) as run:
        run.feed("searches", [{"search": 1, "user": "ada", "at": at(10)}])
        run.feed("clicks", [{"page": "b", "who": "bob", "seen": at(0)}])
        run.drain()
        run.advance(MORNING + timedelta(seconds=15))
        run.drain()
        assert run.view("ads") == []
        run.advance(MORNING + timedelta(seconds=15, microseconds=1))
        run.drain()
        assert shown(run.view("ads"), "search", "page") == [(1, None)]
        run.feed("clicks", [{"page": "a", "who": "ada", "seen": at(15)}])
        run.drain()
        assert shown(run.view("ads"), "search", "page") == [(1, "a")]
        assert [row["page"] for row in run.topic("ads")] == [None, "a"]
        (watch,) = run._watches
        assert watch.statuses[0].corrected == 1


@pytest.mark.parametrize("how", ["inner", "full", "semi", "anti"])
def test_joined_streams_do_not_depend_on_how_rows_arrive(spark: SparkSession, how: str) -> None:
    app = searches_and_clicks("0s")

    @app.derive("ads")
    def ads(searches: DataFrame, clicks: DataFrame) -> DataFrame:
        return ps.join(searches, clicks, on="user = who", within="3s", how=how)

    random.seed(how)
    searches: list[dict[str, Any]] = [
        {"search": n, "user": random.choice("abc"), "at": at(random.randrange(30))}
        for n in range(20)
    ]
    clicks: list[dict[str, Any]] = [
        {"page": str(n), "who": random.choice("abc"), "seen": at(random.randrange(30))}
        for n in range(20)
    ]
    results = []
    for _ in range(2):
        random.shuffle(searches)
        random.shuffle(clicks)
        with Run(app, spark=spark, partitions=2, max_rows=7) as run:
            # Until the clock is told nothing is too late: partitions begin with the earliest.
            for number in range(2):
                run.feed("searches", [{"search": -1, "user": "x", "at": at(-9)}], partition=number)
                run.feed("clicks", [{"page": "-", "who": "y", "seen": at(-9)}], partition=number)
            for rows, name in ((searches, "searches"), (clicks, "clicks")):
                for number in range(2):
                    half = sorted(rows[number::2], key=lambda row: row.get("at") or row["seen"])
                    run.feed(name, half, partition=number)
            run.drain()
            run.advance(MORNING + timedelta(hours=1))
            run.drain()
            found = run.topic("ads")
            assert shown(found, *found[0]) == shown(run.batch("ads"), *found[0])
            results.append(shown(found, *found[0]))
    assert results[0] == results[1]
    near = {
        (search["search"], click["page"])
        for search in searches
        for click in clicks
        if search["user"] == click["who"]
        and abs(datetime.fromisoformat(search["at"]) - datetime.fromisoformat(click["seen"]))
        <= timedelta(seconds=3)
    }
    if how == "inner":
        assert len(results[0]) == len(near)
    if how == "semi":
        assert {row[0] for row in results[0]} == {search for search, _ in near}


def test_what_follows_a_join_of_streams_gets_a_stream(spark: SparkSession) -> None:
    """Pairs are never taken back, so that no operator behind has to expect it."""
    app = searches_and_clicks(correct_for="0s")
    paired: dict[str, Any] = {"on": "user = who", "within": ("0s", "5s")}

    @app.derive("once")
    def once(searches: DataFrame, clicks: DataFrame) -> DataFrame:
        return ps.dedup(ps.join(searches, clicks, **paired), "user", within="1h", emit="final")

    @app.derive("counted")
    def counted(searches: DataFrame, clicks: DataFrame) -> DataFrame:
        pairs = ps.join(searches, clicks, **paired)
        return ps.rolling(pairs, "1h", by="user", pages=ps.count())

    with Run(app, spark=spark, partitions=1) as run:
        run.feed("searches", [{"search": 1, "user": "ada", "at": at(10)}])
        run.feed("clicks", [{"page": f"{n}", "who": "ada", "seen": at(11 + n)} for n in range(3)])
        run.drain()
        run.advance(MORNING + timedelta(seconds=60))
        run.drain()
        assert shown(run.topic("once"), "page") == [("0",)]
        assert shown(run.topic("counted"), "page", "pages") == [("0", 1), ("1", 2), ("2", 3)]


def test_tables_are_joined_as_they_change(spark: SparkSession) -> None:
    """Retraction after a key change: -old before +new; deletes on either side; a stream joins the
    click that came before its search."""
    app = ps.App("shop")
    app.table("orders", "id long, customer long, amount double", key="id")
    app.table("customers", "id long, name string, country string", key="id")
    app.table("countries", "country string, tax double", key="country")

    @app.derive("named", key="id")
    def named(orders: DataFrame, customers: DataFrame, countries: DataFrame) -> DataFrame:
        people = customers.withColumnRenamed("id", "customer")
        taxed = ps.join(people, countries, on="country", how="left")
        return ps.join(orders, taxed, on="customer", how="left")

    @app.derive("by_country", key="country")
    def by_country(named: DataFrame) -> DataFrame:
        return ps.aggregate(named, by="country", total=ps.sum("amount"), n=ps.count())

    with Run(app, spark=spark) as run:
        run.upsert("customers", id=7, name="Ada", country="NL")
        run.upsert("orders", id=1, customer=7, amount=2.5)
        run.upsert("orders", id=2, customer=8, amount=1.0)
        run.drain()
        columns = ("id", "name", "country", "tax")
        assert shown(run.view("named"), *columns) == [
            (1, "Ada", "NL", None),
            (2, None, None, None),
        ]
        run.upsert("countries", country="NL", tax=0.21)
        run.upsert("countries", country="BE", tax=0.2)
        run.upsert("customers", id=8, name="Bob", country="BE")
        run.upsert("orders", id=1, customer=8, amount=2.5)  # another key to join by
        run.drain()
        assert shown(run.view("named"), *columns) == [
            (1, "Bob", "BE", 0.2),
            (2, "Bob", "BE", 0.2),
        ]
        assert shown(run.view("by_country"), "country", "total", "n") == [("BE", 3.5, 2)]
        run.delete("customers", 8)
        run.delete("orders", 2)
        run.drain()
        assert shown(run.view("named"), *columns) == [(1, None, None, None)]
        assert shown(run.view("by_country"), "country", "total", "n") == [(None, 2.5, 1)]
        assert shown(run.batch("named"), *columns) == shown(run.view("named"), *columns)


def taxes(buckets: int | None = None) -> ps.App:
    app = ps.App("tax", buckets=buckets)
    app.stream(
        "sales",
        "sale long, country string, at timestamp",
        event_time=ps.EventTime("at", wait="1s", correct_for="1 minute"),
    )
    rates = "country string, rate double, since timestamp"
    app.table("rates", rates, key="country", event_time=ps.EventTime("since"))
    return app


def test_enrichment_row_version_arrives_after_the_event(spark: SparkSession) -> None:
    """With an event time before it: the event is corrected within correct_for, and only then."""
    app = taxes()

    @app.derive("taxed", key="sale")
    def taxed(sales: DataFrame, rates: DataFrame) -> DataFrame:
        return ps.enrich(sales, rates, on="country")

    @app.derive("now")
    def now(sales: DataFrame, rates: DataFrame) -> DataFrame:
        return ps.enrich(sales, rates, on="country", as_of="latest")

    with Run(app, spark=spark, partitions=1) as run:
        run.upsert("rates", country="NL", rate=0.19, since=at(-1000))
        run.upsert("rates", country="NL", rate=0.21, since=at(30))
        run.feed("sales", [{"sale": n, "country": "NL", "at": at(10 * n)} for n in range(1, 5)])
        run.feed("sales", [{"sale": 9, "country": "BE", "at": at(50)}])
        run.drain()
        run.advance(MORNING + timedelta(seconds=60))
        run.drain()
        # On a replay old events meet the old rate; the latest is another matter.
        old = [(1, 0.19), (2, 0.19), (3, 0.21), (4, 0.21), (9, None)]
        assert shown(run.view("taxed"), "sale", "rate") == old
        assert {row[1] for row in shown(run.topic("now"), "sale", "rate")} == {0.21, None}

        run.upsert("rates", country="NL", rate=0.2, since=at(15))
        run.drain()
        corrected = [(1, 0.19), (2, 0.2), (3, 0.21), (4, 0.21), (9, None)]
        assert shown(run.view("taxed"), "sale", "rate") == corrected
        run.advance(MORNING + timedelta(seconds=600))
        run.drain()
        run.upsert("rates", country="NL", rate=0.5, since=at(12))
        run.drain()
        assert shown(run.view("taxed"), "sale", "rate") == corrected


def test_events_of_one_key_are_spread_when_the_table_is_in_every_bucket(
    spark: SparkSession,
) -> None:
    """And have what the table by key gives them: corrected, after a crash, and in a batch."""
    app = taxes(buckets=3)

    @app.derive("by_key", key="sale")
    def by_key(sales: DataFrame, rates: DataFrame) -> DataFrame:
        return ps.enrich(sales, rates, on="country")

    @app.derive("taxed", key="sale")
    def taxed(sales: DataFrame, rates: DataFrame) -> DataFrame:
        return ps.enrich(sales, rates, on="country", broadcast=True)

    @app.derive("now")
    def now(sales: DataFrame, rates: DataFrame) -> DataFrame:
        large = sales.where("sale >= 0")  # so that it is not the source that packs
        return ps.enrich(large, rates, on="country", as_of="latest", how="inner", broadcast=True)

    columns = ("sale", "country", "rate")
    with Run(app, spark=spark, partitions=1) as run:
        run.upsert("rates", country="NL", rate=0.19, since=at(-1000))
        run.upsert("rates", country="BE", rate=0.21, since=at(-1000))
        run.feed("sales", [{"sale": n, "country": "NL", "at": at(n)} for n in range(60)])
        run.feed("sales", [{"sale": 60, "country": "FR", "at": at(60)}])
        run.drain()
        kept = {
            built.name: [
                bucket.rows
                for operator in built.place.states.values()
                for bucket in state_info(built.folder.state, operator, 3)
            ]
            for built in run._nodes()
        }
        assert max(kept["by_key"]) > 60
        assert max(kept["taxed"]) < 40
        assert kept["now"] == [2, 2, 2]
        run.crash("before-commit", "taxed")
        run.upsert("rates", country="NL", rate=0.2, since=at(30))
        run.upsert("rates", country="FR", rate=0.1, since=at(-1))
        run.delete("rates", "BE")
        run.drain()
        run.advance(MORNING + timedelta(seconds=62))
        run.drain()
        expected = [(n, "NL", 0.19 if n < 30 else 0.2) for n in range(60)] + [(60, "FR", 0.1)]
        for node in ("by_key", "taxed"):
            assert shown(run.view(node), *columns) == sorted(expected, key=repr)
        assert shown(run.batch("taxed"), *columns) == sorted(expected, key=repr)
        assert shown(run.topic("now"), *columns) == sorted(
            [(n, "NL", 0.19) for n in range(60)], key=repr
        )
        assert run.crashes == 1


def test_versions_of_a_table_have_their_times(spark: SparkSession) -> None:
    """In whatever order they come; with keep, those that ended so long ago leave."""
    app = ps.App("people")
    cities = "id long, city string, since timestamp"
    app.table("cities", cities, key="id", event_time=ps.EventTime("since"))

    @app.derive("history", key=["id", "valid_from"])
    def history(cities: DataFrame) -> DataFrame:
        return ps.versions(cities)

    @app.derive("lately", key=["id", "valid_from"])
    def lately(cities: DataFrame) -> DataFrame:
        return ps.versions(cities, keep="1 hour")

    columns = ("id", "city", "version", "valid_from", "valid_to")
    first, second, third = (MORNING + timedelta(seconds=each) for each in (0, 20, 40))
    with Run(app, spark=spark) as run:
        run.upsert("cities", id=1, city="Bonn", since=at(0))
        run.upsert("cities", id=1, city="Rome", since=at(40))
        run.upsert("cities", id=1, city="Rome", since=at(60))
        run.upsert("cities", id=2, city="Oslo", since=at(0))
        run.drain()
        assert shown(run.view("history"), *columns) == [
            (1, "Bonn", 1, first, third),
            (1, "Rome", 2, third, None),
            (2, "Oslo", 1, first, None),
        ]
        run.upsert("cities", id=1, city="Bern", since=at(20))
        run.drain()
        all_of_them = [
            (1, "Bern", 2, second, third),
            (1, "Bonn", 1, first, second),
            (1, "Rome", 3, third, None),
            (2, "Oslo", 1, first, None),
        ]
        assert shown(run.view("history"), *columns) == all_of_them
        assert shown(run.batch("history"), *columns) == all_of_them
        run.delete("cities", 2)
        run.drain()
        (ended,) = [row["valid_to"] for row in run.view("history") if row["id"] == 2]
        assert ended > third
        assert shown(run.view("lately"), "id", "city", "version") == [
            (1, "Rome", 3),
            (2, "Oslo", 1),
        ]


def test_joins_that_make_no_sense_are_refused(spark: SparkSession) -> None:
    schema = "k long, at timestamp"
    plain = spark.createDataFrame([], schema)
    stream = ps.timed(plain, "at")
    table = ps.changes(spark.createDataFrame([], "k long, v string, w long"), key="k")
    with pytest.raises(InvalidInput, match="without a limit"):
        ps.join(stream, stream, on="k")
    with pytest.raises(InvalidInput, match="when the rows happened"):
        ps.join(plain, stream, on="k", within="5s")
    with pytest.raises(InvalidInput, match="compares no two columns"):
        ps.join(stream, table, on="k > 3")
    with pytest.raises(InvalidInput, match="has not two bounds"):
        ps.join(stream, stream, on="k", within=("5s",))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="from when the rows of the table are valid"):
        ps.enrich(stream, table, on="k")
    with pytest.raises(InvalidInput, match="from when the rows of the table are valid"):
        ps.versions(table)
    with pytest.raises(InvalidInput, match="one row for each k"):
        ps.enrich(stream, table, on="k = w", as_of="latest")
    with pytest.raises(InvalidInput, match="this is a stream"):
        ps.enrich(stream, stream, on="k")
