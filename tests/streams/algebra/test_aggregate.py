import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError, UnknownName
from penstock.streams import algebra
from penstock.streams.algebra import AggregateKernel, kernel_from_spec
from penstock.streams.algebra.rows import groups
from penstock.streams.state import rows as state_rows
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, constant_hashes, cut, text
from tests.streams.algebra.oracle import aggregated
from tests.streams.state.samples import SAMPLES

DAY = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("g", pa.float64()),
        ("i", pa.int64()),
        ("d", pa.float64()),
        ("p", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("n", pa.struct({"x": pa.float32(), "y": pa.list_(pa.string())})),
        ("at", pa.timestamp("us", "UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)
ASKED: dict[str, tuple[str, str | None]] = {
    "rows": ("count", None),
    **{
        f"{kind}_{column}": (kind, column)
        for kind in ("count", "sum", "mean", "min", "max", "first", "last")
        for column in (
            ("i", "d", "p") if kind in ("sum", "mean") else ("i", "d", "p", "s", "b", "n")
        )
    },
}
COUNTED = {name: each for name, each in ASKED.items() if each[0] in ("count", "sum", "mean")}

_sane = st.floats(-1e9, 1e9).map(lambda value: round(value, 4) + 0.0)
_values: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from(["", "a", "ab", None]),
    "g": st.sampled_from([0.0, -0.0, math.nan, None]),
    "i": st.none() | st.integers(-(2**40), 2**40),
    "d": st.none() | _sane | st.sampled_from([math.nan, math.inf, -math.inf, 0.1]),
    "p": st.none() | st.decimals(-(10**7), 10**7, places=2),
    "s": st.none() | st.text(max_size=3),
    "b": st.none() | st.booleans(),
    "n": st.none()
    | st.fixed_dictionaries(
        {
            "x": st.none() | st.floats(width=32),
            "y": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=2),
        }
    ),
    "at": st.integers(0, 3).map(lambda seconds: DAY + dt.timedelta(seconds=seconds)),
    "_partition": st.integers(0, 1),
    "_offset": st.integers(0, 3),
}
_rows = st.lists(st.fixed_dictionaries(_values), max_size=25)
_cuts = st.lists(st.integers(0, 25), max_size=4)
_mishaps = st.lists(st.sampled_from(MISHAPS), min_size=30, max_size=30)


def asked(wanted: dict[str, tuple[str, str | None]]) -> dict[str, algebra.Aggregate]:
    return {
        name: getattr(algebra, kind)(*([column] if column else []))
        for name, (kind, column) in wanted.items()
    }


def expected(rows: list[Row], wanted: dict[str, tuple[str, str | None]]) -> list[str]:
    return sorted(text(row) for row in aggregated(rows, ["k", "g"], wanted))


def run(
    kernel: AggregateKernel,
    rows: pa.RecordBatch,
    batches: list[int],
    cuts: list[int],
    buckets: int,
    mishaps: list[str],
) -> list[str]:
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=buckets, piece=2)
        for batch, mishap in zip(cut(rows, batches), mishaps, strict=False):
            query.batch(cut(batch, cuts), mishap)
        return query.table()


@given(_rows, _cuts, _cuts, st.integers(1, 3), _mishaps)
@settings(deadline=None, max_examples=40)
def test_rows_that_stay_add_up_to_the_batch_answer(
    rows: list[Row], batches: list[int], cuts: list[int], buckets: int, mishaps: list[str]
) -> None:
    kernel = AggregateKernel(["k", "g"], asked(ASKED), SCHEMA, "at")
    made = batch_of(SCHEMA, rows)
    wanted = {**ASKED, "_time": ("max", "at")}
    assert run(kernel, made, batches, cuts, buckets, mishaps) == expected(made.to_pylist(), wanted)


