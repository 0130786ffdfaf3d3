"""Joins of tables against loops over all pairs, whatever changes and however it is cut."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, UnknownName
from penstock.streams.algebra import kernel_from_spec
from penstock.streams.algebra.changes import DELETED, WEIGHT
from penstock.streams.algebra.joins import streams
from penstock.streams.algebra.joins.pairs import KINDS
from penstock.streams.algebra.joins.sides import LEFT, RIGHT
from penstock.streams.algebra.joins.streams import StreamJoinKernel
from penstock.streams.algebra.joins.tables import TableJoinKernel
from penstock.streams.state import chains
from tests.streams.algebra.batches import MISHAPS, Query
from tests.streams.algebra.oracle import unsigned_zeros

LEFT_SCHEMA = pa.schema({"k": pa.int32(), "t": pa.string(), "v": pa.float64(), WEIGHT: pa.int32()})
RIGHT_SCHEMA = pa.schema({"j": pa.int64(), "u": pa.string(), "w": pa.list_(pa.string())})
RIGHT_SCHEMA = RIGHT_SCHEMA.append(pa.field(WEIGHT, pa.int32()))
STAMPED = pa.schema({"j": pa.int64(), "at": pa.timestamp("us", "UTC")})
ONS = {
    "number": [("k", "j")],
    "text": [("t", "u")],
    "both": [("t", "u"), ("k", "j")],
    "none": [],
}

left_rows = st.tuples(
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from("ab"),
    st.sampled_from([0.5, 0.0, -0.0]),
)
right_rows = st.tuples(
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from("ab"),
    st.sampled_from([None, (), ("x", None)]),
)
ROWS = {LEFT: left_rows, RIGHT: right_rows}
Element = tuple[Any, ...]
Change = tuple[int, Element, int]  # side, row, weight


@st.composite
def histories(draw: Any) -> list[list[Change]]:
    """Batches of changes in which no row goes that is not there."""
    there: tuple[list[Element], list[Element]] = ([], [])
    batches = []
    for _ in range(draw(st.integers(1, 5))):
        batch: list[Change] = []
        for _ in range(draw(st.integers(0, 8))):
            side = draw(st.sampled_from([LEFT, RIGHT]))
            if there[side] and draw(st.booleans()):
                gone = draw(st.sampled_from(there[side]))
                there[side].remove(gone)
                batch.append((side, gone, -1))
            else:
                came = draw(ROWS[side])
                there[side].append(came)
                batch.append((side, came, 1))
        batches.append(batch)
    return batches


def joined(
    left: Iterable[Element],
    right: Iterable[Element],
    on: list[tuple[str, str]],
    how: str,
    null_safe: bool,
) -> Counter[str]:
    places = [(LEFT_SCHEMA.names.index(a), RIGHT_SCHEMA.names.index(b)) for a, b in on]
    left, right = list(left), list(right)

    def match(one: Element, other: Element) -> bool:
        return all(one[a] == other[b] and (null_safe or one[a] is not None) for a, b in places)

    rows: list[Element] = []
    for one in left:
        partners = [other for other in right if match(one, other)]
        if how in ("inner", "left", "right", "full"):
            rows += [one + other for other in partners]
        if how in ("left", "full") and not partners:
            rows.append((*one, None, None, None))
        if (how == "semi" and partners) or (how == "anti" and not partners):
            rows.append(one)
    if how in ("right", "full"):
        rows += [
            (None, None, None, *other)
            for other in right
            if not any(match(one, other) for one in left)
        ]
    return Counter(map(repr, rows))


def batch_of(side: int, changes: list[Change]) -> pa.RecordBatch:
    schema = (LEFT_SCHEMA, RIGHT_SCHEMA)[side]
    rows = [
        dict(zip(schema.names, [*row, weight], strict=True))
        for of, row, weight in changes
        if of == side
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def as_tuple(row: dict[str, Any]) -> Element:
    values = [value for name, value in row.items() if name != WEIGHT]
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=30)
@given(
    on=st.sampled_from(sorted(ONS)),
    history=histories(),
    null_safe=st.booleans(),
    mishap=st.sampled_from(MISHAPS),
    buckets=st.integers(1, 3),
)
def test_the_changes_add_up_to_the_join_of_the_tables(
    how: str, on: str, history: list[list[Change]], null_safe: bool, mishap: str, buckets: int
) -> None:
    kernel = TableJoinKernel(ONS[on], LEFT_SCHEMA, RIGHT_SCHEMA, how, null_safe=null_safe)
    tables: tuple[Counter[Element], Counter[Element]] = (Counter(), Counter())
    result: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "_PIECE", 3)
        query = Query(Path(folder), kernel, buckets=buckets)
        for batch in history:
            cuts = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            packed = [
                kernel.sides[side].partial(batch_of(side, cut))
                for cut in cuts
                for side in (LEFT, RIGHT)
            ]
            changes = query.packed_batch(packed, mishap)
            seen = Counter(repr(as_tuple(row)) for row in changes)
            # A row of nulls that has a partner looks like none.
            assert null_safe or on == "none" or max(seen.values(), default=1) == 1, (
                "a row came out twice"
            )
            for row in changes:
                result[repr(as_tuple(row))] += row[WEIGHT]
            for side, element, weight in batch:
                # A row goes by either zero, whichever it came with.
                tables[side][unsigned_zeros(element)] += weight
            left, right = (table.elements() for table in tables)
            expected = joined(left, right, ONS[on], how, null_safe)
            assert {row: count for row, count in result.items() if count} == expected
        stored = sum(
            count > 0 and (null_safe or not lacks_key(on, side, row))
            for side, table in enumerate(tables)
            for row, count in table.items()
        )
        assert query.state_rows() == stored


def only_growing() -> st.SearchStrategy[list[list[Change]]]:
    change = st.sampled_from([LEFT, RIGHT]).flatmap(
        lambda side: st.tuples(st.just(side), ROWS[side], st.just(1))
    )
    return st.lists(st.lists(change, max_size=8), max_size=4)


@pytest.mark.parametrize("how", ["inner", "semi"])
@settings(max_examples=60)
@given(
    on=st.sampled_from(sorted(ONS)),
    history=only_growing(),
    null_safe=st.booleans(),
    mishap=st.sampled_from(MISHAPS),
    buckets=st.integers(1, 3),
)
def test_streams_come_together_row_by_row(
    how: str, on: str, history: list[list[Change]], null_safe: bool, mishap: str, buckets: int
) -> None:
    """Equal rows are as many as there are pairs of them, as nothing says a weight."""
    left, right = (
        each.remove(each.get_field_index(WEIGHT)) for each in (LEFT_SCHEMA, RIGHT_SCHEMA)
    )
    kernel: StreamJoinKernel | TableJoinKernel
    if how == "inner":
        kernel = StreamJoinKernel(ONS[on], left, right, null_safe=null_safe)
    else:
        kernel = TableJoinKernel(ONS[on], left, right, how, null_safe=null_safe)
    rows: tuple[list[Element], list[Element]] = ([], [])
    result: Counter[str] = Counter()
    assert not kernel.takes_back
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "_PIECE", 2)
        patch.setattr(streams, "_PIECE", 3)
        patch.setattr(streams, "_MOST", 16)
        query = Query(Path(folder), kernel, buckets=buckets)
        for batch in history:
            packed = [
                kernel.sides[side].partial(batch_of(side, batch).drop_columns([WEIGHT]))
                for side in (LEFT, RIGHT)
            ]
            for row in query.packed_batch(packed, mishap):
                assert row[WEIGHT] == 1
                result[repr(as_tuple(row))] += 1
            for side, element, _ in batch:
                rows[side].append(element)
            assert result == joined(*rows, ONS[on], how, null_safe)


def test_what_comes_together_is_kept_together() -> None:
    """A row of state for each key and batch, however many rows it brings."""
    schemas = pa.schema({"k": pa.int64(), "v": pa.string()}), pa.schema({"j": pa.int64()})
    kernel = StreamJoinKernel([("k", "j")], *schemas)
    rows = [{"k": number % 2, "v": str(number)} for number in range(1_000)]
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel)
        for _ in range(3):
            batch = pa.RecordBatch.from_pylist(rows, schemas[LEFT])
            assert query.packed_batch([kernel.sides[LEFT].partial(batch)]) == []
        assert query.state_rows() == 6
        one = pa.RecordBatch.from_pylist([{"j": 1}], schemas[RIGHT])
        found = query.packed_batch([kernel.sides[RIGHT].partial(one)])
    assert Counter(row["v"] for row in found) == Counter(
        {str(number): 3 for number in range(1, 1_000, 2)}
    )


def lacks_key(on: str, side: int, row: Element) -> bool:
    schema = (LEFT_SCHEMA, RIGHT_SCHEMA)[side]
    return any(row[schema.names.index(pair[side])] is None for pair in ONS[on])


def test_a_side_is_made_again_from_its_spec() -> None:
    kernel = TableJoinKernel(ONS["both"], LEFT_SCHEMA, RIGHT_SCHEMA)
    for side in (LEFT, RIGHT):
        again = kernel_from_spec(json.loads(json.dumps(kernel.sides[side].spec())))
        rows = batch_of(side, [(LEFT, (1, "a", 0.5), 1), (RIGHT, (1, "a", ("x",)), 1)])
        assert again.partial(rows).equals(kernel.sides[side].partial(rows))


def test_the_time_of_a_pair_is_the_later_one() -> None:
    at = pa.timestamp("us", "UTC")
    kernel = TableJoinKernel(
        [("k", "j")],
        pa.schema({"k": pa.int64(), "at": at}),
        pa.schema({"j": pa.int64(), "since": at}),
        "full",
        left_time="at",
        right_time="since",
    )
    rows = [
        pa.RecordBatch.from_pylist([{"k": 1, "at": 5}, {"k": 2, "at": 7}], kernel.sides[0].schema),
        pa.RecordBatch.from_pylist([{"j": 1, "since": 9}], kernel.sides[1].schema),
    ]
    with tempfile.TemporaryDirectory() as folder:
        packed = [side.partial(some) for side, some in zip(kernel.sides, rows, strict=True)]
        given_out = Query(Path(folder), kernel).packed_batch(packed)
    assert {row["k"]: row["_time"].microsecond for row in given_out} == {1: 9, 2: 7}


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no 'outer' join"):
        TableJoinKernel(ONS["text"], LEFT_SCHEMA, RIGHT_SCHEMA, "outer")
    with pytest.raises(InvalidInput, match="cannot be compared"):
        TableJoinKernel([("k", "u")], LEFT_SCHEMA, RIGHT_SCHEMA)
    with pytest.raises(UnknownName):
        TableJoinKernel([("k", "x")], LEFT_SCHEMA, RIGHT_SCHEMA)
    deleting = LEFT_SCHEMA.append(pa.field(DELETED, pa.bool_()))
    with pytest.raises(InvalidInput, match="delete others"):
        TableJoinKernel(ONS["text"], deleting, RIGHT_SCHEMA)
    with pytest.raises(InvalidInput, match="within a time"):
        StreamJoinKernel([("k", "j")], pa.schema({"k": pa.int64()}), STAMPED, right_time="at")
    with pytest.raises(InvalidInput, match="both sides"):
        TableJoinKernel([("k", "k")], LEFT_SCHEMA, LEFT_SCHEMA)
