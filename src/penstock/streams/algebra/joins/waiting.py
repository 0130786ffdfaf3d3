"""Events of a stream with the row of a table that was valid when they happened, each given once.

    kernel = WaitingKernel([("customer", "id")], orders, customers, event_time="at",
                           table_time="since")

As `TemporalKernel` where nothing is corrected and no event is taken back, so that an event that was
given out is forgotten. Those that wait for the clock are kept in chunks, of one key and one after
the other in time, so that few are read before their time has come.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers, frozen
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT_FIELD
from penstock.streams.algebra.joins.enrichment import Enrichment
from penstock.streams.algebra.joins.pairs import have_keys
from penstock.streams.algebra.joins.row_chunks import Entries, RowChunks
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, ROW, SIDE, of_side
from penstock.streams.algebra.joins.versions import NONE, Versions, let_go, versions_of
from penstock.streams.algebra.kernel import NEVER, one_batch, passed, without_late
from penstock.streams.algebra.rows.groups import distinct_keys, each_once
from penstock.streams.state import BucketState, fixed_width

_MOST = 64  # events of a chunk


class WaitingKernel(Enrichment):
    """Columns of the event, then of the table, then `_time`, which is the event's."""

    is_final = False
    takes_back = False

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        events: pa.Schema,
        table: pa.Schema,
        how: str = "left",
        *,
        event_time: str,
        table_time: str,
        broadcast: bool = False,
    ) -> None:
        super().__init__(
            on,
            events,
            table,
            how,
            event_time=event_time,
            table_time=table_time,
            broadcast=broadcast,
        )
        self._chunks = RowChunks(timed=True)
        self.state = self.state_with_versions(list(self._chunks.cells))
        self.output = pa.schema([*self.columns, pa.field(TIME, TIME_TYPE), WEIGHT_FIELD])

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        due = state.due(now) if now > NEVER else np.empty(0, np.int64)
        falling = state.take_keys(due)
        of_table = fixed_width.numbers(falling.column(SIDE)) == RIGHT
        told = self._told(state, of_side(packed, RIGHT))
        arrived = self._arrived(state, of_side(packed, LEFT), before)
        waited = self._waited(state, due[~of_table], falling.filter(pa.array(~of_table)))
        events = _Events.all_of([waited, arrived])
        touched = [falling.filter(pa.array(of_table)), *told]
        asked = one_batch([events.keys, *(each.select(list(self.keys)) for each in touched)])
        if asked is None:
            return
        columns, ids = distinct_keys(asked, len(self.keys))
        versions = versions_of(state, columns, int(ids.max()) + 1)
        ready, ids = events.times < now, ids[: len(events.times)]
        yield from self._given(state, events.where(ready), ids[ready], versions)
        let_go(state, versions, now, 0)
        self._keep(state, events.where(~ready), ids[~ready])

    def _told(self, state: BucketState, rows: pa.RecordBatch | None) -> list[pa.RecordBatch]:
        """Keeps what the table says from a time on, whenever it comes; gives its keys."""
        if rows is None:
            return []
        rows = rows.filter(pa.array(have_keys(rows, len(self.keys))))
        elements = rows.select(self.state.keys.names)
        state.find_or_add(elements)
        return [elements]

    def _arrived(self, state: BucketState, rows: pa.RecordBatch | None, before: int) -> "_Events":
        if rows is not None:
            late = fixed_width.numbers(rows.column(TIME)) < before
            rows = without_late(state, rows, late, np.ones(rows.num_rows, np.int64))
        if rows is None:
            rows = pa.RecordBatch.from_pylist([], self.packed)
        times = fixed_width.numbers(rows.column(TIME))
        bytes_of = rows.column(ROW).cast(pa.large_binary())
        return _Events(rows.select(list(self.keys)), times, bytes_of)

    def _waited(self, state: BucketState, places: Numbers, chunks: pa.RecordBatch) -> "_Events":
        """The events of chunks, of which some have waited long enough; they are not kept."""
        entries = self._chunks.unpack(state.take_values(places))
        state.remove(places)
        owners = np.repeat(np.arange(len(places)), np.diff(entries.starts))
        keys = chunks.select(list(self.keys)).take(pa.array(owners))
        return _Events(keys, entries.times, entries.rows)

    def _given(
        self, state: BucketState, events: "_Events", ids: Numbers, versions: Versions
    ) -> Iterator[pa.RecordBatch]:
        if len(ids) == 0:
            return
        asked = np.where(have_keys(events.keys, len(self.keys)), ids, NONE)
        version = versions.at(asked, events.times)
        there: Mask = np.zeros(len(version), np.bool_)
        if len(versions.rows):
            there = (version != NONE) & versions.are_there[version]
        right = self.sides[RIGHT]
        if there.any():
            some = events.where(there)
            used = each_once(version[there])
            columns = right.read(state.take_keys(versions.rows[used]))
            which = pa.array(np.searchsorted(used, version[there]))
            yield self._batch(some, [column.take(which) for column in columns])
        if self.how == "left" and not there.all():
            some = events.where(~there)
            yield self._batch(some, right.nothing(some.keys, self.sides[LEFT]))

    def _batch(self, events: "_Events", table: list[pa.Array]) -> pa.RecordBatch:
        left = self.sides[LEFT]
        columns = [*left.shown(events.keys.columns, left.inside(events.rows)), *table]
        stamps = pa.array(events.times).cast(TIME_TYPE)
        ones = pa.array(np.ones(len(events.times), np.int32))
        return pa.RecordBatch.from_arrays([*columns, stamps, ones], schema=self.output)

    def _keep(self, state: BucketState, events: "_Events", ids: Numbers) -> None:
        """In chunks that fall due with their first event, by the number of its key."""
        if len(events.times) == 0:
            return
        order = np.argsort(ids, kind="stable")
        # The order in time matters to those alone that have several chunks.
        several = np.flatnonzero((np.bincount(ids) > _MOST)[ids[order]])
        some = order[several]
        order[several] = some[np.lexsort((events.times[some], ids[some]))]
        events, ids = events.take(order), ids[order]
        places = np.arange(len(ids)) - np.searchsorted(ids, ids)
        starts = np.flatnonzero(places % _MOST == 0)
        entries = Entries(frozen(np.append(starts, len(ids))), frozen(events.times), events.rows)
        count = len(starts)
        elements = [
            *(column.take(pa.array(starts)) for column in events.keys.columns),
            pa.array(np.full(count, LEFT, np.int8)),
            pa.array(np.full(count, state.version)),  # what tells the chunks of a key apart
            pa.array(places[starts]),
            pa.array([b""] * count, pa.binary()),
        ]
        kept = state.find_or_add(pa.RecordBatch.from_arrays(elements, schema=self.state.keys))
        firsts = np.minimum.reduceat(events.times, starts)
        values = [*self._chunks.pack(entries), pa.array(firsts + 1)]
        state.put(kept, pa.RecordBatch.from_arrays(values, schema=self.state.values))

    def spec(self) -> dict[str, Any]:
        left, right = self.sides
        return {
            "kernel": "waiting",
            "on": self.on,
            "left": left.described(),
            "right": right.described(),
            "how": self.how,
            "broadcast": self.broadcast,
            "times": [left.time, right.time],
        }


class _Events(NamedTuple):
    keys: pa.RecordBatch
    times: Numbers
    rows: pa.Array

    @classmethod
    def all_of(cls, parts: Sequence["_Events"]) -> "_Events":
        return cls(
            pa.concat_batches([each.keys for each in parts]),
            np.concatenate([each.times for each in parts]),
            pa.concat_arrays([each.rows for each in parts]),
        )

    def where(self, chosen: Mask) -> "_Events":
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    def take(self, which: Numbers) -> "_Events":
        indices = pa.array(which)
        return _Events(self.keys.take(indices), self.times[which], self.rows.take(indices))