@given(_rows, st.data(), _cuts, _cuts, st.integers(1, 3), _mishaps)
@settings(deadline=None, max_examples=40)
def test_tables_add_up_to_the_batch_answer(
    rows: list[Row],
    data: st.DataObject,
    batches: list[int],
    cuts: list[int],
    buckets: int,
    mishaps: list[str],
) -> None:
    """Rows are taken back at any later time, and may also come more than once at a time."""
    schema = SCHEMA.append(pa.field("_weight", pa.int8()))
    kernel = AggregateKernel(["k", "g"], asked(COUNTED), schema)
    changes: list[Row] = []
    for row in rows:
        weight = data.draw(st.integers(1, 3))
        changes.insert(data.draw(st.integers(0, len(changes))), {**row, "_weight": weight})
    for row in list(changes):
        taken = data.draw(st.integers(0, row["_weight"]))
        place = data.draw(st.integers(changes.index(row) + 1, len(changes)))
        if taken:
            changes.insert(place, {**row, "_weight": -taken})
    made = batch_of(schema, changes)
    assert run(kernel, made, batches, cuts, buckets, mishaps) == expected(made.to_pylist(), COUNTED)


def table_of(folder: Path, kernel: AggregateKernel, *batches: list[Row]) -> list[Row]:
    query = Query(folder, kernel)
    for rows in batches:
        query.batch([batch_of(kernel.schema, rows)])
    return query.changes


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("collide", [False, True])
def test_keys_of_every_type(
    tmp_path: Path, name: str, collide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if collide:
        monkeypatch.setattr(groups, "hashes_of", constant_hashes)
        monkeypatch.setattr(state_rows, "hashes_of", constant_hashes)
    kind, values = SAMPLES[name]
    schema = pa.schema([("k", kind), ("v", pa.int64())])
    kernel = AggregateKernel("k", asked({"n": ("count", None), "t": ("sum", "v")}), schema)
    rows = [{"k": key, "v": i} for i, key in enumerate([*values, None])]
    query = Query(tmp_path, kernel)
    query.batch([batch_of(schema, rows), batch_of(schema, rows[::-1])])
    query.batch([batch_of(schema, rows[:1])])
    made = batch_of(schema, rows).to_pylist()
    wanted = [{"k": row["k"], "n": 2, "t": 2 * row["v"]} for row in made]
    wanted[0]["n"] += 1
    assert query.table() == sorted(map(text, wanted))


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"null", "interval"}))
def test_values_of_every_type_are_picked(tmp_path: Path, name: str) -> None:
    kind, values = SAMPLES[name]
    schema = pa.schema([("k", pa.int8()), ("v", kind), ("_offset", pa.int64())])
    picked = asked({"f": ("first", "v"), "l": ("last", "v")})
    kernel = AggregateKernel("k", picked, schema)
    array = pa.array([None, *values, *values[::-1], None], kind)
    offsets = pa.array(range(len(array)))
    rows = pa.record_batch([pa.nulls(len(array), pa.int8()), array, offsets], schema=schema)
    query = Query(tmp_path, kernel)
    for batch in (rows.slice(3), rows.slice(0, 3)):
        query.batch([batch])
    first = array.slice(1, 1).to_pylist()[0]
    assert query.table() == [text({"k": None, "f": first, "l": first})]


@pytest.mark.parametrize(
    "name", sorted(set(SAMPLES) - {"null", "interval", *filter(lambda n: "map" in n, SAMPLES)})
)
def test_values_of_every_type_are_compared(tmp_path: Path, name: str) -> None:
    kind, values = SAMPLES[name]
    schema = pa.schema([("k", pa.int8()), ("v", kind)])
    asked_for: dict[str, tuple[str, str | None]] = {
        kind: (kind, "v") for kind in ("min", "max", "first", "last")
    }
    kernel = AggregateKernel("k", asked(asked_for), schema)
    rows = [{"k": 1, "v": value} for value in [*values, None, *values[::-1]]]
    query = Query(tmp_path, kernel)
    made = batch_of(schema, rows)
    for batch in cut(made, [1, len(values)]):
        query.batch([batch])
    (wanted,) = aggregated(made.to_pylist(), ["k"], asked_for)
    assert query.table() == [text(wanted)]


