import datetime as dt
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError, UnknownName
from penstock.streams.algebra.analytics.gaps import GapKernel
from penstock.streams.algebra.kernel import END
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, cut, text

SECOND = 1_000_000
AFTER = 4
NOT_YET, AT_THE_END = -(10**6), 10**6  # clocks, in seconds
SCHEMA = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("_offset", pa.int64())])


def moment(seconds: int | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)


def micros(clock: int) -> int | None:
    return {NOT_YET: None, AT_THE_END: END}.get(clock, clock * SECOND)


def made(*, correct_for: int = 0, forget: int | None = None, by: Any = "k") -> GapKernel:
    kernel = GapKernel(
        by,
        AFTER * SECOND,
        SCHEMA,
        "at",
        correct_for=correct_for * SECOND,
        forget=forget and forget * SECOND,
    )
    return GapKernel.from_spec(json.loads(json.dumps(kernel.spec())))


def rows_at(*seconds: int, key: str = "a") -> pa.RecordBatch:
    return batch_of(SCHEMA, [{"k": key, "at": moment(each)} for each in seconds])


def expected(
    events: Sequence[tuple[str, int]], clock: int, forget: int | None, *, by_key: bool = True
) -> list[str]:
    """The table, from the definition: every two events one after the other, and the last one."""
    table = []
    for key in {key for key, _ in events} if by_key else {""}:
        times = sorted({time for other, time in events if not by_key or other == key})
        pairs: list[tuple[int, int | None]] = [*pairwise(times), *((t, None) for t in times[-1:])]
        for since, until in pairs:
            if (until is not None and until - since <= AFTER) or since + AFTER >= clock:
                continue
            if until is not None and forget is not None and until - since > forget:
                until = None
            times_of = {"since": since, "until": until, "_time": since + AFTER}
            spans = {name: moment(each) for name, each in times_of.items()}
            table.append({"k": key, **spans} if by_key else spans)
    return sorted(_text(each) for each in table)


def _text(row: Row) -> str:
    """Whatever time zone objects the moments have."""
    return text({name: each and str(each) for name, each in row.items()})


def table_of(changes: Sequence[Row]) -> list[str]:
    """What changes add up to; what is taken back must be there, and no gap be there twice."""
    there: dict[Any, str] = {}
    for change in changes:
        row = dict(change)
        key = row.get("k"), row["since"]
        if row.pop("_weight") == 1:
            assert key not in there
            there[key] = _text(row)
        else:
            assert there.pop(key) == _text(row)
    return sorted(there.values())


@st.composite
def _batches(draw: st.DrawFn) -> tuple[int, list[tuple[list[tuple[str, int]], int]]]:
    """How long is corrected, and batches of events with the clock of each.

    A clock never goes back, and no event is further behind the one before than what is corrected.
    """
    correct_for = draw(st.sampled_from([0, 5, 30]))
    clock = NOT_YET
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        least = max(0, clock - correct_for)
        event = st.tuples(st.sampled_from("ab"), st.integers(least, least + 25))
        batches.append((draw(st.lists(event, max_size=5)), clock))
        clock = max(clock, draw(st.integers(0, 60)))
    return correct_for, batches


@pytest.mark.parametrize("by_key", [True, False])
@given(
    _batches(),
    st.sampled_from([None, AFTER, 9]),
    st.lists(st.integers(0, 5), max_size=2),
    st.data(),
)
@settings(deadline=None, max_examples=40)
def test_after_every_batch_as_if_all_events_were_there_at_once(
    by_key: bool,
    batches: tuple[int, list[tuple[list[tuple[str, int]], int]]],
    forget: int | None,
    cuts: list[int],
    data: st.DataObject,
) -> None:
    correct_for, steps = batches
    kernel = made(correct_for=correct_for, forget=forget, by="k" if by_key else ())
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=data.draw(st.integers(1, 2)), piece=1)
        seen: list[tuple[str, int]] = []
        for events, clock in [*steps, ([], AT_THE_END)]:
            mishap = data.draw(st.sampled_from(MISHAPS))
            rows = batch_of(SCHEMA, [{"k": key, "at": moment(time)} for key, time in events])
            query.batch(cut(rows, cuts), mishap, micros(clock))
            seen += events
            assert table_of(query.changes) == expected(seen, clock, forget, by_key=by_key)
        assert query.late() == 0
        keys = len({key for key, _ in seen}) if by_key else bool(seen)
        assert query.state_rows() == (keys if forget is None else 0)


def told(changes: Sequence[Row]) -> list[tuple[int, int | None, int]]:
    """Since, until, in seconds, and weight."""
    return [
        (
            int(row["since"].timestamp()),
            row["until"] and int(row["until"].timestamp()),
            row["_weight"],
        )
        for row in changes
    ]


