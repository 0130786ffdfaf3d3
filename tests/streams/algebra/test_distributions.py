import datetime as dt
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError, UnknownName
from penstock.streams import algebra
from penstock.streams.algebra import AggregateKernel, Summary, kernel_from_spec
from tests.streams.algebra import distributions as oracle
from tests.streams.algebra.batches import Query, Row, batch_of, text
from tests.streams.algebra.merging import spread, summed_up
from tests.streams.algebra.oracle import as_key
from tests.streams.state.samples import SAMPLES

DAY = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("k", pa.int8()),
        ("i", pa.int64()),
        ("d", pa.float64()),
        ("p", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("n", pa.struct({"x": pa.float32(), "y": pa.list_(pa.string())})),
        ("t", pa.timestamp("us", "UTC")),
        ("at", pa.timestamp("us", "UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)
TABLE = SCHEMA.append(pa.field("_weight", pa.int32()))
COLUMNS = ("i", "d", "p", "s", "n", "t")
QS, EDGES = [0, 0.07, 0.5, 0.99, 1], [-2.5, 0, 1, 3]

_values: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from([1, 2, None]),
    "i": st.none() | st.integers(-3, 3) | st.sampled_from([2**62, -(2**62)]),
    "d": st.none() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 1e9, -7.25]),
    "p": st.none() | st.decimals(-4, 4, places=2),
    "s": st.none() | st.text("abä", max_size=2),
    "n": st.none()
    | st.fixed_dictionaries(
        {
            "x": st.none() | st.sampled_from([math.nan, 0.0, -0.0, 1.5]),
            "y": st.none() | st.lists(st.none() | st.sampled_from("ab"), max_size=2),
        }
    ),
    "t": st.none() | st.integers(0, 3).map(lambda day: DAY - dt.timedelta(days=day * 9_000)),
    "at": st.integers(0, 3).map(lambda seconds: DAY + dt.timedelta(seconds=seconds)),
    "_partition": st.integers(0, 1),
    "_offset": st.integers(0, 3),
}
_rows = st.lists(st.fixed_dictionaries(_values), max_size=30)
_cuts = st.lists(st.integers(0, 30), max_size=5)
_seeds = st.integers(0, 2**32)


@st.composite
def _changes(draw: st.DrawFn) -> list[Row]:
    """Rows that come, at times more than once, and of which some go, at times before they came."""
    changes: list[Row] = []
    for row in draw(_rows):
        weight = draw(st.integers(1, 2))
        taken = draw(st.integers(0, weight))
        changes.insert(draw(st.integers(0, len(changes))), {**row, "_weight": weight})
        if taken:
            moved = {**row, "_weight": -taken, "_offset": draw(st.integers(0, 9))}
            changes.insert(draw(st.integers(0, len(changes))), moved)
    return changes


ASKED: dict[str, algebra.Aggregate] = {
    **{f"collect {c}": algebra.collect(c, limit=3) for c in COLUMNS},
    **{f"distinct {c}": algebra.distinct(c) for c in COLUMNS},
    **{f"quantile {c}": algebra.quantile(c, QS) for c in COLUMNS},
    **{f"top {c}": algebra.top(c, 2) for c in COLUMNS},
    **{f"top by {c}": algebra.top("s", 2, by=c) for c in ("p",)},
    **{f"stddev {c}": algebra.stddev(c) for c in ("i", "d", "p")},
    **{f"histogram {c}": algebra.histogram(c, EDGES) for c in ("i", "d", "p")},
}
ENDS: dict[str, algebra.Aggregate] = {
    f"{kind} {c}": getattr(algebra, kind)(c)
    for kind in ("min", "max", "first", "last")
    for c in COLUMNS
}


def expected(name: str, rows: list[Row]) -> Any:
    kind, *_, column = name.split()
    if name.startswith("top by"):
        return oracle.top(rows, "s", 2, column)
    if kind in ("min", "max", "first", "last"):
        last, placed = kind in ("max", "last"), kind in ("first", "last")
        return oracle.end(rows, column, last=last, placed=placed)
    options: dict[str, dict[str, Any]] = {
        "collect": {"limit": 3},
        "quantile": {"q": QS},
        "top": {"k": 2},
        "histogram": {"edges": EDGES},
    }
    return getattr(oracle, kind)(rows, column, **options.get(kind, {}))


def check(
    asked: dict[str, algebra.Aggregate], rows: pa.RecordBatch, cuts: list[int], seed: int
) -> None:
    found = summed_up(asked, rows, cuts, seed, time="at")
    of_key: dict[Any, list[Row]] = {}
    for row in rows.to_pylist():
        of_key.setdefault(row["k"], []).append(row)
    assert found.keys() == of_key.keys()
    for key, members in of_key.items():
        for name, value in found[key].items():
            wanted = expected(name, members)
            if name.startswith("stddev") and wanted is not None:
                # What was taken back, up to 1e9, leaves its rounding.
                least = 1e-6 if "_weight" in rows.schema.names else 1e-12
                assert value == pytest.approx(wanted, rel=1e-12, abs=least, nan_ok=True), name
            else:
                assert as_key([value]) == as_key([wanted]), name


