import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError
from penstock.streams import algebra
from penstock.streams.algebra import Aggregation, Summary, sliding
from penstock.streams.algebra.kernel import END, NEVER
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.algebra.windows import entries
from penstock.streams.algebra.windows.ranges import Ranges, merge_ranges
from penstock.streams.algebra.windows.rolling import RollingKernel
from penstock.streams.algebra.windows.sliding import SlidingKernel
from penstock.streams.algebra.windows.window import Sliding
from penstock.streams.state import BucketState
from tests.streams.algebra.batches import ADDED, MISHAPS, Query, Row, batch_of, cut, text

MINUTE = 60_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_x", pa.float64()),
    ]
)
ASKED = {
    "n": algebra.count(),
    "total": algebra.sum("v"),
    "latest": algebra.last("v"),
    "all": algebra.collect("v"),
    "thirds": algebra.sum("_x"),
}
SHOWING: dict[str, algebra.Aggregate] = {
    "spread": algebra.stddev("_x"),
    "often": algebra.approx_top("v", 5, error=0.2),
    "total": algebra.sum("_x"),
    "own": ADDED("_x"),
}
FACES = [SlidingKernel, RollingKernel]
Batches = list[tuple[list[Row], int]]


def moment(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC")) + dt.timedelta(microseconds=micros)


def made(face: type[SlidingKernel], size: int, **options: Any) -> SlidingKernel:
    """By way of its spec. Sizes and times are in microseconds."""
    kernel = face(options.pop("by", "k"), Sliding(size), ASKED, SCHEMA, "at", **options)
    return face.from_spec(kernel.spec())


def rows_at(*times: int, key: str = "a", values: Sequence[int] = ()) -> pa.RecordBatch:
    values = values or [1] * len(times)
    pairs = enumerate(zip(times, values, strict=True))
    rows = [
        {"k": key, "v": v, "at": moment(t), "_partition": 0, "_offset": i} for i, (t, v) in pairs
    ]
    return batch_of(SCHEMA, rows)


def left(changes: Sequence[Row]) -> list[str]:
    """The rows that changes leave; each that is taken back must be there."""
    rows: Counter[str] = Counter()
    for change in changes:
        row = dict(change)
        weight = row.pop("_weight")
        assert weight in (1, -1)
        rows[text(row)] += weight
        assert rows[text(row)] >= 0, f"{row} is taken back, and was not there"
    return sorted(rows.elements())


def expected(
    face: type[SlidingKernel], size: int, rows: Sequence[Row], clock: int, emit: str
) -> list[str]:
    table = []
    for key in {row["k"] for row in rows}:
        own = sorted(
            (row for row in rows if row["k"] == key),
            key=lambda row: (row["t"], row["_partition"], row["_offset"]),
        )
        times = [row["t"] for row in own]
        for row in own if face is RollingKernel else [{"t": each} for each in set(times)]:
            t = row["t"]
            if emit == "final" and not t < clock:
                continue
            values = [each["v"] for each in own if t - size < each["t"] <= t]
            results = {
                "n": len(values),
                "total": sum(values),
                "latest": values[-1],
                "all": {"values": values, "more": 0},
                "thirds": math.fsum(value / 3 for value in values),
                "_time": moment(t),
            }
            window = {"window": {"start": moment(t - size), "end": moment(t)}, "k": key}
            if face is RollingKernel:
                window = {name: row[name] for name in ("k", "v", "at")}
            table.append({**window, **results})
    return sorted(map(text, table))


@st.composite
def _batches(draw: st.DrawFn) -> tuple[int, int, Batches]:
    """A size, how long is corrected, and batches of rows with the clock that each comes to.

    No row is further behind the clock before it than what is corrected.
    """
    size = draw(st.sampled_from([1, 2, 5, 20, 50, 100]))
    correct_for = draw(st.sampled_from([0, 7, 60, 1000]))
    clock, offset = NEVER, 0
    batches: Batches = []
    for _ in range(draw(st.integers(1, 5))):
        least = max(0, clock - correct_for)
        rows = []
        for _ in range(draw(st.integers(0, 10))):
            time = draw(st.integers(least, least + 90))
            key, value = draw(st.sampled_from("aaabc")), draw(st.integers(-2, 2))
            row = {"k": key, "v": value, "t": time, "at": moment(time), "_x": value / 3}
            rows.append({**row, "_partition": draw(st.integers(0, 1)), "_offset": offset})
            offset += 1
        clock = max(clock, draw(st.integers(-1, 150)))
        batches.append((rows, clock))
    return size, correct_for, batches


@pytest.mark.parametrize("emit", ["final", "changes"])
@pytest.mark.parametrize("face", FACES)
@given(_batches(), st.lists(st.integers(0, 12), max_size=2), st.data())
@settings(deadline=None, max_examples=20)
def test_after_every_batch_as_if_all_rows_were_there_at_once(
    face: type[SlidingKernel],
    emit: str,
    batches: tuple[int, int, Batches],
    cuts: list[int],
    data: st.DataObject,
) -> None:
    size, correct_for, steps = batches
    kernel = made(face, size, correct_for=correct_for, emit=emit)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "_AT_ONCE", data.draw(st.sampled_from([5, 1000])))
        patch.setattr(entries, "_FEW", data.draw(st.sampled_from([0, 2, 1000])))
        buckets, piece = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([4, None]))
        query = Query(Path(folder), kernel, buckets=buckets, piece=piece)
        seen: list[Row] = []
        for rows, clock in [*steps, ([], END)]:
            came = batch_of(SCHEMA, [{n: row[n] for n in SCHEMA.names} for row in rows])
            query.batch(cut(came, cuts), data.draw(st.sampled_from(MISHAPS)), clock)
            seen += rows
            assert left(query.changes) == expected(face, size, seen, clock, emit)
        assert query.state_rows() == 0
        assert query.late() == 0


