"""Views on Spark give what DuckDB gives, of tables at once and batch by batch as they change."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from duckdb import DuckDBPyConnection
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.errors import InvalidInput, InvalidSql
from penstock.streams.spark.operators import timed
from penstock.streams.spark.place import QueryPlace, building, forget_warm
from penstock.streams.spark.sql import key_of, operators_of, sql, view_of
from penstock.streams.sql import explain
from tests.streams.spark.dealings import EXAMPLES
from tests.streams.sql import shop, tpch
from tests.streams.sql.changing import ChangingTables, changing_shop, changing_tpch
from tests.streams.sql.duck import rows_of, translated
from tests.streams.sql.golden import Case, cases, table
from tests.streams.sql.in_spark import frame_of, together, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FILES = ("rows", "joins", "aggregates", "subqueries", "sets", "tops", "windows")

# One of each kind of operator at least, and of each way to compose them.
CHANGING = {
    "rows": ["distinct of rows that are there twice"],
    "joins": ["full join", "tables with commas", "left join with a condition of both sides"],
    "aggregates": [
        "of all rows",
        "averages and decimals",
        "different values",
        "of aggregates",
        "the row of the highest",
        "timelines",
    ],
    "subqueries": ["not in", "exists by more than equality", "a count for each row"],
    "sets": ["except", "intersect all"],
    "tops": ["first of all", "timelines of ten"],
    "windows": ["hop as a table"],
}


class Answers:
    """What the views of `together` have, as all changes so far add up to it."""

    def __init__(self, views: int) -> None:
        self._views: list[Counter[str]] = [Counter() for _ in range(views)]

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            self._views[row.query][_line(values(row))] += row._weight

    def of(self, view: int) -> list[str]:
        """A row that was taken away more often than it came is there with its count."""
        counts = self._views[view]
        missing = [f"{line}: {count}" for line, count in counts.items() if count < 0]
        return sorted([*counts.elements(), *missing])


def _line(row: tuple[Any, ...]) -> str:
    return table([], [row]).strip("\n")


def check(
    spark: SparkSession,
    some: list[Case],
    columns: Mapping[str, Mapping[str, str]],
    rows: Mapping[str, list[Any]],
) -> None:
    frames = {name: frame_of(spark, columns[name], rows[name]) for name in columns}
    answers = Answers(len(some))
    answers.add(together([case.sql for case in some], frames).collect())
    for number, case in enumerate(some):
        assert answers.of(number) == case.parts["result"].split("\n")[1:], case


@pytest.mark.parametrize("file", FILES)
def test_views_of_a_shop(spark: SparkSession, file: str) -> None:
    check(spark, cases(file), {name: shop.columns_of(name) for name in shop.SCHEMAS}, shop.ROWS)


@pytest.mark.parametrize("part", range(4))
def test_tpch(spark: SparkSession, part: int) -> None:
    check(spark, cases("tpch")[part::4], tpch.COLUMNS, tpch.tables())


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
@given(seed=st.integers(0, 2**32))
def test_views_follow_their_tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("views")
    some = [case for file, names in CHANGING.items() for case in cases(file) if case.name in names]
    tables = changing_shop(folder / "tables", seed)
    check_steps(spark, folder, some, tables, [(8, 0), (2, 0), (5, 0), (3, 0)], shop.database)


def _groups() -> Iterator[Any]:
    for file in (*FILES, "mixed", "tpch"):
        some, size = cases(file), 2 if file == "tpch" else 6
        parts = -(-len(some) // size)
        for part in range(parts):
            yield pytest.param(some[part::parts], id=f"{file}-{part}")


@pytest.mark.long  # some of each kind are tried by the one above
@pytest.mark.parametrize("some", list(_groups()))
def test_every_view_follows_its_tables(
    spark: SparkSession, tmp_path: Path, some: list[Case]
) -> None:
    """Any of the tables may be a stream of rows that stay."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    of_tpch = some[0].file == "tpch"
    names = tpch.COLUMNS if of_tpch else shop.SCHEMAS
    growing = [name for name in names if random.Random(f"{seed}{name}").random() < 0.4]
    changing, database = (
        (changing_tpch, tpch.database) if of_tpch else (changing_shop, shop.database)
    )
    tables = changing(tmp_path / "tables", seed, growing)
    # As many rows as it takes for most of the queries to find some.
    sizes = [(400, 300), (40, 0), (40, 0)] if of_tpch else [(9, 1), (4, 0), (6, 0)]
    check_steps(spark, tmp_path, some, tables, sizes, database)