def test_a_change_is_the_old_row_taken_back_and_the_new_one(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    kernel = AggregateKernel("k", asked({"top": ("max", "v")}), schema)
    query = Query(tmp_path, kernel)
    assert query.batch([batch_of(schema, [{"k": "a", "v": 1}])]) == [
        {"k": "a", "top": 1, "_weight": 1}
    ]
    assert query.batch([batch_of(schema, [{"k": "a", "v": 0}])]) == []
    assert query.batch([]) == []
    assert query.batch([batch_of(schema, [{"k": "a", "v": 5}])]) == [
        {"k": "a", "top": 1, "_weight": -1},
        {"k": "a", "top": 5, "_weight": 1},
    ]


def test_a_key_without_rows_disappears_and_leaves_no_state(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.float64()), ("_weight", pa.int32())])
    kernel = AggregateKernel("k", asked({"t": ("sum", "v")}), schema)
    rows = [{"k": "a", "v": value, "_weight": 1} for value in (0.1, 0.2, math.inf, math.nan)]
    query = Query(tmp_path, kernel)
    query.batch([batch_of(schema, rows)])
    back = [{**row, "_weight": -1} for row in rows]
    query.batch([batch_of(schema, back[2:])])
    assert query.changes[-1]["t"] == pytest.approx(0.3)
    query.batch([batch_of(schema, back[:2])])
    assert query.changes[-1]["_weight"] == -1
    assert query.table() == []
    assert query.state_rows() == 0


def test_a_row_may_be_taken_back_before_it_comes(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("_weight", pa.int32())])
    kernel = AggregateKernel("k", asked({"t": ("sum", "v")}), schema)
    query = Query(tmp_path, kernel)
    for value, weight in ((5, -1), (7, 1)):
        assert query.batch([batch_of(schema, [{"k": "a", "v": value, "_weight": weight}])]) == []
    query.batch([batch_of(schema, [{"k": "a", "v": 5, "_weight": 1}])])
    assert query.changes == [{"k": "a", "t": 7, "_weight": 1}]


_LARGE = Decimal("9" * 38)


@pytest.mark.parametrize(
    ("kind", "values", "left"),
    [
        (pa.int64(), [2**63 - 1, 1], "int64"),
        (pa.int64(), [-(2**63), -1], "int64"),
        (pa.decimal128(38, 0), [_LARGE, _LARGE], "decimal"),
        (pa.decimal128(38, 0), [_LARGE, Decimal(1)], "decimal"),
        (pa.decimal128(38, 0), [Decimal("-" + "9" * 38), Decimal(-1)], "decimal"),
    ],
)
@pytest.mark.parametrize("batches", [1, 2])
def test_a_sum_that_leaves_its_type_is_refused_with_its_key(
    tmp_path: Path, kind: pa.DataType, values: list[Any], left: str, batches: int
) -> None:
    schema = pa.schema([("k", pa.string()), ("v", kind)])
    kernel = AggregateKernel("k", asked({"total": ("sum", "v")}), schema)
    rows = [{"k": "ok", "v": values[1]}, *({"k": "bad", "v": value} for value in values)]
    query = Query(tmp_path, kernel)
    *before, last = cut(batch_of(schema, rows), [2] if batches == 2 else [])
    for batch in before:
        query.batch([batch])
    with pytest.raises(KernelError, match=rf"'total' of k = 'bad' leaves {left}"):
        query.batch([last])


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(38, 0)])
def test_a_weight_that_takes_a_row_out_of_its_type_is_refused(
    tmp_path: Path, kind: pa.DataType
) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", kind), ("_weight", pa.int32())])
    kernel = AggregateKernel("k", asked({"total": ("sum", "v")}), schema)
    value = 2**62 if kind == pa.int64() else _LARGE
    with pytest.raises(KernelError, match="'total' of k = 3 leaves"):
        kernel.partial(batch_of(schema, [{"k": 3, "v": value, "_weight": 4}]))