@pytest.mark.parametrize("emit", ["final", "changes"])
@pytest.mark.parametrize("face", FACES)
def test_what_is_taken_back_is_what_was_given_also_where_the_order_of_merging_shows(
    face: type[SlidingKernel], emit: str, tmp_path: Path
) -> None:
    kernel = face("k", Sliding(40), SHOWING, SCHEMA, "at", correct_for=60, emit=emit)
    query, seed = Query(tmp_path, kernel), random.Random(f"{face} {emit}")
    for clock in range(50, 200, 10):
        rows = []
        for _ in range(20):
            time, near = seed.randint(max(0, clock - 60), clock + 20), seed.randint(-4000, 4000)
            row = {"k": seed.choice("ab"), "v": int(seed.expovariate(0.1)), "at": moment(time)}
            rows.append({**row, "_x": 1.7e15 + near / 4})
        query.batch(cut(batch_of(SCHEMA, rows), [7, 14]), clock=clock)
    query.batch([], clock=END)
    assert query.late() == 0
    assert sum(row["_weight"] < 0 for row in query.changes) > 20
    assert left(query.changes)


@pytest.mark.parametrize("face", FACES)
def test_5_minute_sliding_window_10_03_39_and_10_08_12(
    face: type[SlidingKernel], tmp_path: Path
) -> None:
    hour = 10 * 60 * MINUTE
    times = [hour + 3 * MINUTE + 39_000_000, hour + 8 * MINUTE + 12_000_000]
    kernel = face("k", sliding("5 minutes"), ASKED, SCHEMA, "at")
    together = Query(tmp_path / "together", kernel)
    together.batch([rows_at(*times)], clock=END)
    assert [row["n"] for row in together.changes] == [1, 2]
    apart = Query(tmp_path / "apart", kernel)
    apart.batch([rows_at(times[0], times[0] + 5 * MINUTE)], clock=END)
    assert [row["n"] for row in apart.changes] == [1, 1]


