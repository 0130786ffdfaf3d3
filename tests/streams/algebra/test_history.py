"""All versions of the rows of a table, against a look at all upserts."""

import json
import tempfile
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import DELETED, OFFSET, TIME, TIME_TYPE, WEIGHT
from penstock.streams.algebra.kernel import END
from penstock.streams.algebra.kernels import kernel_from_spec
from penstock.streams.algebra.keyed.history import HistoryKernel
from tests.streams.algebra.batches import MISHAPS, Query, batch_of, cut

SCHEMA = pa.schema(
    {
        "since": TIME_TYPE,
        "rate": pa.float64(),
        "id": pa.string(),
        DELETED: pa.bool_(),
        OFFSET: pa.int64(),
    }
)
GONE = "gone"
Upsert = tuple[str, float | str | None, int]  # key, rate or that it is deleted, time
Run = tuple[float | str | None, int, int | None]  # rate or that it is deleted, from, to

upserts = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from([1.0, float("nan"), GONE]),
    st.integers(0, 9),
)
batches = st.lists(st.tuples(st.lists(upserts, max_size=4), st.integers(0, 3)), max_size=7)


def batch(rows: list[Upsert], first: int = 0) -> pa.RecordBatch:
    return batch_of(
        SCHEMA,
        [
            {
                "id": key,
                "rate": time if rate == GONE else rate,  # of which nothing counts
                "since": time,
                DELETED: rate == GONE,
                OFFSET: first + number,
            }
            for number, (key, rate, time) in enumerate(rows)
        ],
    )


def runs_of(told: list[Upsert]) -> list[Run]:
    """The rates of one key and when they are valid."""
    at = {time: rate for _, rate, time in told}
    starts = [next(run) for _, run in groupby(sorted(at), key=lambda time: repr(at[time]))]
    return [(at[start], start, end) for start, end in zip_longest(starts, starts[1:])]


def version(key: str, run: Run, number: int | None) -> str:
    rate, since, until = run
    return repr((key, rate, number, since, until))


def table(query: Query, *, numbered: bool) -> list[str]:
    """What is there after all changes, each of which has to fit those before it."""
    rows: dict[tuple[str, int], str] = {}
    for change in query.changes:
        since, until = micros(change["valid_from"]), micros(change["valid_to"])
        assert since is not None
        assert micros(change[TIME]) == since
        told = version(
            change["id"],
            (change["rate"], since, until),
            change["version"] if numbered else None,
        )
        if change[WEIGHT] == 1:
            assert (change["id"], since) not in rows
            rows[change["id"], since] = told
        else:
            assert rows.pop((change["id"], since)) == told
    return sorted(rows.values())


def micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)).microseconds


@settings(max_examples=40)
@given(
    batches,
    st.sampled_from([None, 2, 6]),
    st.lists(st.integers(0, 4), max_size=2),
    st.randoms(use_true_random=False),
    st.sampled_from(MISHAPS),
    st.integers(1, 2),
)
def test_after_every_batch_all_versions_are_there(
    history: list[tuple[list[Upsert], int]],
    keep: int | None,
    cuts: list[int],
    random: Any,
    mishap: str,
    buckets: int,
) -> None:
    """With keep, those that ended so long ago are not; their numbers go on."""
    kernel = HistoryKernel("id", SCHEMA, "since", keep)
    told: dict[str, list[Upsert]] = {"a": [], "b": []}
    clock, place = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=buckets)
        for came, later in history:
            horizon = -1 if keep is None else clock - keep
            # What has left is not told otherwise: nobody would know what was before it.
            known = {(key, row[2]) for key, own in told.items() for row in own}
            rows = [row for row in came if row[2] > horizon or (row[0], row[2]) not in known]
            clock += later
            order = list(range(len(rows)))
            random.shuffle(order)
            shuffled = batch(rows, place).take(pa.array(order, pa.int64()))
            query.batch(cut(shuffled, cuts), mishap, clock)
            place += len(rows)
            horizon = -1 if keep is None else clock - keep
            wanted = []
            for key, own in told.items():
                own += [row for row in rows if row[0] == key]
                runs = runs_of(own)
                valid = [run for run in runs if run[0] != GONE]
                for number, run in enumerate(valid, start=1):
                    if run[2] is None or run[2] > horizon:
                        wanted.append(version(key, run, None if keep else number))
                if runs and runs[-1][0] == GONE and runs[-1][1] <= horizon:
                    own.clear()  # the key is forgotten
            assert table(query, numbered=keep is None) == sorted(wanted)


