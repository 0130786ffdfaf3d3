import datetime as dt
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, UnknownName
from penstock.streams.algebra import UpsertKernel, kernel_from_spec
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, cut, text

DAY = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("id", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("ms")),
        ("_deleted", pa.bool_()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)

_values: dict[str, st.SearchStrategy[Any]] = {
    "name": st.none() | st.text(max_size=3),
    "id": st.none() | st.integers(0, 3),
    "tags": st.none() | st.lists(st.text(max_size=2), max_size=2),
    "at": st.integers(0, 3).map(lambda seconds: DAY + dt.timedelta(seconds=seconds)),
    "_deleted": st.sampled_from([False, None, False, True]),
}


@given(
    st.lists(st.fixed_dictionaries(_values), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.integers(0, 30), max_size=4),
    st.randoms(use_true_random=False),
    st.integers(1, 3),
    st.lists(st.sampled_from(MISHAPS), min_size=30, max_size=30),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_the_last_row_of_each_key_is_the_table(
    rows: list[Row],
    batches: list[int],
    cuts: list[int],
    random: Any,
    buckets: int,
    mishaps: list[str],
    with_offsets: bool,
) -> None:
    """Rows of a batch come in any order, as long as their offsets tell."""
    for i, row in enumerate(rows):
        row["_offset"], row["_partition"] = i, (row["id"] or 0) % 2
        if row["_deleted"]:
            row.update(name=None, tags=None)
    schema = SCHEMA if with_offsets else pa.schema(list(SCHEMA)[:-2])
    kernel = UpsertKernel("id", schema, "at")
    made = batch_of(schema, rows)
    wanted: dict[int, str] = {}
    for row in made.to_pylist():
        wanted.pop(row["id"], None)
        if not row["_deleted"]:
            plain = {name: row[name] for name in ("name", "id", "tags", "at")}
            wanted[row["id"]] = text({**plain, "_time": row["at"].replace(tzinfo=dt.UTC)})
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=buckets, piece=2)
        for batch, mishap in zip(cut(made, batches), mishaps, strict=False):
            shuffled = batch
            if with_offsets:
                order = list(range(batch.num_rows))
                random.shuffle(order)
                shuffled = batch.take(pa.array(order, pa.int64()))
            query.batch(cut(shuffled, cuts), mishap)
        found = [
            each.replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
            for each in query.table()
        ]
        assert found == sorted(wanted.values())
        assert query.state_rows() == len(wanted)


def test_an_upsert_of_the_same_row_changes_nothing(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64())])
    query = Query(tmp_path, UpsertKernel("id", schema))
    row = {"id": 1, "v": float("nan")}
    query.batch([batch_of(schema, [row])])
    assert query.batch([batch_of(schema, [row])]) == []
    assert query.batch([batch_of(schema, [{"id": 1, "v": 2.0}])])[0]["_weight"] == -1


def test_of_two_keys_both_count(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.string()), ("v", pa.int8()), ("b", pa.float64())])
    query = Query(tmp_path, UpsertKernel(["b", "a"], schema))
    rows = [
        {"a": "x", "v": 1, "b": 0.0},
        {"a": "y", "v": 2, "b": 0.0},
        {"a": "x", "v": 3, "b": -0.0},
    ]
    query.batch([batch_of(schema, rows)])
    assert query.changes == [
        {"a": "x", "v": 3, "b": 0.0, "_weight": 1},
        {"a": "y", "v": 2, "b": 0.0, "_weight": 1},
    ]


def test_a_table_may_have_nothing_but_keys(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("_deleted", pa.bool_())])
    query = Query(tmp_path, UpsertKernel("id", schema))
    query.batch([batch_of(schema, [{"id": 1, "_deleted": False}])])
    query.batch([batch_of(schema, [{"id": 1, "_deleted": True}, {"id": 2, "_deleted": True}])])
    assert query.changes == [{"id": 1, "_weight": 1}, {"id": 1, "_weight": -1}]


def test_a_spec_gives_the_same_kernel() -> None:
    kernel = UpsertKernel("id", SCHEMA, "at")
    again = kernel_from_spec(json.loads(json.dumps(kernel.spec())))
    assert again.spec() == kernel.spec()
    assert (again.packed, again.output) == (kernel.packed, kernel.output)
    assert kernel.needed == ("id", "name", "tags", "at", "_deleted", "_offset", "_partition")


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no kernel 'magic'"):
        kernel_from_spec({"kernel": "magic"})


@pytest.mark.parametrize(("key", "time"), [("nobody", None), ("id", "never")])
def test_unknown_columns_are_refused(key: str, time: str | None) -> None:
    with pytest.raises(UnknownName, match="hint"):
        UpsertKernel(key, SCHEMA, time)


def test_changes_are_no_upserts() -> None:
    with pytest.raises(InvalidInput, match="no upserts"):
        UpsertKernel("id", SCHEMA.append(pa.field("_weight", pa.int8())))
    with pytest.raises(InvalidInput, match="has a key"):
        UpsertKernel([], SCHEMA)