def check_steps(
    spark: SparkSession,
    folder: Path,
    some: list[Case],
    tables: ChangingTables,
    sizes: list[tuple[int, int]],
    database: Callable[[dict[str, list[Any]]], DuckDBPyConnection],
) -> None:
    """The query is stopped and started again between the batches, of at most and at least so many
    changes in each table."""
    place = QueryPlace(str(folder / "checkpoint"), 2, one_host=True)
    with building(place):
        whole = together([case.sql for case in some], tables.frames(spark))
    answers = Answers(len(some))
    stream = (
        whole.writeStream.foreachBatch(lambda rows, _: answers.add(rows.collect()))
        .option("checkpointLocation", place.checkpoint)
        .trigger(availableNow=True)
    )
    for size in sizes:
        tables.change(*size)
        stream.start().awaitTermination()
        db = database(tables.rows)
        for number, case in enumerate(some):
            asked = case.parts.get("oracle") or translated(case.sql)
            expected = sorted(map(_line, rows_of(db, asked)))
            assert answers.of(number) == expected, f"{case}, SEED={tables.seed}"
    forget_warm(place.checkpoint)


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> DataFrame:
    return frame_of(spark, shop.columns_of("orders"), shop.ROWS["orders"])


def test_sessions_by_event_time(orders: DataFrame) -> None:
    text = """
        SELECT date_format(session_window.start, 'HH:mm:ss') AS since, count(*) AS n
        FROM orders GROUP BY session_window(at, '5 minutes')
    """
    found = sql(text, orders=timed(orders.where("at is not null"), "at")).collect()
    assert sorted((row.since, row.n) for row in found) == [
        ("10:00:00", 2),
        ("10:11:00", 2),
        ("10:21:00", 1),
        ("10:29:59", 1),
    ]


def test_windows_of_event_time_go_by_its_clock(orders: DataFrame) -> None:
    text = "SELECT window.start, count(*) AS n FROM orders GROUP BY window(at, '10 minutes')"
    timed_orders = timed(orders.where("at is not null"), "at")
    kept, by_clock = (sql(text, orders=each) for each in (orders, timed_orders))
    assert sorted(by_clock.collect()) == sorted(kept.collect())
    assert key_of(by_clock) == ("start",)


def test_types_that_do_not_fit_are_refused_before_anything_runs(orders: DataFrame) -> None:
    with pytest.raises(InvalidSql, match=r"orders\.at") as refused:
        sql("SELECT at + id AS nothing FROM orders", orders=orders)
    assert "__" not in refused.value.message


def test_a_stream_and_a_batch_are_not_mixed(spark: SparkSession, orders: DataFrame) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("int(value) AS customer")
    text = "SELECT id FROM orders JOIN blocked ON orders.customer = blocked.customer"
    with pytest.raises(InvalidInput, match="blocked"):
        sql(text, orders=orders, blocked=stream)


def test_a_key_is_carried_through_views(orders: DataFrame) -> None:
    totals = sql("SELECT customer, count(*) AS n FROM orders GROUP BY customer", orders=orders)
    assert key_of(totals) == ("customer",)
    some = sql("SELECT n, customer AS who FROM totals WHERE n > 1", totals=totals)
    assert key_of(some) == ("who",)
    assert [(row.who, row.n) for row in some.sort("who").collect()] == [(1, 2), (2, 2)]


def test_operators_of_a_plan_are_known_by_the_names_of_their_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("int(value) AS id", "value AS size")
    view = sql(
        "SELECT a.size, count(*) AS n FROM stream a JOIN stream b ON a.id = b.id GROUP BY a.size",
        checkpoint=str(tmp_path),
        stream=stream,
    )
    plan, names = view_of(view), operators_of(view)
    assert plan is not None
    lines = explain(plan, lambda part: ", ".join(names.get(part, ()))).splitlines()
    assert [line.split("  [")[1] for line in lines if "  [" in line] == [
        "1-aggregate]",
        "0-stream_join]",
    ]


def test_rows_of_one_operator_are_packed_for_the_next_where_they_are_made(
    spark: SparkSession,
) -> None:
    """As a way through the JVM takes longer than either; with a condition that only Spark knows
    there is no other."""
    one = spark.createDataFrame([(1, 5, 0.5), (1, 6, 1.5), (2, 7, 2.5)], "a int, t int, f double")
    other = spark.createDataFrame([(1, 6), (2, 7)], "b int, u int")
    text = (
        "SELECT a, max(t) AS t, count(*) AS n FROM one JOIN other ON a = b WHERE {} "
        "GROUP BY a ORDER BY a"
    )
    for condition, is_handed in (("t <= u AND t > 5", True), ("t > 5 AND f < u", False)):
        view = sql(text.format(condition), one=one, other=other)
        assert sorted(map(tuple, view.collect())) == [(1, 6, 1, 1), (2, 7, 1, 1)]
        assert view._jdf is not None
        assert ("_Handing" in view._jdf.queryExecution().toString()) == is_handed
