from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError
from penstock.streams.algebra.analytics.dedup import DedupKernel
from penstock.streams.algebra.kernel import END
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, cut, text

SECOND = 1_000_000
WITHIN = 5  # seconds
NOT_YET, AT_THE_END = -(10**6), 10**6  # clocks, in seconds
SCHEMA = pa.schema(
    [
        ("v", pa.float64()),
        ("id", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_key", pa.binary()),
    ]
)


def micros(clock: int) -> int | None:
    return {NOT_YET: None, AT_THE_END: END}.get(clock, clock * SECOND)


def made(key: Any = "id", *, correct_for: int = 0, emit: str = "changes") -> DedupKernel:
    kernel = DedupKernel(
        key, SCHEMA, "at", WITHIN * SECOND, correct_for=correct_for * SECOND, emit=emit
    )
    again = DedupKernel.from_spec(kernel.spec())
    assert again.spec() == kernel.spec()
    return again


def row(
    second: int, key: str | None = "a", value: float = 0, place: tuple[int, int] = (0, 0)
) -> Row:
    return {
        "id": key,
        "v": value,
        "at": second * SECOND,
        "_partition": place[0],
        "_offset": place[1],
    }


def in_order(each: Row) -> tuple[float, ...]:
    return each["at"], each["_partition"], each["_offset"], each["v"]


def expected(rows: Sequence[Row], clock: float, emit: str) -> list[str]:
    kept = []
    for key in {each["id"] for each in rows}:
        own = sorted((each for each in rows if each["id"] == key), key=in_order)
        for i, each in enumerate(own):
            is_first = i == 0 or own[i - 1]["at"] + WITHIN * SECOND <= each["at"]
            if is_first and (emit == "changes" or each["at"] < clock * SECOND):
                kept.append({**each, "_time": each["at"]})
    schema = pa.schema([*list(SCHEMA)[:3], ("_time", pa.timestamp("us", "UTC"))])
    return sorted(map(text, batch_of(schema, kept).to_pylist()))


@st.composite
def _batches(draw: st.DrawFn) -> tuple[int, list[tuple[list[Row], int]]]:
    """How long is corrected, and batches of rows with the clock of each.

    A clock never goes back, and no row is further behind the one before than what is corrected.
    """
    correct_for = draw(st.sampled_from([0, 4, 30]))
    clock = NOT_YET
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        least = max(-20, clock - correct_for)
        rows = [
            row(
                draw(st.integers(least, least + 9)),
                draw(st.sampled_from(["a", None])),
                draw(st.sampled_from([0.0, 1.0])),
                (draw(st.integers(0, 1)), draw(st.integers(0, 2))),
            )
            for _ in range(draw(st.integers(0, 5)))
        ]
        batches.append((rows, clock))
        clock = max(clock, -20) + draw(st.integers(0, 7))
    return correct_for, batches


@pytest.mark.parametrize("emit", ["changes", "final"])
@given(_batches(), st.lists(st.integers(0, 6), max_size=2), st.data())
@settings(deadline=None, max_examples=60)
def test_after_every_batch_as_if_all_rows_were_there_at_once(
    emit: str,
    batches: tuple[int, list[tuple[list[Row], int]]],
    cuts: list[int],
    data: st.DataObject,
) -> None:
    correct_for, steps = batches
    kernel = made(correct_for=correct_for, emit=emit)
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=data.draw(st.integers(1, 2)))
        seen: list[Row] = []
        for rows, clock in [*steps, ([], AT_THE_END)]:
            mishap = data.draw(st.sampled_from(MISHAPS))
            query.batch(cut(batch_of(SCHEMA, rows), cuts), mishap, micros(clock))
            seen += rows
            assert query.table("_time") == expected(seen, clock, emit)
        assert query.dropped() == len(seen) - len(expected(seen, AT_THE_END, emit))
        assert query.state_rows() == 0
        assert query.late() == 0


def test_of_a_storm_of_retries_one_remains(tmp_path: Path) -> None:
    query = Query(tmp_path, made())
    for second in range(0, 100, 4):
        query.batch([batch_of(SCHEMA, [row(second)])], clock=second * SECOND)
        assert query.state_rows() <= 3
    assert len(query.changes) == 1


def test_an_earlier_twin_takes_the_place_and_an_equal_one_changes_nothing(tmp_path: Path) -> None:
    query = Query(tmp_path, made())
    query.batch([batch_of(SCHEMA, [row(3, value=1)])], clock=0)
    assert query.batch([batch_of(SCHEMA, [row(3, value=1, place=(1, 7))])], clock=0) == []
    assert query.batch([batch_of(SCHEMA, [row(3, value=1, place=(-1, 7))])], clock=0) == []
    given = query.batch([batch_of(SCHEMA, [row(2, value=2)])], clock=0)
    assert [(each["v"], each["_weight"]) for each in given] == [(1, -1), (2, 1)]


