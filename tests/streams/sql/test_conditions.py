"""Conditions that need no Spark keep the rows that DuckDB keeps; others are left to Spark."""

import json
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from sqlglot import exp, parse_one

from penstock.streams.algebra.rows.selection import Selection
from penstock.streams.spark.sql.conditions import simple

KINDS: dict[str, DataType] = {
    "i": IntegerType(),
    "j": LongType(),
    "s": StringType(),
    "u": StringType(),
    "b": BooleanType(),
    "at": TimestampType(),
    "since": TimestampType(),
    "day": DateType(),
    "f": DoubleType(),
    "d": DecimalType(10, 2),
    "l": StringType("UTF8_LCASE"),
}
SCHEMA = StructType([StructField(f"t__{name}", kind) for name, kind in KINDS.items()])
TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema(
    {
        "t__i": pa.int32(),
        "t__j": pa.int64(),
        "t__s": pa.string(),
        "t__u": pa.string(),
        "t__b": pa.bool_(),
        "t__at": TIME,
        "t__since": TIME,
    }
)

numbers = st.none() | st.integers(-2, 2)
texts = st.none() | st.sampled_from(["", "a", "ab", "ä", "\U0001f600"])
moments = st.none() | st.integers(0, 2).map(lambda n: datetime(2026, 1, 1, n, tzinfo=UTC))
rows = st.tuples(numbers, numbers, texts, texts, st.none() | st.booleans(), moments, moments)


def operands(kind: str) -> st.SearchStrategy[str]:
    return {
        "number": st.sampled_from(["t.i", "t.j"]) | st.integers(-2, 2).map(str),
        "text": st.sampled_from(["t.s", "t.u", "'a'", "''", "'ä'"]),
        "flag": st.sampled_from(["t.b", "true"]),
        "time": st.sampled_from(["t.at", "t.since"]),
    }[kind]


@st.composite
def comparisons(draw: Any) -> str:
    values = operands(draw(st.sampled_from(["number", "text", "flag", "time"])))
    a, b, c = draw(values), draw(values), draw(values)
    return str(
        draw(
            st.sampled_from(
                [
                    *(f"{a} {operator} {b}" for operator in ("=", "<>", "<", "<=", ">", ">=")),
                    f"{a} between {b} and {c}",
                    f"{a} not between {b} and {c}",
                    f"{a} in ({b}, {c})",
                    f"{a} not in ({b}, {c})",
                    f"{a} is null",
                    f"{a} is not null",
                    "t.b",
                ]
            )
        )
    )


conditions = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda a: f"not ({a})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(some=st.lists(rows, max_size=6), condition=conditions)
def test_the_rows_are_kept_that_sql_keeps(some: list[tuple[Any, ...]], condition: str) -> None:
    known = simple(parse_one(condition, dialect="spark"), SCHEMA)
    assert known is not None
    named = [dict(zip(ROWS.names, row, strict=True)) for row in some]
    batch = pa.RecordBatch.from_pylist(named, ROWS)
    numbered = batch.append_column("n", pa.array(range(len(some)), pa.int64()))
    kept = Selection.from_spec(Selection().where(known).chosen({"m": "n"}).spec())(numbered)
    renamed = [name.removeprefix("t__") for name in numbered.schema.names]
    table = pa.Table.from_batches([numbered]).rename_columns(renamed)
    with duckdb.connect() as duck:
        duck.register("t", table)
        expected = duck.sql(f"SELECT n FROM t WHERE {condition} ORDER BY n").fetchall()
    assert [(number,) for number in kept.column("m").to_pylist()] == expected


@pytest.mark.parametrize(
    "condition",
    [
        "t.f < 1",  # NaN is more than any number to Spark, and equal to itself
        "t.d = 1",
        "t.l = 'a'",
        "t.i = '1'",
        "t.s = t.at",
        "t.at = t.day",
        "t.i < 1.5",
        "t.i < 99999999999999999999",
        "t.i + 1 = 2",
        "upper(t.s) = 'A'",
        "t.s like 'a%'",
        "t.i <=> t.j",
        "t.i in (1, null)",
        "t.i = null",
        "t.b is true",
        "cast(t.s as int) = 1",
        "t.i",
    ],
)
def test_only_spark_knows_the_others(condition: str) -> None:
    assert simple(parse_one(condition, dialect="spark"), SCHEMA) is None
    whole = exp.and_(parse_one("t.i = 1", dialect="spark"), parse_one(condition, dialect="spark"))
    assert simple(whole, SCHEMA) is None


@given(
    times=st.lists(st.none() | st.integers(-(10**14), 10**15), max_size=6),
    size=st.integers(1, 10**8),
)
def test_a_time_is_in_the_window_that_begins_last_before_it(
    times: list[int | None], size: int
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(times, TIME)], names=["at"])
    there = ["not", ["is null", ["column", "at"]]]
    selected = Selection().where(there).chosen({"w": ["tumbling", ["column", "at"], size]})
    selected = selected.chosen(
        {"a": ["field", ["column", "w"], "start"], "b": ["field", ["column", "w"], "end"]}
    )
    assert selected.reads(["at", "more"]) == {"at"}
    bounds = Selection.from_spec(json.loads(json.dumps(selected.spec())))(batch)
    starts, ends = (each.cast(pa.int64()).to_pylist() for each in bounds.columns)
    known = [time for time in times if time is not None]
    assert all(a % size == 0 for a in starts)
    assert [a <= time < b == a + size for a, time, b in zip(starts, known, ends, strict=True)] == [
        True
    ] * len(known)


def test_what_nobody_needs_is_not_read() -> None:
    selected = (
        Selection().where(["=", ["column", "a"], ["literal", 1]]).chosen({"x": "b", "y": "c"})
    )
    assert selected.reads(["a", "b", "c", "d"]) == {"a", "b", "c"}
    shaped = selected.shaped(pa.schema({"y": pa.int64()}))
    assert shaped.reads(["a", "b", "c", "d"]) == {"a", "c"}
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "c": [3, 4]})
    assert shaped(batch).to_pydict() == {"y": [3]}
    assert Selection().reads(["a", "b"]) == {"a", "b"}


@pytest.mark.parametrize("kind", ["in", "or", "and"])
def test_long_conditions_are_no_deep_ones(kind: str) -> None:
    condition = {
        "in": f"t.j in ({', '.join(map(str, range(2_000)))})",
        "or": " or ".join(f"t.j = {number}" for number in range(2_000)),
        "and": " and ".join(f"t.j <> {number}" for number in range(2_000)),
    }[kind]
    known = simple(parse_one(condition, dialect="spark"), SCHEMA)
    assert known is not None
    batch = pa.RecordBatch.from_pydict({"t__j": [5, -1, None]})
    kept = Selection.from_spec(json.loads(json.dumps(Selection().where(known).spec())))(batch)
    assert kept.column("t__j").to_pylist() == ([-1] if kind == "and" else [5])


def test_columns_come_in_the_types_that_are_wanted() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]})
    wanted = pa.schema({"big": pa.int64()})
    selected = Selection().chosen({"big": "a", "b": "b"}).shaped(wanted)
    assert Selection.from_spec(selected.spec())(batch).to_pydict() == {"big": [1, 2]}
    assert selected(batch).schema == wanted
