"""Where packed rows go, and enrichment by a table that every bucket has against one by key."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams.algebra.changes import DELETED, OFFSET, TIME_TYPE, WEIGHT
from penstock.streams.algebra.joins.lookup import LookupKernel
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, SIDE
from penstock.streams.algebra.joins.temporal import TemporalKernel
from penstock.streams.algebra.kernel import END
from penstock.streams.algebra.spreading import BROADCAST, Spread
from penstock.streams.state import rescale
from tests.streams.algebra.batches import MISHAPS, Query

Rows = list[tuple[Any, ...]]
Enrichment = TemporalKernel | LookupKernel

EVENTS = pa.schema({"n": pa.int64(), "c": pa.string(), "at": TIME_TYPE})
CHANGED_EVENTS = EVENTS.append(pa.field(WEIGHT, pa.int32()))
UPSERTS = pa.schema(
    {
        "id": pa.string(),
        "rate": pa.int64(),
        "since": TIME_TYPE,
        OFFSET: pa.int64(),
        DELETED: pa.bool_(),
    }
)
KINDS = ["temporal", "temporal of changes", "lookup"]


def kernel_for(kind: str, how: str = "left", *, broadcast: bool) -> Enrichment:
    on = [("c", "id")]
    if kind == "lookup":
        return LookupKernel(on, EVENTS, UPSERTS, how, event_time="at", broadcast=broadcast)
    return TemporalKernel(
        on,
        CHANGED_EVENTS if kind == "temporal of changes" else EVENTS,
        UPSERTS,
        how,
        event_time="at",
        table_time="since",
        correct_for=5,
        broadcast=broadcast,
    )


def packed(kernel: Enrichment, side: int, rows: Rows) -> pa.RecordBatch:
    schema = kernel.sides[side].schema
    made = [dict(zip(schema.names, row, strict=False)) for row in rows]
    return kernel.sides[side].partial(pa.RecordBatch.from_pylist(made, schema))


class Enriching(Query):
    """Spreads each side as the kernel wants it."""

    kernel: Enrichment

    def enrich(self, events: Rows, upserts: Rows, mishap: str, clock: int) -> Counter[str]:
        both = [packed(self.kernel, LEFT, events), packed(self.kernel, RIGHT, upserts)]
        found: Counter[str] = Counter()
        for row in self.packed_batch(both, mishap, clock):
            weight = row.pop(WEIGHT, 1)
            found[repr(row)] += weight
        return found

    def _of_bucket(self, packed: pa.RecordBatch, bucket: int) -> pa.RecordBatch:
        side = packed.column(SIDE)[0].as_py() if packed.num_rows else LEFT
        spread = self.kernel.spreads[side]
        parts = dict(spread.parts(packed, self.kernel.keys, self._buckets))
        return parts.get(bucket, packed.slice(0, 0))

    def rescale(self, buckets: int) -> None:
        if buckets != self._buckets and self._version >= 0:
            rescale(
                self._folder / "durable",
                operator="kernel",
                from_buckets=self._buckets,
                to_buckets=buckets,
                version=self._version,
            )
            self._buckets = buckets

    def copies(self) -> list[set[str]]:
        """What each bucket has of the table."""
        found = []
        for bucket in range(self._buckets):
            with self._open(bucket) as state:
                rows = [row for batch in state.all_rows() for row in batch.to_pylist()]
                found.append({repr(row) for row in rows if row.get(SIDE, RIGHT) == RIGHT})
        return found


keys = st.none() | st.sampled_from("ab")
events = st.tuples(st.integers(1, 3), keys, st.integers(0, 20), st.sampled_from([1, 1, -1]))
upserts = st.tuples(keys, st.none() | st.integers(1, 9), st.integers(-5, 20))
batches = st.tuples(
    st.lists(events, max_size=6),
    st.lists(upserts, max_size=4),
    st.integers(0, 6),
    st.integers(1, 4),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(
    how=st.sampled_from(["left", "inner"]),
    history=st.lists(batches, min_size=1, max_size=4),
    mishap=st.sampled_from(MISHAPS),
    buckets=st.integers(2, 4),
)
def test_a_table_in_every_bucket_enriches_as_one_by_key_does(
    kind: str,
    how: str,
    history: list[tuple[Rows, Rows, int, int]],
    mishap: str,
    buckets: int,
) -> None:
    """Batch by batch, also when the number of buckets changes on the way; the clock, and what is
    late and corrected, are the same."""
    clock = place = 0
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        by_key = Enriching(Path(one), kernel_for(kind, how, broadcast=False), buckets=2)
        everywhere = Enriching(Path(other), kernel_for(kind, how, broadcast=True), buckets=buckets)
        for came, told, passed, buckets_then in [*history, ([], [], END, buckets)]:
            changes = []
            for key, rate, since in told:
                place += 1
                changes.append((key, rate, since, place, rate is None))
            clock += passed
            expected = by_key.enrich(came, changes, mishap, clock)
            assert everywhere.enrich(came, changes, mishap, clock) == expected
            everywhere.rescale(buckets_then)
        first, *others = everywhere.copies()
        assert all(each == first for each in others)
        assert first == set().union(*by_key.copies())
        assert everywhere.late() == by_key.late()


def many(count: int) -> Rows:
    """Nine in ten have one key."""
    random = np.random.default_rng(7)
    names = np.where(random.random(count) < 0.9, "hot", random.integers(0, 1000, count).astype(str))
    return [(n, name, n) for n, name in enumerate(names.tolist())]


@pytest.mark.parametrize("kind", KINDS)
def test_no_bucket_has_most_of_the_events_of_a_key_that_most_have(kind: str) -> None:
    kernel = kernel_for(kind, broadcast=True)
    rows = packed(kernel, LEFT, [(*row, 1) for row in many(8000)])
    shares = {
        spread: [part.num_rows / 8000 for _, part in spread.parts(rows, kernel.keys, 8)]
        for spread in (Spread.BY_KEY, Spread.BY_ROW)
    }
    assert max(shares[Spread.BY_KEY]) > 0.9
    assert len(shares[Spread.BY_ROW]) == 8
    assert max(shares[Spread.BY_ROW]) < 0.15


@given(some=st.lists(events, max_size=30), buckets=st.integers(1, 5), cut=st.integers(0, 30))
def test_a_row_goes_where_its_content_says(some: Rows, buckets: int, cut: int) -> None:
    """Whatever comes with it and however often it is there; where state looks for it too."""
    kernel = kernel_for("temporal of changes", broadcast=True)
    spread, names = BROADCAST[LEFT], kernel.state.keys.names
    rows = packed(kernel, LEFT, some)
    taken_back = packed(kernel, LEFT, [(*row[:3], -row[3]) for row in some])
    places: dict[str, int] = {}
    count = 0
    for each in (rows, taken_back, rows.slice(0, cut), rows.slice(cut)):
        for bucket, part in spread.parts(each, kernel.keys, buckets):
            elements = part.select(names)
            assert set(kernel.state.buckets_of(elements, buckets)) == {bucket}
            count += part.num_rows
            for row in elements.to_pylist():
                assert places.setdefault(repr(row), bucket) == bucket
    assert count == 3 * len(some)


def test_rows_that_go_together_keep_their_order() -> None:
    kernel = kernel_for("lookup", broadcast=True)
    rows = packed(kernel, RIGHT, [(name, n, n, n, False) for n, name, _ in many(500)])
    for spread in Spread:
        for _, part in spread.parts(rows, kernel.keys, 3):
            times = part.column(part.schema.get_field_index("(place)")).to_pylist()
            assert times == sorted(times)


def test_every_bucket_has_what_goes_everywhere() -> None:
    kernel = kernel_for("temporal", broadcast=True)
    rows = packed(kernel, RIGHT, [("a", 1, 0, 1, False), ("b", 2, 0, 2, False)])
    parts = dict(BROADCAST[RIGHT].parts(rows, kernel.keys, 3))
    assert list(parts) == [0, 1, 2]
    assert all(each.equals(rows) for each in parts.values())
