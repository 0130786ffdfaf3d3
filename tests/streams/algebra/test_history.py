"""All versions of the rows of a table, against a look at all upserts."""

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
from penstock.streams.algebra.joins.history import HistoryKernel
from penstock.streams.algebra.kernel import END
from penstock.streams.algebra.kernels import kernel_from_spec
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
    st.sampled_from([1.0, None, 2.0, float("nan"), GONE]),
    st.integers(0, 12),
)
batches = st.lists(st.tuples(st.lists(upserts, max_size=4), st.integers(0, 3)), max_size=7)


def batch(rows: list[Upsert], first: int = 0) -> pa.RecordBatch:
    return batch_of(
        SCHEMA,
        [
            {
                "id": key,
                "rate": None if rate == GONE else rate,
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
    return [
        (at[start], start, end)
        for start, end in zip_longest(starts, starts[1:])
    ]


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


@settings(max_examples=100)
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
        for rows, later in history:
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