def test_a_change_without_weight_is_refused() -> None:
    schema = pa.schema([("k", pa.int8()), ("_weight", pa.int32())])
    kernel = AggregateKernel("k", asked({"n": ("count", None)}), schema)
    with pytest.raises(KernelError, match="1 changes have no _weight"):
        kernel.partial(batch_of(schema, [{"k": 3, "_weight": None}, {"k": 3, "_weight": 1}]))


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("ms"), pa.timestamp("us", "UTC")])
def test_the_time_may_be_a_date(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.int8()), ("on", kind)])
    kernel = AggregateKernel("k", asked({"l": ("last", "v")}), schema, "on")
    days = [DAY, DAY + dt.timedelta(days=1), None]
    rows = [{"k": 1, "v": i, "on": day} for i, day in enumerate(days)]
    assert table_of(tmp_path, kernel, rows) == [
        {"k": 1, "l": 1, "_time": DAY + dt.timedelta(days=1), "_weight": 1}
    ]


def test_decimals_get_room_and_means_are_rounded_half_up(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.decimal64(5, 2))])
    wanted: dict[str, tuple[str, str | None]] = {"t": ("sum", "v"), "m": ("mean", "v")}
    kernel = AggregateKernel("k", asked(wanted), schema)
    assert kernel.output.field("t").type == pa.decimal128(15, 2)
    assert kernel.output.field("m").type == pa.decimal128(9, 6)
    rows = [{"k": 1, "v": Decimal(v)} for v in ("0.01", "0.01", "0.00")]
    rows += [{"k": 2, "v": Decimal(v)} for v in ("-999.99", "-999.98")]
    changes = table_of(tmp_path, kernel, rows)
    assert [(row["t"], row["m"]) for row in changes] == [
        (Decimal("0.02"), Decimal("0.006667")),
        (Decimal("-1999.97"), Decimal("-999.985000")),
    ]


def test_the_order_of_doubles_does_not_show(tmp_path: Path) -> None:
    values = [1e16, 1.0, -1e16, 1e-8, 0.1, 3.0, -0.1]
    schema = pa.schema([("k", pa.int8()), ("v", pa.float64())])
    kernel = AggregateKernel("k", asked({"t": ("sum", "v")}), schema)
    for i in range(len(values)):
        turned = values[i:] + values[:i]
        batches = [[{"k": 1, "v": value}] for value in turned]
        assert table_of(tmp_path / str(i), kernel, *batches)[-1]["t"] == math.fsum(values)


def test_a_mean_of_large_integers_is_exact(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.int64())])
    kernel = AggregateKernel("k", asked({"m": ("mean", "v")}), schema)
    values = [2**63 - 1, 2**53 + 1, -(2**63), 2**53 + 2]
    changes = table_of(tmp_path, kernel, [{"k": 1, "v": value} for value in values])
    assert changes[-1]["m"] == (2**54 + 2) / 4


def test_one_row_of_a_key_is_shipped() -> None:
    schema = pa.schema(
        [("k", pa.int8()), ("v", pa.int64()), ("w", pa.int64()), ("_offset", pa.int64())]
    )
    kernel = AggregateKernel("k", asked({"v": ("last", "v"), "w": ("last", "w")}), schema)
    rows = [{"k": 1, "v": i, "w": i if i != 9 else None, "_offset": i} for i in range(10)]
    (packed,) = kernel.partial(batch_of(schema, rows)).to_pylist()
    assert (packed["v"], packed["w"]) == (9, 8)
    (packed,) = kernel.partial(batch_of(schema, rows[:9])).to_pylist()
    assert packed["(last places)"] is None