def test_rows_at_the_clock_are_not_final_yet(tmp_path: Path) -> None:
    query = Query(tmp_path, made(emit="final"))
    assert query.batch([batch_of(SCHEMA, [row(3, place=(1, 0))])], clock=3 * SECOND) == []
    given = query.batch([batch_of(SCHEMA, [row(3, value=2)])], clock=3 * SECOND + 1)
    assert [(each["v"], each["_weight"]) for each in given] == [(2, 1)]


def test_rows_that_come_after_their_pane_is_gone_are_counted(tmp_path: Path) -> None:
    query = Query(tmp_path, made(correct_for=5))
    query.batch([batch_of(SCHEMA, [row(41)])], clock=60 * SECOND)
    assert query.state_rows() == 0
    query.batch([batch_of(SCHEMA, [row(each) for each in (53, 54, 55)])], clock=60 * SECOND)
    assert query.late() == 2
    assert [each["_time"].second for each in query.changes] == [41, 55]


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_what_is_final_and_not_corrected_is_never_taken_back(data: st.DataObject) -> None:
    draw, before = data.draw, NOT_YET
    taken: list[Row] = []
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), made(emit="final"))
        late = 0
        for _ in range(draw(st.integers(1, 6))):
            least = max(-20, before) - 8
            rows = [
                row(draw(st.integers(least, least + 20))) for _ in range(draw(st.integers(0, 5)))
            ]
            late += sum(each["at"] < before * SECOND for each in rows)
            taken += [each for each in rows if each["at"] >= before * SECOND]
            before = max(before, -20) + draw(st.integers(0, 9))
            cuts = draw(st.lists(st.integers(0, 5), max_size=2))
            given = query.batch(cut(batch_of(SCHEMA, rows), cuts), clock=before * SECOND)
            assert all(each["_weight"] == 1 for each in given)
            assert query.table("_time") == expected(taken, before, "final")
        assert query.late() == late


def test_a_final_row_is_late_by_itself(tmp_path: Path) -> None:
    query = Query(tmp_path, made(correct_for=2, emit="final"))
    query.batch([], clock=13 * SECOND)
    query.batch([batch_of(SCHEMA, [row(10), row(11)])], clock=13 * SECOND)
    assert query.late() == 1
    assert [each["_time"].second for each in query.changes] == [11]


def test_state_is_kept_as_long_as_it_is_looked_back_at(tmp_path: Path) -> None:
    query = Query(tmp_path, made(correct_for=2))
    query.batch([batch_of(SCHEMA, [row(4)])], clock=0)
    query.batch([], clock=12 * SECOND - 1)
    assert query.state_rows() == 1
    assert query.batch([batch_of(SCHEMA, [row(8)])], clock=12 * SECOND) == []
    assert query.state_rows() == 1
    query.batch([], clock=17 * SECOND)
    assert query.state_rows() == 0


def test_ids_of_several_columns_and_of_where_rows_stand(tmp_path: Path) -> None:
    rows = [row(1, "a", 1), row(1, "a", 2, (0, 1)), row(1, "b", 1, (0, 1)), row(2, "a", 1)]
    query = Query(tmp_path / "columns", made(["id", "v"]))
    query.batch([batch_of(SCHEMA, rows)], clock=0)
    assert [(each["id"], each["v"]) for each in query.changes] == [("a", 1), ("a", 2), ("b", 1)]
    query = Query(tmp_path / "places", made(["_partition", "_offset"]))
    query.batch([batch_of(SCHEMA, rows)], clock=0)
    assert [each["v"] for each in query.changes] == [1, 1]


def test_event_time_may_be_a_column_about_the_record(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("_time", pa.timestamp("ms", "UTC"))])
    kernel = DedupKernel("id", schema, "_time", WITHIN * SECOND)
    assert kernel.needed == ("id", "_time")
    assert kernel.output.names == ["id", "_time", "_weight"]
    query = Query(tmp_path, kernel)
    query.batch([batch_of(schema, [{"id": 1, "_time": each} for each in (7000, 6000, 11_000)])])
    assert [each["_time"].second for each in query.changes] == [6]


def test_rows_without_time_are_refused() -> None:
    with pytest.raises(KernelError, match="1 rows have no event time"):
        made().partial(batch_of(SCHEMA, [{"id": "a"}]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"key": ()}, "key"),
        ({"schema": SCHEMA.append(pa.field("_weight", pa.int32()))}, "table"),
        ({"time": "v"}, "double"),
        ({"within": 0}, "within 0"),
        ({"emit": "often"}, "'often'"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], told: str) -> None:
    options = {"key": "id", "schema": SCHEMA, "time": "at", "within": 1, **change}
    with pytest.raises(InvalidInput, match=told) as refused:
        DedupKernel(**options)
    assert refused.value.hint
