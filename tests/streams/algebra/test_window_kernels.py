import datetime as dt
import math
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams import algebra
from penstock.streams.algebra import (
    Kernel,
    hopping,
    kernel_from_spec,
    kernel_over,
    session,
    tumbling,
)
from penstock.streams.algebra.kernel import END
from penstock.streams.algebra.keyed.held import HeldKernel
from penstock.streams.algebra.windows.window import Hopping, Session, Window
from tests.streams.algebra.batches import ADDED, MISHAPS, Query, Row, batch_of, cut, text

SECOND = 1_000_000
NOT_YET, AT_THE_END = -(10**6), 10**6  # clocks, in seconds
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("x", pa.float64()),
    ]
)
WINDOWS: dict[str, Window] = {
    "tumbling": tumbling("4s"),
    "moved": tumbling("4s", offset="1s"),
    "overlapping": hopping("6s", "2s"),
    "uneven": hopping("5s", "3s"),
    "apart": hopping("2s", "5s"),
    "session": session("3s"),
}
ASKED = {
    "n": algebra.count(),
    "total": algebra.sum("v"),
    "highest": algebra.max("v"),
    "latest": algebra.last("v"),
    "thirds": algebra.sum("x"),
}


def moment(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC")) + dt.timedelta(seconds=seconds)


def micros(clock: int) -> int | None:
    return {NOT_YET: None, AT_THE_END: END}.get(clock, clock * SECOND)


def made(window: Window, *, correct_for: int = 0, emit: str = "final", by: Any = "k") -> Kernel:
    kernel = kernel_over(
        by, window, ASKED, SCHEMA, "at", correct_for=correct_for * SECOND, emit=emit
    )
    return kernel_from_spec(kernel.spec())


def windows_of(window: Window, times: Sequence[int]) -> list[tuple[int, int]]:
    """The windows that have one of these times, from start to end, in seconds."""
    if isinstance(window, Session):
        gap = window.gap // SECOND
        found: list[list[int]] = []
        for time in sorted(times):
            if found and time - found[-1][1] <= gap:
                found[-1][1] = time
            else:
                found.append([time, time])
        return [(first, latest + gap) for first, latest in found]
    assert isinstance(window, Hopping)
    panes = window.panes
    width, offset = panes.width // SECOND, panes.offset // SECOND  # type: ignore[attr-defined]
    hop, size = window.hop * width, window.size * width
    starts = range(-100 * hop + offset, 200 * hop, hop)
    return [(s, s + size) for s in starts if any(s <= time < s + size for time in times)]


def expected(window: Window, rows: Sequence[Row], clock: float, emit: str) -> list[str]:
    table = []
    for key in {row["k"] for row in rows}:
        own = [row for row in rows if row["k"] == key]
        for start, end in windows_of(window, [row["s"] for row in own]):
            # A session also has what is exactly its gap after the last.
            is_over = end < clock if isinstance(window, Session) else end <= clock
            if emit == "final" and not is_over:
                continue
            inside = [row for row in own if start <= row["s"] < end]
            ordered = sorted(inside, key=lambda row: (row["s"], row["_partition"], row["_offset"]))
            values = [row["v"] for row in ordered]
            table.append(
                {
                    "window": {"start": moment(start), "end": moment(end)},
                    "k": key,
                    "n": len(values),
                    "total": sum(values),
                    "highest": max(values),
                    "latest": values[-1],
                    "thirds": math.fsum(row["x"] for row in inside),
                    "_time": moment(end) - dt.timedelta(microseconds=1),
                }
            )
    return sorted(map(text, table))


@st.composite
def _batches(draw: st.DrawFn) -> tuple[int, list[tuple[list[Row], int]]]:
    """How long is corrected, and batches of rows with the clock of each.

    A clock never goes back, and no row is further behind the one before than what is corrected.
    """
    correct_for = draw(st.sampled_from([0, 4, 30]))
    clock, offset = NOT_YET, 0
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        least = max(0, clock - correct_for)
        rows = []
        for _ in range(draw(st.integers(0, 6))):
            seconds = draw(st.integers(least, least + 25))
            key, value = draw(st.sampled_from("ab")), draw(st.integers(-9, 9))
            row = {"k": key, "v": value, "s": seconds, "at": moment(seconds), "x": value / 3}
            rows.append({**row, "_partition": draw(st.integers(0, 1)), "_offset": offset})
            offset += 1
        batches.append((rows, clock))
        clock = max(clock, draw(st.integers(0, 45)))
    return correct_for, batches


@pytest.mark.parametrize("emit", ["final", "changes"])
@pytest.mark.parametrize("kind", WINDOWS)
@given(_batches(), st.lists(st.integers(0, 6), max_size=2), st.data())
@settings(deadline=None, max_examples=25)
def test_after_every_batch_as_if_all_rows_were_there_at_once(
    kind: str,
    emit: str,
    batches: tuple[int, list[tuple[list[Row], int]]],
    cuts: list[int],
    data: st.DataObject,
) -> None:
    correct_for, steps = batches
    window = WINDOWS[kind]
    kernel = made(window, correct_for=correct_for, emit=emit)
    buckets = data.draw(st.integers(1, 2))
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=buckets, piece=2)
        seen: list[Row] = []
        for rows, clock in [*steps, ([], AT_THE_END)]:
            mishap = data.draw(st.sampled_from(MISHAPS))
            given = batch_of(SCHEMA, [{n: row[n] for n in SCHEMA.names} for row in rows])
            query.batch(cut(given, cuts), mishap, micros(clock))
            seen += rows
            assert query.table("window") == expected(window, seen, clock, emit)
        assert query.state_rows() == 0


