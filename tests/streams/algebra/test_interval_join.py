"""Joins of streams against loops over all pairs, at every clock, in whatever order rows arrive."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT
from penstock.streams.algebra.joins import streams
from penstock.streams.algebra.joins.intervals import IntervalJoinKernel
from penstock.streams.algebra.joins.pairs import KINDS
from penstock.streams.algebra.joins.sides import LEFT, RIGHT
from penstock.streams.algebra.joins.streams import StreamJoinKernel, are_streams
from penstock.streams.algebra.kernel import END
from penstock.streams.state import chains
from tests.streams.algebra.batches import MISHAPS, Query

SCHEMAS = (
    pa.schema({"k": pa.string(), "at": TIME_TYPE, "v": pa.int64()}),
    pa.schema({"j": pa.string(), "seen": TIME_TYPE, "w": pa.string()}),
)
Element = tuple[Any, ...]  # key, time, value


def kernel_for(
    how: str, within: tuple[int, int], correct_for: int = 0, weighted: bool = False
) -> IntervalJoinKernel | StreamJoinKernel:
    left, right = (
        each.append(pa.field(WEIGHT, pa.int32())) if weighted else each for each in SCHEMAS
    )
    on = [("k", "j")]
    named: Any = {"left_time": "at", "right_time": "seen", "correct_for": correct_for}
    if how == "inner" and are_streams(left, right):
        return StreamJoinKernel(on, left, right, within=within, **named)
    return IntervalJoinKernel(on, left, right, *within, how, **named)


def packed(
    kernel: IntervalJoinKernel | StreamJoinKernel, side: int, rows: list[Element]
) -> pa.RecordBatch:
    schema = kernel.sides[side].schema
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, row, strict=False)) for row in rows], schema
    )
    return kernel.sides[side].partial(batch)


def joined(
    left: list[Element], right: list[Element], how: str, within: tuple[int, int], clock: int
) -> Counter[Element]:
    """What has come out at the clock, with the event time."""
    lowest, highest = within

    def match(one: Element, other: Element) -> bool:
        is_near: bool = lowest <= other[1] - one[1] <= highest
        return is_near and one[0] is not None and one[0] == other[0]

    rows: list[Element] = []
    for one in left:
        partners = [other for other in right if match(one, other)]
        if how in ("inner", "left", "right", "full"):
            rows += [(*one, *other, max(one[1], other[1])) for other in partners]
        last = one[1] + highest
        if clock > last and not partners and how in ("left", "full", "anti"):
            nothing = () if how == "anti" else (None, None, None)
            rows.append((*one, *nothing, max(one[1], last)))
        if how == "semi" and partners:
            # The time from which it was sure that there is one is not told apart.
            rows.append((*one, max(one[1], last)))
    for other in right if how in ("right", "full") else ():
        last = other[1] - lowest
        if clock > last and not any(match(one, other) for one in left):
            rows.append((None, None, None, *other, max(other[1], last)))
    return Counter(rows)


def as_tuple(row: dict[str, Any]) -> Element:
    return tuple(
        round(value.timestamp() * 1_000_000) if name in ("at", "seen", TIME) and value else value
        for name, value in row.items()
        if name != WEIGHT
    )


elements = st.tuples(
    st.none() | st.sampled_from("ab"), st.integers(-8, 25), st.sampled_from([None, 1, 2])
)


@st.composite
def arrivals(draw: Any) -> tuple[int, list[tuple[list[Element], list[Element], int]]]:
    """Batches of left and right rows and the clock of each; no row is late."""
    correct_for = draw(st.sampled_from([0, 3, 100]))
    clock = -1000
    batches = []
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(st.lists(elements, max_size=6)), draw(st.lists(elements, max_size=6))
        left, right = ([row for row in some if row[1] >= clock - correct_for] for some in rows)
        clock = max(clock, draw(st.integers(-10, 30)))
        batches.append((left, [(k, t, w and str(w)) for k, t, w in right], clock))
    return correct_for, [*batches, ([], [], END)]


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=40)
@given(
    arriving=arrivals(),
    within=st.sampled_from([(0, 0), (0, 5), (-3, 2), (-9, -4), (4, 6)]),
    mishap=st.sampled_from(MISHAPS),
    buckets=st.integers(1, 2),
)
def test_at_every_clock_the_changes_add_up_to_the_join(
    how: str,
    arriving: tuple[int, list[tuple[list[Element], list[Element], int]]],
    within: tuple[int, int],
    mishap: str,
    buckets: int,
) -> None:
    correct_for, batches = arriving
    kernel = kernel_for(how, within, correct_for)
    everything: tuple[list[Element], list[Element]] = ([], [])
    result: Counter[Element] = Counter()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "_PIECE", 2)
        patch.setattr(streams, "_PIECE", 3)
        patch.setattr(streams, "_MOST", 16)
        query = Query(Path(folder), kernel, buckets=buckets)
        for left, right, clock in batches:
            both = [packed(kernel, LEFT, left), packed(kernel, RIGHT, right)]
            for row in query.packed_batch(both, mishap, clock):
                assert kernel.takes_back or row[WEIGHT] == 1
                result[as_tuple(row)] += row[WEIGHT]
            everything[LEFT].extend(left)
            everything[RIGHT].extend(right)
            expected = joined(*everything, how, within, clock)
            assert {row: count for row, count in result.items() if count} == expected
        assert query.state_rows() == 0


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=25)
@given(data=st.data(), within=st.sampled_from([(0, 5), (-3, 2)]))
def test_rows_that_go_take_their_pairs_with_them(
    how: str, data: Any, within: tuple[int, int]
) -> None:
    kernel = kernel_for(how, within, 1000, weighted=True)
    tables: tuple[list[Element], list[Element]] = ([], [])
    result: Counter[Element] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel)
        for clock in sorted(data.draw(st.lists(st.integers(-10, 30), min_size=1, max_size=4))):
            both = []
            for side in (LEFT, RIGHT):
                came = [
                    (k, t, w and (str(w) if side == RIGHT else w))
                    for k, t, w in data.draw(st.lists(elements, max_size=4))
                ]
                gone = [each for each in tables[side] if data.draw(st.booleans())]
                for element in gone:
                    tables[side].remove(element)
                tables[side].extend(came)
                rows = [(*each, 1) for each in came] + [(*each, -1) for each in gone]
                both.append(packed(kernel, side, rows))
            for row in query.packed_batch(both, clock=clock):
                result[as_tuple(row)] += row[WEIGHT]
            expected = joined(*tables, how, within, clock)
            assert {row: count for row, count in result.items() if count} == expected


def test_what_is_too_late_is_counted() -> None:
    kernel = kernel_for("inner", (0, 5), 3)
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel)
        query.packed_batch([packed(kernel, LEFT, [("a", 10, 1)])], clock=20)
        late = packed(kernel, RIGHT, [("a", 12, "x"), ("a", 16, "y"), ("a", 17, "z")])
        assert query.packed_batch([late], clock=20) == []
        with query._open(0) as state:
            assert state.counts.late == 2


def test_an_interval_that_holds_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing lies"):
        kernel_for("inner", (5, 0))