@pytest.mark.parametrize("face", FACES)
def test_a_window_is_given_out_once_the_clock_is_past_its_event(
    face: type[SlidingKernel], tmp_path: Path
) -> None:
    query = Query(tmp_path, made(face, 10))
    assert query.batch([rows_at(5)], clock=5) == []
    assert query.batch([rows_at(5)], clock=5) == []  # exactly at the clock is on time
    given = query.batch([], clock=6)
    assert [(row["n"], row["_time"]) for row in given] == [(2, moment(5))] * len(given)
    assert len(given) == (2 if face is RollingKernel else 1)


@pytest.mark.parametrize("face", FACES)
def test_events_of_one_pane_are_given_out_one_by_one(
    face: type[SlidingKernel], tmp_path: Path
) -> None:
    query = Query(tmp_path, made(face, 80))
    query.batch([rows_at(8)], clock=0)
    steps = [([3, 4], 4), ([], 5), ([], 8), ([], 9)]
    given = [query.batch([rows_at(*times)], clock=clock) for times, clock in steps]
    assert [[(row["_time"], row["n"]) for row in rows] for rows in given] == [
        [(moment(3), 1)],
        [(moment(4), 2)],
        [],
        [(moment(8), 3)],
    ]


@pytest.mark.parametrize("times", [(3, 8), (8, 3)])
@pytest.mark.parametrize("face", FACES)
def test_a_pane_is_due_at_the_first_of_its_events_whichever_comes_first(
    face: type[SlidingKernel], times: tuple[int, int], tmp_path: Path
) -> None:
    query = Query(tmp_path, made(face, 80))
    for time in times:
        query.batch([rows_at(time)], clock=0)
    assert [row["_time"] for row in query.batch([], clock=4)] == [moment(3)]


@pytest.mark.parametrize("face", FACES)
def test_a_straggler_takes_back_what_has_it_in_its_window(
    face: type[SlidingKernel], tmp_path: Path
) -> None:
    query = Query(tmp_path, made(face, 10, correct_for=50))
    query.batch([rows_at(1, 4, 13, 14)], clock=40)
    given = query.batch([rows_at(4)], clock=40)
    told = [(row["_time"], row["n"], row["_weight"]) for row in given]
    again = 2 if face is RollingKernel else 1
    old = [(moment(4), 2, -1), (moment(13), 2, -1)]
    assert told == [*old, *[(moment(4), 3, 1)] * again, (moment(13), 3, 1)]


@pytest.mark.parametrize("face", FACES)
def test_rows_that_come_after_their_window_is_gone_are_counted(
    face: type[SlidingKernel], tmp_path: Path
) -> None:
    query = Query(tmp_path, made(face, 10, correct_for=5))
    query.batch([], clock=60)
    query.batch([rows_at(1, 54, 54, 55, 61)], clock=END)
    assert query.late() == 3
    assert [row["n"] for row in query.changes] == [1, 2]


@pytest.mark.parametrize("face", FACES)
def test_what_is_too_old_for_any_window_is_let_go(
    face: type[SlidingKernel], tmp_path: Path
) -> None:
    query = Query(tmp_path, made(face, 80, correct_for=100))
    query.batch([rows_at(*range(10), *list(range(10, 20)) * 2)], clock=30)
    assert query.state_rows() == (2 if face is SlidingKernel else 3)
    query.batch([rows_at(3, 12)], clock=30)
    query.batch([], clock=10 - 1 + 80 + 100)
    # The pane from 10 on: its head, what came after, and 20 rows that are too many for a head.
    assert query.state_rows() == (2 if face is SlidingKernel else 3)
    query.batch([], clock=20 - 1 + 80 + 100)
    assert query.state_rows() == 0