SHOWING: dict[str, algebra.Aggregate] = {
    "spread": algebra.stddev("x"),
    "often": algebra.approx_top("v", 5, error=0.2),
    "total": algebra.sum("x"),
    "own": ADDED("x"),
}


@pytest.mark.parametrize("emit", ["final", "changes"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_what_is_taken_back_is_what_was_given_also_where_the_order_of_merging_shows(
    kind: str, emit: str, tmp_path: Path
) -> None:
    window, seed = WINDOWS[kind], random.Random(f"{kind} {emit}")
    kernel = kernel_over("k", window, SHOWING, SCHEMA, "at", correct_for=30 * SECOND, emit=emit)
    query = Query(tmp_path, kernel)
    for clock in range(10, 100, 5):
        rows = []
        for _ in range(20):
            second, near = seed.randint(max(0, clock - 30), clock + 5), seed.randint(-4000, 4000)
            row = {"k": seed.choice("ab"), "v": int(seed.expovariate(0.1)), "at": moment(second)}
            rows.append({**row, "x": 1.7e15 + near / 4})
        query.batch(cut(batch_of(SCHEMA, rows), [7, 14]), clock=micros(clock))
    query.batch([], clock=END)
    assert query.late() == 0
    assert sum(row["_weight"] < 0 for row in query.changes) > 20
    assert query.table("window")  # which looks whether each that is taken back is there


@pytest.mark.parametrize("kind", ["tumbling", "overlapping", "session"])
def test_rows_that_come_after_their_windows_are_gone_are_counted(kind: str, tmp_path: Path) -> None:
    query = Query(tmp_path, made(WINDOWS[kind], correct_for=5))
    query.batch([], clock=60 * SECOND)
    seconds = [1, 1, 54, 55, 61]
    rows = [{"k": "a", "v": 1, "at": moment(each), "_partition": 0} for each in seconds]
    query.batch([batch_of(SCHEMA, rows)], clock=END)
    assert query.late() == 2
    assert sum(row["n"] for row in query.changes) == {"overlapping": 9}.get(kind, 3)


@pytest.mark.parametrize("cuts", [[], [1], [2]])
def test_what_is_late_does_not_depend_on_cuts(cuts: list[int], tmp_path: Path) -> None:
    query = Query(tmp_path, made(session("10s"), correct_for=1))
    rows = [{"k": "a", "v": 1, "at": moment(each), "_partition": 0} for each in (94, 101, 109)]
    query.batch([batch_of(SCHEMA, rows[:1])], clock=90 * SECOND)
    query.batch([], clock=105 * SECOND)
    query.batch(cut(batch_of(SCHEMA, rows[1:]), cuts), clock=105 * SECOND)
    query.batch([], clock=END)
    assert [row["n"] for row in query.changes] == [1, 1, 3]
    assert query.late() == 0


def test_a_session_that_goes_on_at_its_very_end_is_told_anew(tmp_path: Path) -> None:
    sessions = Query(tmp_path / "sessions", made(session("10s"), emit="changes"))
    schema = sessions.kernel.output
    keys = ["window", "k"]
    held = Query(tmp_path / "held", HeldKernel(keys, schema, SECOND, 0))
    for second, clock in [(0, 0), (None, 10), (10, 10), (None, 30)]:
        at = [] if second is None else [second]
        rows = [{"k": "a", "v": 1, "at": moment(each), "_partition": 0} for each in at]
        changed = sessions.batch([batch_of(SCHEMA, rows)], clock=clock * SECOND)
        held.batch([batch_of(held.kernel.packed, changed)], clock=clock * SECOND)
    assert len(held.table()) == 1
    assert held.state_rows() == 0


def test_a_clock_that_is_lower_gives_nothing_out_again(tmp_path: Path) -> None:
    query = Query(tmp_path, made(tumbling("10s"), correct_for=30))
    for number, clock in enumerate([25, 15, 18, 25]):
        at = [moment(17)] if number == 2 else []
        rows = [{"k": "a", "v": 1, "at": each, "_partition": 0} for each in at]
        query.batch([batch_of(SCHEMA, rows)], clock=clock * SECOND)
    assert [row["n"] for row in query.changes] == [1]


def test_sessions_that_are_joined_are_taken_back_first(tmp_path: Path) -> None:
    query = Query(tmp_path, made(session("10s"), correct_for=60))
    rows = [{"k": "a", "v": 1, "at": moment(each), "_partition": 0} for each in (0, 18, 9)]
    query.batch([batch_of(SCHEMA, rows[:2])], clock=0)
    query.batch([], clock=40 * SECOND)
    given = query.batch([batch_of(SCHEMA, rows[2:])], clock=40 * SECOND)
    assert [(row["n"], row["_weight"]) for row in given] == [(1, -1), (1, -1), (3, 1)]
    assert given[-1]["window"] == {"start": moment(0), "end": moment(28)}