def test_what_changes_between_two_versions(tmp_path: Path) -> None:
    query = Query(tmp_path, HistoryKernel("id", SCHEMA, "since"))

    def told(*rows: Upsert) -> list[tuple[Any, ...]]:
        names = ("rate", "version", "valid_from", "valid_to")
        given = query.batch([batch(list(rows))])
        assert list(given[0]) == ["id", *names, TIME, WEIGHT] if given else True
        return [
            (row[WEIGHT], row["rate"], row["version"], *(micros(row[name]) for name in names[2:]))
            for row in given
        ]

    assert told(("a", 1.0, 0)) == [(1, 1.0, 1, 0, None)]
    assert told(("a", 2.0, 9)) == [
        (-1, 1.0, 1, 0, None),
        (1, 1.0, 1, 0, 9),
        (1, 2.0, 2, 9, None),
    ]
    assert told(("a", 2.0, 12)) == []  # it goes on as it is
    assert told(("a", 3.0, 5)) == [  # out of order: the numbers after it move
        (-1, 1.0, 1, 0, 9),
        (-1, 2.0, 2, 9, None),
        (1, 1.0, 1, 0, 5),
        (1, 3.0, 2, 5, 9),
        (1, 2.0, 3, 9, None),
    ]
    assert told(("a", 4.0, 5)) == [(-1, 3.0, 2, 5, 9), (1, 4.0, 2, 5, 9)]
    assert told(("a", GONE, 20)) == [(-1, 2.0, 3, 9, None), (1, 2.0, 3, 9, 20)]
    assert told(("a", 2.0, 30)) == [(1, 2.0, 4, 30, None)]
    assert told(("a", 4.0, 10)) == [  # between two that are equal
        (-1, 2.0, 3, 9, 20),
        (-1, 2.0, 4, 30, None),
        (1, 2.0, 3, 9, 10),
        (1, 4.0, 4, 10, 12),
        (1, 2.0, 5, 12, 20),
        (1, 2.0, 6, 30, None),
    ]


def test_versions_that_ended_long_ago_are_let_go_and_numbers_go_on(tmp_path: Path) -> None:
    query = Query(tmp_path, HistoryKernel("id", SCHEMA, "since", keep=2))
    for time in range(1, 30):
        query.batch([batch([("a", float(time), time)])], clock=time)
        assert query.state_rows() <= 4
    (gone,) = query.batch([], clock=30)  # by the clock alone
    assert (gone["rate"], gone[WEIGHT]) == (27.0, -1)
    assert table(query, numbered=True) == [
        version("a", (28.0, 28, 29), 28),
        version("a", (29.0, 29, None), 29),
    ]
    # Nobody knows where among the others it was.
    assert query.batch([batch([("a", 5.0, 5)])], clock=30) == []
    assert query.late() == 1
    query.batch([batch([("a", GONE, 30), ("a", GONE, 39)])], clock=40)
    assert query.state_rows() == 0


def test_a_version_may_begin_earlier_than_was_known_when_the_one_before_has_left(
    tmp_path: Path,
) -> None:
    query = Query(tmp_path, HistoryKernel("id", SCHEMA, "since", keep=2))
    query.batch([batch([("a", 1.0, 1), ("a", 2.0, 5)])], clock=9)
    query.batch([batch([("a", 2.0, 0)])], clock=9)  # before what has left, and not beside it
    assert table(query, numbered=False) == [version("a", (2.0, 5, None), None)]
    query.batch([batch([("a", 2.0, 3)])], clock=9)
    assert table(query, numbered=False) == [version("a", (2.0, 3, None), None)]


def test_in_a_batch_nothing_leaves(tmp_path: Path) -> None:
    query = Query(tmp_path, HistoryKernel("id", SCHEMA, "since", keep=2))
    query.batch([batch([("a", 1.0, 0), ("a", 2.0, 5), ("a", GONE, 9)])], clock=END)
    assert len(table(query, numbered=True)) == 2


def test_rows_of_any_type_are_compared(tmp_path: Path) -> None:
    schema = pa.schema(
        [("a", pa.int64()), ("b", pa.string()), ("tags", pa.list_(pa.string())), ("at", TIME_TYPE)]
    )
    kernel = HistoryKernel(["b", "a"], schema, "at")
    query = Query(tmp_path, kernel)
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": None, "tags": ["x"], "at": 1},
        {"a": 1, "b": None, "tags": ["x"], "at": 2},
        {"a": 1, "b": None, "tags": ["x", None], "at": 3},
        {"a": 1, "b": "", "tags": ["x", None], "at": 4},
    ]
    found = query.batch([batch_of(schema, rows)])
    assert [(row["b"], row["tags"], row["version"]) for row in found] == [
        (None, ["x"], 1),
        (None, ["x", None], 2),
        ("", ["x", None], 1),
    ]
    assert kernel.output.names[:3] == ["b", "a", "tags"]


def test_a_spec_gives_the_same_kernel() -> None:
    kernel = HistoryKernel("id", SCHEMA, "since", keep=5)
    again = kernel_from_spec(json.loads(json.dumps(kernel.spec())))
    assert again.spec() == kernel.spec()
    assert (again.packed, again.output) == (kernel.packed, kernel.output)


def test_what_has_no_history_is_refused() -> None:
    with pytest.raises(InvalidInput, match="made of upserts"):
        HistoryKernel("id", SCHEMA.append(pa.field(WEIGHT, pa.int32())), "since")
    with pytest.raises(InvalidInput, match="'version' twice"):
        HistoryKernel("id", SCHEMA.append(pa.field("version", pa.string())), "since")
    with pytest.raises(InvalidInput, match="event time 'rate'"):
        HistoryKernel("id", SCHEMA, "rate")