def test_what_it_reads_is_what_it_needs() -> None:
    kernel = AggregateKernel("k", asked({"t": ("sum", "i"), "n": ("count", None)}), SCHEMA, "at")
    assert kernel.needed == ("k", "i", "at")
    kernel = AggregateKernel("k", asked({"l": ("last", "s")}), SCHEMA, "at")
    assert kernel.needed == ("k", "s", "at", "_partition", "_offset")


def test_a_spec_gives_the_same_kernel() -> None:
    kernel = AggregateKernel(["k", "g"], asked(ASKED), SCHEMA, "at")
    again = kernel_from_spec(json.loads(json.dumps(kernel.spec())))
    assert isinstance(again, AggregateKernel)
    assert again.spec() == kernel.spec()
    assert again.aggregates == kernel.aggregates
    assert (again.packed, again.output) == (kernel.packed, kernel.output)


@pytest.mark.parametrize(
    ("by", "aggregates", "error"),
    [
        ([], {"n": ("count", None)}, InvalidInput),
        (["k", "k"], {"n": ("count", None)}, InvalidInput),
        (["k"], {"k": ("count", None)}, InvalidInput),
        (["k"], {"_time": ("count", None)}, InvalidInput),
        (["nobody"], {"n": ("count", None)}, UnknownName),
        (["k"], {"n": ("count", "nobody")}, UnknownName),
        (["k"], {"n": ("sum", "nobody")}, UnknownName),
        (["k"], {"n": ("last", "nobody")}, UnknownName),
        (["k"], {"n": ("sum", "s")}, InvalidInput),
        (["k"], {"n": ("mean", "b")}, InvalidInput),
        (["k"], {"n": ("max", "m")}, InvalidInput),
        (["k"], {"n": ("sum", "u")}, InvalidInput),
    ],
)
def test_what_cannot_be_asked_is_refused(
    by: list[str], aggregates: dict[str, tuple[str, str | None]], error: type[Exception]
) -> None:
    schema = SCHEMA.append(pa.field("m", pa.map_(pa.string(), pa.int8())))
    schema = schema.append(pa.field("u", pa.uint64()))
    with pytest.raises(error, match="hint"):
        AggregateKernel(by, asked(aggregates), schema)


@pytest.mark.parametrize(("kind", "turn"), [("last", 1), ("first", -1)])
def test_values_picked_from_different_rows_keep_their_own_place(
    tmp_path: Path, kind: str, turn: int
) -> None:
    schema = pa.schema(
        [("k", pa.int8()), ("v", pa.int8()), ("w", pa.int8()), ("_offset", pa.int64())]
    )
    kernel = AggregateKernel("k", asked({"v": (kind, "v"), "w": (kind, "w")}), schema)

    def row(place: int, v: int | None, w: int | None) -> Row:
        return {"k": 1, "v": v, "w": w, "_offset": turn * place}

    query = Query(tmp_path, kernel)
    for rows in ([row(1, 1, 1), row(5, 5, None)], [row(3, 3, 3)], [row(2, 2, 2)], [row(4, 4, 4)]):
        query.batch([batch_of(schema, rows)], "lost arena")
    assert [(each["v"], each["w"]) for each in query.changes if each["_weight"] == 1] == [
        (5, 1),
        (5, 3),
        (5, 4),
    ]


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_a_table_lets_go_of_what_is_not_finite(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.float64()), ("_weight", pa.int8())])
    kernel = AggregateKernel("k", asked({"t": (kind, "v")}), schema)
    changes = [(2.0, 1), (math.inf, 1), (-math.inf, 1), (math.inf, -1), (-math.inf, -1)]
    query = Query(tmp_path, kernel)
    for value, weight in changes:
        query.batch([batch_of(schema, [{"k": 1, "v": value, "_weight": weight}])])
    results = [each["t"] for each in query.changes if each["_weight"] == 1]
    assert repr(results) == repr([2.0, math.inf, math.nan, -math.inf, 2.0])