@given(_rows, _cuts, _seeds)
@settings(deadline=None, max_examples=40)
def test_rows_in_any_cuts_and_order(rows: list[Row], cuts: list[int], seed: int) -> None:
    check(ASKED, batch_of(SCHEMA, rows), cuts, seed)


@given(_changes(), _cuts, _seeds)
@settings(deadline=None, max_examples=40)
def test_tables_in_any_cuts_and_order(changes: list[Row], cuts: list[int], seed: int) -> None:
    check(ASKED | ENDS, batch_of(TABLE, changes), cuts, seed)


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"null", "interval"}))
@pytest.mark.parametrize("weighted", [False, True])
def test_values_of_every_type(tmp_path: Path, name: str, weighted: bool) -> None:
    """Through the state, where they are bytes."""
    kind, values = SAMPLES[name]
    schema = pa.schema([("k", pa.int8()), ("v", kind)])
    if weighted:
        schema = schema.append(pa.field("_weight", pa.int8()))
    asked = {"d": algebra.distinct("v"), "t": algebra.top("v", 1), "c": algebra.collect("v", 100)}
    rows = [{"k": 1, "v": value, "_weight": 1} for value in [*values, None, values[0]]]
    query = Query(tmp_path, AggregateKernel("k", asked, schema))
    for row in rows:
        query.batch([batch_of(schema, [row])], "lost arena")
    made = pa.array(values, kind).to_pylist()
    result = query.changes[-1]
    assert result["d"] == len(values)
    assert as_key(result["t"]) == as_key([{"value": made[0], "count": 2}])
    collected = result["c"]["values"]
    assert sorted(map(text, collected)) == sorted(map(text, [*made, made[0]]))


def test_a_key_without_rows_leaves_no_state(tmp_path: Path) -> None:
    asked = {**ASKED, **ENDS, "aq": algebra.approx_quantile("d", 0.5)}
    kernel = AggregateKernel("k", asked, TABLE, "at")
    row = {"k": 1, "i": 5, "d": 1.25, "s": "a", "n": {"x": 1.0, "y": []}, "at": DAY}
    query = Query(tmp_path, kernel)
    query.batch([batch_of(TABLE, [{**row, "_weight": 2}])])
    query.batch([batch_of(TABLE, [{**row, "_weight": -1}])])
    assert query.state_rows() == 1
    query.batch([batch_of(TABLE, [{**row, "_weight": -1}])])
    assert (query.table(), query.state_rows()) == ([], 0)


def test_what_goes_brings_in_what_was_beyond_the_limit(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.int8()), ("_weight", pa.int8())])
    kernel = AggregateKernel("k", {"c": algebra.collect("v", limit=2)}, schema)
    query = Query(tmp_path, kernel)
    query.batch([batch_of(schema, [{"k": 1, "v": v, "_weight": 1} for v in (3, 1, 2, 2)])])
    assert query.changes[-1]["c"] == {"values": [1, 2], "more": 2}
    query.batch([batch_of(schema, [{"k": 1, "v": 1, "_weight": -1}])])
    assert query.changes[-1]["c"] == {"values": [2, 2], "more": 1}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_beyond_the_limit_is_counted_in_every_cut(seed: int) -> None:
    rows = spread(list(range(20)), pa.int64(), 1)
    found = summed_up({"c": algebra.collect("v", limit=2)}, rows, [4, 8, 9, 15], seed)
    assert found[0]["c"] == {"values": [0, 1], "more": 18}


def test_a_value_taken_back_before_it_comes_is_not_shown() -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.int8()), ("_weight", pa.int8())])
    rows = [{"k": 1, "v": v, "_weight": w} for v, w in ((9, -1), (5, 1), (1, -2))]
    asked = {
        "d": algebra.distinct("v"),
        "t": algebra.top("v"),
        "c": algebra.collect("v"),
        "q": algebra.quantile("v", [0, 1]),
        "min": algebra.min("v"),
        "last": algebra.last("v"),
    }
    assert summed_up(asked, batch_of(schema, rows), [1], 0)[1] == {
        "d": 1,
        "t": [{"value": 5, "count": 1}],
        "c": {"values": [5], "more": 0},
        "q": [5, 5],
        "min": 5,
        "last": 5,
    }


def test_a_sum_outlives_a_count_that_passes_zero() -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.string()), ("w", pa.int64())])
    schema = schema.append(pa.field("_weight", pa.int8()))
    changes = [(7, 1), (None, -1), (None, 1)]
    rows = [{"k": 1, "v": "a", "w": w, "_weight": weight} for w, weight in changes]
    found = summed_up({"t": algebra.top("v", by="w")}, batch_of(schema, rows), [2])
    assert found[1]["t"] == [{"value": "a", "sum": 7}]


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9, 1e12])
def test_deviations_far_from_zero_keep_their_bits(offset: float) -> None:
    values = [offset + each for each in np.random.default_rng(5).normal(0, 8, 500).tolist()]
    wanted = oracle.stddev([{"v": value} for value in values], "v")
    for seed in range(5):
        cuts = list(range(0, 500, 37))
        found = summed_up({"s": algebra.stddev("v")}, spread(values, pa.float64(), 1), cuts, seed)
        assert found[0]["s"] == pytest.approx(wanted, rel=2**-50 if offset < 1e9 else 2**-26)