@pytest.mark.parametrize("emit", ["final", "changes"])
@pytest.mark.parametrize("size", [800, 3200])
@pytest.mark.parametrize("face", FACES)
def test_an_event_more_does_not_read_the_whole_window(
    face: type[SlidingKernel],
    size: int,
    emit: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {"n": algebra.count()}
    query = Query(tmp_path, face("k", Sliding(size), asked, SCHEMA, "at", emit=emit))
    last = size + size // 2
    query.batch([rows_at(*range(size // 2, last))], clock=last)
    read: Counter[str] = Counter()
    for name in ("take", "take_values", "take_keys"):
        monkeypatch.setattr(BucketState, name, _counting(getattr(BucketState, name), name, read))
    (row,) = query.batch([rows_at(last + 1)], clock=last + 2)
    assert row["n"] == size - 1
    assert read["take_values"] > 0
    assert read.total() < size // 6


def _counting(method: Any, name: str, read: Counter[str]) -> Any:
    def counted(state: BucketState, rows: Any) -> pa.RecordBatch:
        read[name] += len(rows)
        return method(state, rows)

    return counted


def test_equal_rows_come_out_as_often_as_they_went_in(tmp_path: Path) -> None:
    query = Query(tmp_path, made(RollingKernel, 10))
    query.batch([rows_at(1, 1, 2), rows_at(1)], clock=END)
    rows = [(row["v"], row["at"], row["n"]) for row in query.changes]
    assert rows == [(1, moment(1), 3)] * 3 + [(1, moment(2), 4)]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("by", [[], ["k", "v"], ["at"]])
def test_keys_of_any_number(face: type[SlidingKernel], by: list[str], tmp_path: Path) -> None:
    query = Query(tmp_path, made(face, 10, by=by), buckets=1)
    query.batch([rows_at(1, 2, 2)], clock=END)
    counts = sorted(row["n"] for row in query.changes)
    wanted = [1, 2, 2] if by == ["at"] else [1, 3, 3]
    assert counts == (wanted if face is RollingKernel else wanted[:2])


@pytest.mark.parametrize("face", FACES)
def test_the_output_has_the_rows_columns_and_its_own(face: type[SlidingKernel]) -> None:
    names = made(face, 10).output.names
    own = ["k", "v", "at"] if face is RollingKernel else ["window", "k"]
    assert names == [*own, *ASKED, "_time", "_weight"]


def test_a_row_is_given_as_it_came_also_if_it_is_taken_back(tmp_path: Path) -> None:
    schema = pa.schema(
        [("note", pa.string()), ("_time", pa.timestamp("ns", "UTC")), ("tags", pa.list_(pa.int8()))]
    )
    kernel = RollingKernel((), Sliding(10), {"n": algebra.count()}, schema, "_time", correct_for=9)
    assert kernel.output.names == ["note", "tags", "n", "_time", "_weight"]
    query = Query(tmp_path, kernel)
    rows = [{"note": None, "_time": moment(5), "tags": [1, None]}] * 2
    query.batch([batch_of(schema, rows[:1])], clock=6)
    query.batch([batch_of(schema, rows[1:])], clock=6)
    row = {"note": None, "tags": [1, None], "_time": moment(5)}
    told = [(1, 1), (1, -1), (2, 1), (2, 1)]
    assert query.changes == [{**row, "n": n, "_weight": weight} for n, weight in told]


@pytest.mark.parametrize(("by", "name"), [("k", "v"), ("k", "at"), ("_partition", "n")])
def test_results_do_not_take_the_place_of_columns(by: str, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"twice|cannot be a column"):
        RollingKernel(by, Sliding(10), {name: algebra.count()}, SCHEMA, "at")


def test_rolling_rows_may_have_a_column_or_a_result_named_window(tmp_path: Path) -> None:
    schema = pa.schema([("window", pa.string()), *list(SCHEMA)[2:3]])
    asked = {"n": algebra.count()}
    by_window = RollingKernel("window", Sliding(10), asked, schema, "at")
    query = Query(tmp_path, by_window)
    query.batch(
        [batch_of(schema, [{"window": each, "at": moment(1)} for each in "abb"])], clock=END
    )
    assert [(row["window"], row["n"]) for row in query.changes] == [("a", 1), ("b", 2), ("b", 2)]
    result = RollingKernel("k", Sliding(10), {"window": algebra.count()}, SCHEMA, "at")
    assert result.output.names == ["k", "v", "at", "window", "_time", "_weight"]
    with pytest.raises(InvalidInput, match="twice"):
        SlidingKernel("window", Sliding(10), asked, schema, "at")


@pytest.mark.parametrize("face", FACES)
def test_the_rows_of_a_table_are_refused(face: type[SlidingKernel]) -> None:
    schema = SCHEMA.append(pa.field("_weight", pa.int32()))
    with pytest.raises(InvalidInput, match="made of events"):
        face("k", Sliding(10), ASKED, schema, "at")


@pytest.mark.parametrize("face", FACES)
def test_a_total_that_does_not_fit_names_its_key(face: type[SlidingKernel], tmp_path: Path) -> None:
    big = 2**62
    kernel = face("k", Sliding(100), {"total": algebra.sum("v")}, SCHEMA, "at")
    apart = range(0, 900, 100)  # of which two together would be too much
    fine = Query(tmp_path / "fine", kernel)
    fine.batch([rows_at(*apart, values=[big] * len(apart))], clock=END)
    assert [row["total"] for row in fine.changes] == [big] * len(apart)
    query = Query(tmp_path / "query", kernel)
    with pytest.raises(KernelError, match="'total' of k = 'a'"):
        query.batch([rows_at(0, 50, values=[big, big])], clock=END)


def test_rows_in_another_order_leave_the_same_state(tmp_path: Path) -> None:
    rows = rows_at(1, 1, 1, 2, 2, values=[3, 1, 2, 5, 4])
    states = []
    for i, order in enumerate([[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]]):
        query = Query(tmp_path / str(i), made(RollingKernel, 100))
        query.batch([rows.take(pa.array(order))], clock=0)
        with query._open(0) as state:
            found = [row for batch in state.all_rows() for row in batch.to_pylist()]
        states.append(sorted(map(repr, found)))
    assert states[0] == states[1]


_PAIRS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-(2**62), -2, 0, 1, 2**62])))


@given(_PAIRS, _PAIRS)
def test_pairs_are_counted_and_put_in_order_as_tuples_would_be(
    pairs: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    firsts, seconds = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
    first, second = np.array(others, np.int64).reshape(-1, 2).T
    counts = entries.count_pairs(firsts, seconds, first, second)
    assert counts.tolist() == [sum(pair <= other for pair in pairs) for other in others]
    order = entries.order_of(first, second)
    assert order.tolist() == sorted(range(len(others)), key=lambda row: others[row])


OWN = Aggregation(
    partial=lambda values: "".join(sorted(map(str, values))),
    merge=lambda one, other: "".join(sorted(one + other)),
    result=lambda state: state,
    state="digits string",
    returns="string",
)


@given(st.integers(1, 40), st.data())
@settings(deadline=None, max_examples=60)
def test_each_range_is_merged_as_if_it_were_alone(length: int, data: st.DataObject) -> None:
    asked = {"n": algebra.count(), "all": algebra.collect("v"), "own": OWN("v")}
    schema = pa.schema([("v", pa.int64())])
    summary = Summary(asked, schema)
    values = data.draw(st.lists(st.integers(0, 9), min_size=length, max_size=length))
    numbers = pa.record_batch({"number": pa.array(range(length))})
    parts = summary.partial(pa.record_batch({"v": pa.array(values)}), group_rows(numbers))
    bounds = st.tuples(st.integers(0, length - 1), st.integers(0, length - 1)).map(sorted)
    pairs = data.draw(st.lists(bounds, min_size=1, max_size=30))
    first, last = (np.array(each) for each in zip(*pairs, strict=True))
    used, ranges = Ranges(first, last).packed(length)
    some = [part.take(pa.array(used)) for part in parts]
    merged = merge_ranges(summary, some, ranges, numbers.take(pa.array(used)))
    found = summary.results(merged, pa.record_batch({"number": pa.array(first)}))
    assert found["n"].to_pylist() == [b - a + 1 for a, b in pairs]
    wanted = [sorted(values[a : b + 1]) for a, b in pairs]
    assert [sorted(each["values"]) for each in found["all"].to_pylist()] == wanted
    assert found["own"].to_pylist() == ["".join(map(str, each)) for each in wanted]
