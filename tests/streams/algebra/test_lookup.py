"""Events with what a table has as they are processed."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import DELETED, OFFSET, WEIGHT
from penstock.streams.algebra.joins.lookup import LookupKernel
from tests.streams.algebra.batches import MISHAPS, Query

EVENTS = pa.schema({"n": pa.int64(), "c": pa.string()})
UPSERTS = pa.schema(
    {"id": pa.string(), "rate": pa.int64(), OFFSET: pa.int64(), DELETED: pa.bool_()}
)
CHANGES = pa.schema({"id": pa.string(), "rate": pa.int64(), WEIGHT: pa.int32()})
keys = st.sampled_from("ab")


def packed(kernel: LookupKernel, side: int, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    side_rows = kernel.sides[side]
    return side_rows.partial(pa.RecordBatch.from_pylist(rows, side_rows.schema))


@pytest.mark.parametrize("how", ["left", "inner"])
@settings(max_examples=40)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.tuples(keys, st.none() | st.integers(1, 9)), max_size=4),
            st.lists(st.none() | keys, max_size=4),
        ),
        max_size=5,
    ),
    mishap=st.sampled_from(MISHAPS),
    upserts=st.booleans(),
)
def test_events_have_what_the_table_has(
    how: str,
    batches: list[tuple[list[tuple[str, int | None]], list[str | None]]],
    mishap: str,
    upserts: bool,
) -> None:
    kernel = LookupKernel([("c", "id")], EVENTS, UPSERTS if upserts else CHANGES, how)
    table: dict[str, int] = {}
    place = 0
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=2)
        for news, events in batches:
            rows: list[dict[str, Any]] = []
            before = dict(table)
            for key, rate in news:
                place += 1
                rows.append({"id": key, "rate": rate, OFFSET: place, DELETED: rate is None})
                if rate is None:
                    table.pop(key, None)
                else:
                    table[key] = rate
            if not upserts:
                rows = [{"id": k, "rate": r, WEIGHT: 1} for k, r in table.items()]
                rows += [{"id": k, "rate": r, WEIGHT: -1} for k, r in before.items()]
            asking = [{"n": number, "c": key} for number, key in enumerate(events)]
            both = [packed(kernel, 0, asking), packed(kernel, 1, rows[::-1])]
            found = query.packed_batch(both, mishap)
            expected = [
                (number, key, table.get(key or ""))
                for number, key in enumerate(events)
                if how == "left" or key in table
            ]
            assert sorted(map(repr, map(tuple, map(dict.values, found)))) == sorted(
                map(repr, expected)
            )


def test_a_table_is_not_enriched_by_processing() -> None:
    weighted = EVENTS.append(pa.field(WEIGHT, pa.int32()))
    with pytest.raises(InvalidInput, match="could not be taken back"):
        LookupKernel([("c", "id")], weighted, UPSERTS)