def test_deviations_of_large_integers_are_those_of_integers() -> None:
    values = [2**54 + each * 2**30 + 1 for each in (0, 2, 4, 6)]
    rows = spread(values, pa.int64(), 1)
    wanted = oracle.stddev(rows.to_pylist(), "v")
    assert summed_up({"s": algebra.stddev("v")}, rows)[0]["s"] == pytest.approx(wanted, rel=2**-50)


@pytest.mark.parametrize("number", [-math.inf, math.nan])
def test_a_table_lets_go_of_what_has_no_deviation(number: float) -> None:
    changes = [(1.0, 1), (number, 1), (3.0, 1), (number, -1)]
    rows = [{"k": 1, "v": value, "_weight": weight} for value, weight in changes]
    schema = pa.schema([("k", pa.int8()), ("v", pa.float64()), ("_weight", pa.int8())])
    asked = {"s": algebra.stddev("v")}
    assert math.isnan(summed_up(asked, batch_of(schema, rows[:3]))[1]["s"])
    assert summed_up(asked, batch_of(schema, rows))[1]["s"] == pytest.approx(math.sqrt(2))


def test_one_quantile_is_no_list() -> None:
    rows = spread(["b", "a", "c", "d"], pa.string(), 1)
    found = summed_up({"q": algebra.quantile("v", 0.5), "l": algebra.quantile("v", [1])}, rows)
    assert found[0] == {"q": "b", "l": ["d"]}


@pytest.mark.parametrize("cuts", [[], [1]])
def test_a_sum_of_top_that_leaves_its_type_names_the_key(cuts: list[int]) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.string()), ("w", pa.int64())])
    rows = [{"k": 3, "v": "b", "w": 1}] + [{"k": 4, "v": v, "w": 2**62} for v in "abb"]
    with pytest.raises(KernelError, match=r"'t' of k = 4 leaves int64"):
        summed_up({"t": algebra.top("v", by="w")}, batch_of(schema, rows), [*cuts, 3])


@pytest.mark.parametrize("schema", [SCHEMA, TABLE])
def test_specs_give_the_same_again(schema: pa.Schema) -> None:
    asked = ASKED | {"aq": algebra.approx_quantile("d", [0.5]), "l": algebra.last("s")}
    if schema is SCHEMA:
        asked |= {"ad": algebra.approx_distinct("s"), "at": algebra.approx_top("s")}
    kernel = AggregateKernel("k", asked, schema, "at")
    again = kernel_from_spec(json.loads(json.dumps(kernel.spec())))
    assert isinstance(again, AggregateKernel)
    assert again.aggregates == kernel.aggregates
    assert (again.packed, again.output) == (kernel.packed, kernel.output)
    assert kernel.portable
    summary = Summary(asked, schema, "at")
    travelled = Summary.arguments(json.loads(json.dumps(summary.spec())))
    assert Summary(**travelled).parts == summary.parts


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda: algebra.stddev("s"), InvalidInput),
        (lambda: algebra.histogram("t", [1]), InvalidInput),
        (lambda: algebra.histogram("i", []), InvalidInput),
        (lambda: algebra.histogram("i", [1, 1]), InvalidInput),
        (lambda: algebra.histogram("i", [math.nan]), InvalidInput),
        (lambda: algebra.collect("i", limit=0), InvalidInput),
        (lambda: algebra.quantile("i", 1.1), InvalidInput),
        (lambda: algebra.quantile("i", []), InvalidInput),
        (lambda: algebra.quantile("m", 0.5), InvalidInput),
        (lambda: algebra.approx_quantile("s", 0.5), InvalidInput),
        (lambda: algebra.approx_quantile("i", 0.5, error=0.0), InvalidInput),
        (lambda: algebra.approx_distinct("i", error=0.001), InvalidInput),
        (lambda: algebra.approx_top("i", 10, error=0.5), InvalidInput),
        (lambda: algebra.top("i", 0), InvalidInput),
        (lambda: algebra.top("i", by="s"), InvalidInput),
        *(
            (lambda kind=kind, more=more: getattr(algebra, kind)("nobody", *more), UnknownName)
            for kind, more in {
                "stddev": [],
                "collect": [],
                "distinct": [],
                "approx_distinct": [],
                "quantile": [0.5],
                "approx_quantile": [0.5],
                "top": [],
                "approx_top": [],
                "histogram": [[1]],
            }.items()
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Any, error: type[Exception]) -> None:
    schema = SCHEMA.append(pa.field("m", pa.map_(pa.string(), pa.int8())))
    with pytest.raises(error, match="hint"):
        AggregateKernel("k", {"a": ask()}, schema)


@pytest.mark.parametrize("kind", ["approx_distinct", "approx_top"])
def test_sketches_that_cannot_let_go_name_their_exact_twin(kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"; {kind.removeprefix('approx_')} is exact"):
        Summary({"a": getattr(algebra, kind)("i")}, TABLE)
