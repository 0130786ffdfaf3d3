"""Columns of a plan have names in DataFrames and in state that no other has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.streams.spark.sql import sql
from penstock.streams.spark.sql.names import physical
from penstock.streams.sql.parse import Source
from penstock.streams.sql.plan import Col
from penstock.streams.sql.scope import Context

NAMES = st.text("a_2e.%`öß ", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("order_id2", "t__order_id2"),
        ("größe", "t__größe"),
        ("_at", "t___at"),
        ("a.b", "t__a%2e%b"),
        ("100%", "t__100%25%"),
    ],
)
def test_letters_digits_and_underscores_stay(name: str, expected: str) -> None:
    assert physical(Col("t", name)) == expected


@given(st.sets(st.tuples(NAMES, NAMES)))
def test_no_two_columns_have_the_same_name(wanted: set[tuple[str, str]]) -> None:
    context = Context(Source(""), {})
    tables = {table: context.alias(table) for table, _ in sorted(wanted)}
    names = {physical(Col(tables[table], name)) for table, name in wanted}
    assert len(names) == len(wanted)
    assert not any(mark in name for name in names for mark in ".`")


def test_a_view_keeps_columns_apart_that_look_alike(spark: SparkSession) -> None:
    names = ["größe", "grüße", "a.b", "a_b", "a`b", "a b"]
    row = tuple(range(len(names)))
    things = spark.createDataFrame([row], names)
    columns = ", ".join(f"`{name.replace('`', '``')}`" for name in names)
    grouped = sql(f"SELECT {columns}, count(*) AS n FROM things GROUP BY {columns}", things=things)
    assert [tuple(each) for each in grouped.collect()] == [(*row, 1, 1)]
