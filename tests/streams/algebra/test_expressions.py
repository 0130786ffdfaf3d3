"""Expressions over Arrow: answers, and which rows have none, without Spark."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import KernelError
from penstock.streams.algebra.rows.expressions import Expression, columns_of, evaluate
from penstock.streams.algebra.rows.selection import Checked, Selection

A, B = ["column", "a"], ["column", "b"]
ZERO, ONE = ["literal", 0, "bigint"], ["literal", 1, "bigint"]
MOST = 2**63 - 1
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
ARROW = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}


def chosen(expression: Expression, **columns: Any) -> Checked:
    """By way of JSON, as it reaches a worker."""
    selection = Selection().chosen({"c": expression})
    selection = Selection.from_spec(json.loads(json.dumps(selection.spec())))
    return selection.checked(pa.RecordBatch.from_pydict(columns))


def values(expression: Expression, **columns: Any) -> list[Any]:
    rows, refused = chosen(expression, **columns)
    assert refused == []
    return list(rows.column("c").to_pylist())


def fits(value: int, kind: str) -> bool:
    most: int = 2 ** (BITS[kind] - 1)
    return -most <= value < most


@st.composite
def numbers(draw: Any) -> tuple[str, list[tuple[int | None, int | None]]]:
    kind = draw(st.sampled_from(list(BITS)))
    most = 2 ** (BITS[kind] - 1)
    edges = st.sampled_from([None, -most, most - 1, -1, 0, 1])
    one = edges | st.integers(-most, most - 1)
    return kind, draw(st.lists(st.tuples(one, edges | one), min_size=5, max_size=12))


def truncated(one: int, other: int) -> int:
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


EXACT = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "%": lambda one, other: one - other * truncated(one, other),
    "div": truncated,
}


@settings(max_examples=300)
@given(table=numbers(), operator=st.sampled_from(list(EXACT)))
def test_whole_numbers_are_exact_or_refused(
    table: tuple[str, list[tuple[int | None, int | None]]], operator: str
) -> None:
    kind, pairs = table
    if operator == "div":
        kind = "bigint"
    left, right = (pa.array(side, ARROW[kind]) for side in zip(*pairs, strict=True))
    rows, refused = chosen([operator, A, B], a=left, b=right)
    expected: list[int | None] = []
    reasons: list[tuple[int, str]] = []
    for place, (one, other) in enumerate(pairs):
        if one is None or other is None:
            expected.append(None)
        elif other == 0 and operator in ("%", "div"):
            reasons.append((place, f"division by zero in `a {operator} b`"))
        elif fits(found := EXACT[operator](one, other), kind):
            expected.append(found)
        else:
            reasons.append((place, f"{one} {operator} {other} does not fit {kind}"))
    assert rows.column("c").to_pylist() == expected
    assert rows.column("c").type == ARROW[kind]
    assert refused == reasons


@given(table=numbers(), to=st.sampled_from(list(BITS)))
def test_casts_of_whole_numbers_are_exact_or_refused(
    table: tuple[str, list[tuple[int | None, int | None]]], to: str
) -> None:
    kind, pairs = table
    given_ones = [one for one, _ in pairs]
    rows, refused = chosen(["cast", A, to], a=pa.array(given_ones, ARROW[kind]))
    assert rows.column("c").to_pylist() == [n for n in given_ones if n is None or fits(n, to)]
    assert refused == [
        (place, f"{n} does not fit {to}")
        for place, n in enumerate(given_ones)
        if n is not None and not fits(n, to)
    ]


FRACTIONS = st.floats() | st.sampled_from([2.0**63, -(2.0**63), 2.0**31, 127.9, -128.9, -129.0])


@example([2.0**63, -(2.0**63), math.nan, 1.9, -1.9], "bigint")
@given(st.lists(st.none() | FRACTIONS, min_size=5), st.sampled_from(list(BITS)))
def test_fractions_are_cut_off(some: list[float | None], to: str) -> None:
    rows, refused = chosen(["cast", A, to], a=pa.array(some, pa.float64()))
    kept = [n for n in some if n is None or (math.isfinite(n) and _holds(n, to))]
    expected = [None if n is None else min(int(n), 2 ** (BITS[to] - 1) - 1) for n in kept]
    assert rows.column("c").to_pylist() == expected
    assert len(refused) == len(some) - len(kept)


def _holds(number: float, kind: str) -> bool:
    """Spark compares doubles, and the highest bigint is none."""
    most = 2 ** (BITS[kind] - 1)
    return math.floor(number) <= float(most - 1) and math.ceil(number) >= -most


@given(st.lists(st.none() | st.integers(-719_000, 2_900_000), min_size=1))
def test_parts_of_dates_are_those_of_the_calendar(days: list[int | None]) -> None:
    dates = [None if day is None else date(1970, 1, 1) + timedelta(day) for day in days]
    array = pa.array(days, pa.int32()).view(pa.date32())
    for part in ("year", "month", "day"):
        expected = [None if each is None else getattr(each, part) for each in dates]
        assert values([part, A], a=array) == expected
    starts = values(["truncate", A, "quarter"], a=array)
    assert starts == [
        None if each is None else each.replace(month=(each.month - 1) // 3 * 3 + 1, day=1)
        for each in dates
    ]
    mondays = values(["truncate", A, "week"], a=array)
    assert mondays == [None if each is None else each - timedelta(each.weekday()) for each in dates]


def test_times_that_are_too_far_away_are_refused() -> None:
    kind = pa.timestamp("us", "UTC")
    times = pa.array([0, None, MOST, -MOST - 1], pa.int64()).view(kind)
    windows, refused = chosen(["tumbling", A, 60_000_000], a=times)
    assert windows.column("c").to_pylist() == [
        {
            "start": datetime(1970, 1, 1, tzinfo=UTC),
            "end": datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
        },
        {"start": None, "end": None},
    ]
    assert [row for row, _ in refused] == [2, 3]
    assert [row for row, _ in chosen(["shift", A, 1], a=times).refused] == [2]
    assert [row for row, _ in chosen(["shift", A, -1], a=times).refused] == [3]
    far = pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32())
    assert [row for row, _ in chosen(["cast", A, "timestamp"], a=far).refused] == [1]


def test_nan_is_the_greatest_number_and_itself() -> None:
    some = [1.0, math.nan, None, -0.0, math.inf]
    pairs = [(one, other) for one in some for other in some]

    def is_less(one: float, other: float) -> bool:
        return not math.isnan(one) if math.isnan(other) else one < other

    def is_same(one: float, other: float) -> bool:
        return one == other or (math.isnan(one) and math.isnan(other))

    for operator, answer in {"=": is_same, "<": is_less}.items():
        expected = [
            None if one is None or other is None else answer(one, other) for one, other in pairs
        ]
        left, right = (pa.array(side, pa.float64()) for side in zip(*pairs, strict=True))
        assert values([operator, A, B], a=left, b=right) == expected
        mirrored = {"=": "<>", "<": ">="}[operator]
        inverted = [None if each is None else not each for each in expected]
        assert values([mirrored, A, B], a=left, b=right) == inverted
        if operator == "<":
            assert values([">", B, A], a=left, b=right) == expected
            assert values(["<=", B, A], a=left, b=right) == inverted
    assert values(["greatest", A, B], a=pa.array([math.inf, None]), b=[math.nan, 2.0])[1] == 2.0
    assert values(["in", A, ["literal", "NaN", "double"]], a=[math.nan, 1.0]) == [True, False]


@pytest.mark.parametrize(
    ("expression", "refused"),
    [
        (["/", A, B], [1]),
        (["and", [">", B, ["literal", 0.0]], [">", ["/", A, B], ["literal", 0.0]]], []),
        (["and", [">", ["/", A, B], ["literal", 0.0]], [">", B, ["literal", 0.0]]], [1]),
        (["or", ["=", B, ["literal", 0.0]], [">", ["/", A, B], ["literal", 0.0]]], []),
        (["or", ["<>", B, ["literal", 0.0]], [">", ["/", A, B], ["literal", 0.0]]], [1]),
        (["case", ["=", B, ["literal", 0.0]], A, ["/", A, B]], []),
        (["case", ["<>", B, ["literal", 0.0]], A, ["/", A, B]], [1]),
        (["case", [">", ["/", A, B], ["literal", 0.0]], A, B], [1]),
        (["coalesce", B, ["/", A, B]], []),
        (["coalesce", ["/", A, B], B], [1]),
        (["coalesce", ["literal", None, "double"], ["/", A, B]], [1]),
        # A null on the left is an answer, whatever is on the right; of a division, on the right.
        (["+", ["literal", None, "double"], ["/", A, B]], []),
        (["+", ["/", A, B], ["literal", None, "double"]], [1]),
        (["/", ["/", A, B], ["literal", None, "double"]], []),
        (["<=>", ["literal", None, "double"], ["/", A, B]], [1]),
        (["in", A, A, ["/", A, B]], []),
        (["in", A, ["/", A, B], A], [1]),
        (["in", ["literal", None, "double"], ["/", A, B]], []),
        (["greatest", A, ["/", A, B]], [1]),
        (["is null", ["/", A, B]], [1]),
        (["struct", ["literal", "k"], A, ["literal", "m"], ["/", A, B]], [1]),
    ],
)
def test_only_what_is_evaluated_is_refused(expression: Expression, refused: list[int]) -> None:
    found = chosen(expression, a=[1.0, 1.0, 1.0], b=[2.0, 0.0, None])
    assert [row for row, _ in found.refused] == refused
    assert all(reason == "division by zero in `a / b`" for _, reason in found.refused)
    assert found.rows.num_rows == 3 - len(refused)


def test_reasons_name_the_values_and_the_expression() -> None:
    def why(expression: Expression, **columns: Any) -> list[str]:
        return [reason for _, reason in chosen(expression, **columns).refused]

    assert why(["+", A, ONE], a=[MOST, 5]) == [f"{MOST} + 1 does not fit bigint"]
    total = ["/", ["column", "total"], ["-", ["column", "n"], ["literal", 1.0, "double"]]]
    assert why(total, total=[1.0], n=[1.0]) == ["division by zero in `total / (n - 1.0)`"]
    assert why(["cast", A, "int"], a=["12", "x"]) == ["'x' is no int"]
    assert why(["cast", A, "int"], a=[math.nan]) == ["nan does not fit int"]
    assert why(["negate", A], a=[-MOST - 1]) == [f"-({-MOST - 1}) does not fit bigint"]
    assert why(["abs", A], a=[None, -MOST - 1]) == [f"abs({-MOST - 1}) does not fit bigint"]
    assert (
        why(["+", ["literal", MOST, "bigint"], ONE], a=[1, 2])
        == [f"{MOST} + 1 does not fit bigint"] * 2
    )


def test_refused_rows_are_counted_from_the_beginning() -> None:
    rows = pa.record_batch({"a": [5, 0, 7, 0, 9], "b": [1, 1, 0, 0, 0]})
    selection = (
        Selection()
        .where([">", A, ONE])
        .chosen({"a": "a", "c": ["div", A, B]})
        .where(["<>", ["div", ["literal", 14, "bigint"], ["-", A, ["literal", 5, "bigint"]]], ONE])
    )
    found = selection.checked(rows)
    assert found.rows.num_rows == 0
    assert found.refused == [
        (0, "division by zero in `14 div (a - 5)`"),
        (2, "division by zero in `a div b`"),
        (4, "division by zero in `a div b`"),
    ]
    with pytest.raises(KernelError, match="division by zero in `14 div"):
        selection(rows)
    assert selection.checked(rows.slice(1, 1)).refused == []


def test_a_filter_is_settled_by_what_is_not_known() -> None:
    """Elsewhere, null AND an error is an error; a row of a filter is gone by then."""
    both = ["and", [">", A, ONE], ["=", ["div", ONE, B], ONE]]
    rows = pa.record_batch({"a": pa.array([None, 5], pa.int64()), "b": [0, 1]})
    found, refused = Selection().where(both).checked(rows)
    assert found.column("a").to_pylist() == [5]
    assert refused == []
    assert [row for row, _ in Selection().chosen({"c": both}).checked(rows).refused] == [0]


def test_columns_that_nobody_needs_are_not_computed() -> None:
    rows = pa.record_batch({"a": [1, 2], "b": [0, 1]})
    selection = Selection().chosen({"a": "a", "c": ["div", A, B], "d": ["+", A, ONE]})
    assert len(selection.checked(rows).refused) == 1
    for needed in (selection.shaped(pa.schema({"d": pa.int64()})), selection.chosen({"d": "d"})):
        assert needed.checked(rows).refused == []
        assert needed(rows).to_pydict() == {"d": [2, 3]}
        assert needed.pruned().steps[0] == {"d": ["+", A, ONE]}
        assert needed.reads(["a", "b"]) == {"a"}


def test_rows_are_counted_by_some_column() -> None:
    rows = pa.record_batch({"a": [1, 2], "b": [0, 1]})
    selection = Selection().chosen({"c": ["div", A, B], "a": "a"}).chosen({"one": ONE})
    assert selection(rows).to_pydict() == {"one": [1, 1]}
    assert selection.reads(["a", "b"]) == {"a"}
    assert Selection().chosen({"one": ONE}).reads(["a", "b"]) == {"a"}


@pytest.mark.parametrize(
    ("texts", "kind", "expected"),
    [
        (["1", "-2", None], "int", [1, -2, None]),
        ([" 1 ", "\t+7\n", "\x7f0\x00", "-0"], "bigint", [1, 7, 0, 0]),
        (["", " ", "+", "1.0", "1e3", "0x1", "\u00a01", "1_0", "\uff12"], "int", []),
        (["127", "128", "-128", "-129"], "tinyint", [127, -128]),
        ([str(MOST), str(MOST + 1), "0" * 30 + "5", "9" * 5000], "bigint", [MOST, 5]),
    ],
)
def test_texts_are_numbers_or_refused(
    texts: list[str | None], kind: str, expected: list[int | None]
) -> None:
    rows, refused = chosen(["cast", A, kind], a=pa.array(texts, pa.string()))
    assert rows.column("c").to_pylist() == expected
    assert rows.column("c").type == ARROW[kind]
    assert len(refused) == len(texts) - len(expected)


def test_an_expression_is_about_columns() -> None:
    expression = ["case", ["like", A, "b%"], ["cast", B, "int"], ["struct", ["literal", "c"], A]]
    assert list(columns_of(expression)) == ["a", "b", "a"]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_what_is_about_no_column_is_the_same_for_all_rows(rows: int) -> None:
    batch = pa.record_batch({"a": pa.array(range(rows), pa.int64())})
    selection = Selection().chosen({"one": ONE, "sum": ["+", ONE, ONE], "null": ["is null", ONE]})
    found = selection(batch)
    assert found.to_pydict() == {"one": [1] * rows, "sum": [2] * rows, "null": [False] * rows}
    assert Selection().where(["literal", False]).checked(batch).rows.num_rows == 0


def test_one_of_several_may_be_one_of_several_itself() -> None:
    inner = ["in", A, B]
    some, others = pa.array([1, 2, None]), pa.array([1, 3, 3])
    assert values(inner, a=some, b=others) == [True, False, None]
    assert values(["in", inner, inner], a=some, b=others) == [True, True, None]
    assert values(["in", A, ONE, ["literal", None, "bigint"]], a=some) == [True, None, None]
    assert values(["in", ONE, ZERO, ONE], a=some) == [True] * 3


def test_literals_are_of_their_types() -> None:
    batch = pa.record_batch({"a": [1]})
    for value, name, expected in [
        (None, "date", None),
        (0, "date", date(1970, 1, 1)),
        (1, "timestamp", datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ("Infinity", "double", math.inf),
        (1, "tinyint", 1),
        (True, "boolean", True),
    ]:
        found = evaluate(["literal", value, name], batch).values
        assert found.as_py() == expected
        assert isinstance(found, pa.Scalar)
    assert np.isnan(evaluate(["literal", "NaN", "float"], batch).values.as_py())
    assert evaluate(["literal", 1], batch).values.type == pa.int64()
    assert evaluate(["literal", True], batch).values.type == pa.bool_()