def test_a_gap_is_told_when_it_is_known_and_again_when_it_is_over(tmp_path: Path) -> None:
    query = Query(tmp_path, made())
    assert query.batch([rows_at(10)], clock=10 * SECOND) == []
    assert query.batch([], clock=14 * SECOND) == []
    (row,) = query.batch([], clock=14 * SECOND + 1)
    assert told([row]) == [(10, None, 1)]
    assert row["_time"] == moment(14)
    assert query.batch([], clock=99 * SECOND) == []
    assert told(query.batch([rows_at(99)], clock=99 * SECOND)) == [(10, None, -1), (10, 99, 1)]


def test_exactly_so_long_is_no_gap(tmp_path: Path) -> None:
    query = Query(tmp_path, made())
    assert told(query.batch([rows_at(0, 4, 9)], clock=END)) == [(4, 9, 1), (9, None, 1)]


@pytest.mark.parametrize(
    ("straggler", "changes"),
    [
        (10, [(0, 20, -1), (0, 10, 1), (10, 20, 1)]),  # split
        (3, [(0, 20, -1), (3, 20, 1)]),  # shorter
        (17, [(0, 20, -1), (0, 17, 1)]),
        (0, []),
        (20, []),
    ],
)
def test_a_straggler_corrects(
    straggler: int, changes: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    query = Query(tmp_path, made(correct_for=60))
    query.batch([rows_at(0, 20)], clock=22 * SECOND)
    assert told(query.batch([rows_at(straggler)], clock=22 * SECOND)) == changes


def test_a_gap_that_was_none_is_taken_back(tmp_path: Path) -> None:
    query = Query(tmp_path, made(correct_for=60))
    query.batch([rows_at(0, 8)], clock=9 * SECOND)
    assert told(query.batch([rows_at(4)], clock=9 * SECOND)) == [(0, 8, -1)]


def test_what_can_no_longer_change_is_let_go_of(tmp_path: Path) -> None:
    query = Query(tmp_path, made(correct_for=10))
    query.batch([rows_at(*range(0, 500, 5))], clock=501 * SECOND)
    assert earlier_of(query) == [[485, 485, 490, 490]]
    query.batch([], clock=506 * SECOND - 1)
    assert earlier_of(query) == [[485, 485, 490, 490]]
    query.batch([], clock=506 * SECOND)  # 495 lies in a pane that ends at 496
    assert earlier_of(query) == [None]
    assert query.state_rows() == 1


def earlier_of(query: Query) -> list[list[int] | None]:
    with query._open(0) as state:
        (rows,) = [batch.to_pylist() for batch in state.all_rows()]
    return [row["(earlier)"] and [each // SECOND for each in row["(earlier)"]] for row in rows]


def test_a_key_that_is_forgotten_is_new_when_it_comes_back(tmp_path: Path) -> None:
    query = Query(tmp_path, made(forget=60))
    assert told(query.batch([rows_at(0)], clock=30 * SECOND)) == [(0, None, 1)]
    query.batch([], clock=63 * SECOND)
    assert query.state_rows() == 1
    query.batch([], clock=64 * SECOND)
    assert query.state_rows() == 0
    assert query.batch([rows_at(99)], clock=99 * SECOND) == []
    assert told(query.batch([], clock=200 * SECOND)) == [(99, None, 1)]
    assert query.state_rows() == 0


def test_a_key_is_forgotten_no_sooner_by_small_batches_than_by_large_ones(tmp_path: Path) -> None:
    query = Query(tmp_path, made(forget=60))
    assert told(query.batch([rows_at(0, 60, 121)], clock=END)) == [
        (0, 60, 1),
        (60, None, 1),
        (121, None, 1),
    ]


def test_events_that_come_too_late_are_counted(tmp_path: Path) -> None:
    query = Query(tmp_path, made(correct_for=5))
    query.batch([rows_at(0)], clock=60 * SECOND)
    query.batch([rows_at(50, 51, 51), rows_at(52, 70)], clock=60 * SECOND)
    assert query.late() == 3
    assert told(query.changes) == [(0, None, 1), (0, None, -1), (0, 52, 1), (52, 70, 1)]


def test_what_is_asked_must_make_sense() -> None:
    weighted = SCHEMA.append(pa.field("_weight", pa.int32()))
    with pytest.raises(InvalidInput, match="table") as refused:
        GapKernel("k", 1, weighted, "at")
    assert "stream" in refused.value.hint
    with pytest.raises(UnknownName):
        GapKernel("key", 1, SCHEMA, "at")
    with pytest.raises(InvalidInput, match="type string"):
        GapKernel((), 1, SCHEMA, "k")
    with pytest.raises(InvalidInput, match="no silence"):
        GapKernel("k", 0, SCHEMA, "at")
    with pytest.raises(InvalidInput, match="forgotten"):
        GapKernel("k", 10, SCHEMA, "at", forget=9)
    with pytest.raises(InvalidInput, match="since"):
        GapKernel("since", 1, pa.schema([*SCHEMA, ("since", pa.int64())]), "at")
    with pytest.raises(KernelError, match="no event time"):
        made().partial(batch_of(SCHEMA, [{"k": "a", "at": None}]))
