"""Events and the rows that were valid when they happened, against a look at all versions."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import DELETED, OFFSET, TIME_TYPE, WEIGHT
from penstock.streams.algebra.joins import waiting as waiting_events
from penstock.streams.algebra.joins.sides import LEFT, RIGHT
from penstock.streams.algebra.joins.temporal import TemporalKernel
from penstock.streams.algebra.joins.waiting import WaitingKernel
from penstock.streams.algebra.kernel import END
from tests.streams.algebra.batches import MISHAPS, Query

EVENTS = pa.schema({"n": pa.int64(), "c": pa.string(), "at": TIME_TYPE})
TABLE = pa.schema(
    {"id": pa.string(), "rate": pa.int64(), "since": TIME_TYPE, OFFSET: pa.int64()}
).append(pa.field(DELETED, pa.bool_()))
Event = tuple[int, str | None, int]  # number, key, time
Version = tuple[str, int | None, int, int]  # key, rate or that it is deleted, time, place


def kernel_for(
    how: str = "left", correct_for: int = 0, *, once: bool = True
) -> TemporalKernel | WaitingKernel:
    """With `once`, that of events which are forgotten when they are given, if it will do."""
    on = [("c", "id")]
    if once and correct_for == 0:
        return WaitingKernel(on, EVENTS, TABLE, how, event_time="at", table_time="since")
    return TemporalKernel(
        on, EVENTS, TABLE, how, event_time="at", table_time="since", correct_for=correct_for
    )


def packed(
    kernel: TemporalKernel | WaitingKernel, events: list[Event], versions: list[Version]
) -> list[pa.RecordBatch]:
    left = [dict(zip(EVENTS.names, event, strict=True)) for event in events]
    right = [
        dict(zip(TABLE.names, (*version, version[1] is None), strict=True)) for version in versions
    ]
    return [
        kernel.sides[LEFT].partial(pa.RecordBatch.from_pylist(left, EVENTS)),
        kernel.sides[RIGHT].partial(pa.RecordBatch.from_pylist(right, TABLE)),
    ]


def rate_at(versions: list[Version], event: Event) -> int | None:
    valid = [each for each in versions if each[0] == event[1] and each[2] <= event[2]]
    return max(valid, key=lambda each: each[2:])[1] if valid else None


@st.composite
def histories(draw: Any) -> tuple[int, list[tuple[list[Event], list[Version], int]]]:
    correct_for = draw(st.sampled_from([0, 4, 1000]))
    clock, number, place = -1000, 0, 0
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        events = []
        for key, time in draw(
            st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.integers(0, 20)), max_size=5)
        ):
            if time >= clock - correct_for:
                number += draw(st.integers(0, 1))  # the same event may come twice
                events.append((number, key, time))
        versions = []
        for key, rate, time in draw(
            st.lists(
                st.tuples(
                    st.sampled_from("ab"), st.none() | st.integers(1, 9), st.integers(-5, 20)
                ),
                max_size=4,
            )
        ):
            place += 1
            versions.append((key, rate, time, place))
        clock = max(clock, draw(st.integers(-2, 22)))
        batches.append((events, versions, clock))
    return correct_for, [*batches, ([], [], END)]


@pytest.mark.parametrize("how", ["left", "inner"])
@settings(max_examples=60)
@given(
    history=histories(),
    mishap=st.sampled_from(MISHAPS),
    buckets=st.integers(1, 2),
    once=st.booleans(),
)
def test_at_every_clock_events_have_what_was_valid(
    how: str,
    history: tuple[int, list[tuple[list[Event], list[Version], int]]],
    mishap: str,
    buckets: int,
    once: bool,
) -> None:
    correct_for, batches = history
    kernel = kernel_for(how, correct_for, once=once)
    waiting: list[Event] = []
    settled: Counter[tuple[int, int | None]] = Counter()
    versions: list[Version] = []
    result: Counter[tuple[int, int | None]] = Counter()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting_events, "_MOST", 2)
        query = Query(Path(folder), kernel, buckets=buckets)
        for events, came, clock in batches:
            waiting += events
            versions += came
            for row in query.packed_batch(packed(kernel, events, came), mishap, clock):
                assert kernel.takes_back or row[WEIGHT] == 1
                result[row["n"], row["rate"]] += row[WEIGHT]
            given_out = [(each, rate_at(versions, each)) for each in waiting if each[2] < clock]
            done = [each for each in waiting if clock > each[2] + correct_for]
            now = settled + Counter((each[0], rate) for each, rate in given_out)
            if how == "inner":
                now = Counter({each: count for each, count in now.items() if each[1] is not None})
            assert {each: count for each, count in result.items() if count} == now
            settled += Counter((each[0], rate) for each, rate in given_out if each in done)
            waiting = [each for each in waiting if each not in done]
        # The last version of each key stays, also that there is no row.
        assert query.state_rows() == len({key for key, *_ in versions})


def test_versions_that_nobody_can_ask_for_are_let_go(tmp_path: Path) -> None:
    kernel = kernel_for()
    query = Query(tmp_path, kernel)
    for time in range(1, 50):
        query.packed_batch(packed(kernel, [], [("a", time, time, time)]), clock=time)
        assert query.state_rows() <= 2


def test_other_joins_are_refused() -> None:
    with pytest.raises(InvalidInput, match="enriched as 'full'"):
        kernel_for("full")
