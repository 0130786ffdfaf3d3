"""Events with the row of a table that was valid when they happened.

    kernel = TemporalKernel([("customer", "id")], orders, customers, event_time="at",
                            table_time="since", correct_for=3_600_000_000)

The table comes as upserts. Each is a version, valid from its time to that of the next one, and one
that deletes is a version too. An event is given out when the clock has passed it, so that every
change before it is known; for `correct_for` longer a version that comes late corrects it. Versions
are let go when no event can come any more that would ask for them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT, WEIGHT_FIELD
from penstock.streams.algebra.joins.changed import Changed
from penstock.streams.algebra.joins.enrichment import Enrichment
from penstock.streams.algebra.joins.pairs import have_keys
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, SIDE
from penstock.streams.algebra.joins.versions import NONE, Versions, let_go, versions_of
from penstock.streams.algebra.kernel import NEVER, one_batch, passed, without_late
from penstock.streams.algebra.rows.groups import distinct_keys, each_once, keys_and
from penstock.streams.algebra.rows.own_columns import DUE
from penstock.streams.algebra.rows.weights import added_up, one_by_one, weights_of
from penstock.streams.state import BucketState, fixed_width


class TemporalKernel(Enrichment):
    """Columns of the event, then of the table, then `_time`, which is the event's."""

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        events: pa.Schema,
        table: pa.Schema,
        how: str = "left",
        *,
        event_time: str,
        table_time: str,
        correct_for: int = 0,
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
        self.correct_for = correct_for
        self.state = self.state_with_versions([pa.field(WEIGHT, pa.int64())])
        self.output = pa.schema([*self.columns, pa.field(TIME, TIME_TYPE), WEIGHT_FIELD])

    @property
    def is_final(self) -> bool:
        return WEIGHT not in self.sides[LEFT].schema.names

    @property
    def takes_back(self) -> bool:
        return not self.is_final or self.correct_for > 0

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        changes = self._changes(state, packed, clock)
        return changes if self.takes_back else map(one_by_one, changes)

    def _changes(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        rows = self._in_time(state, one_batch(packed), before)
        due = state.due(now) if now > NEVER else np.empty(0, np.int64)
        falling = state.take_keys(due)
        of_table = fixed_width.numbers(falling.column(SIDE)) == RIGHT
        events = due[~of_table]
        touched = [falling.filter(pa.array(of_table)).select(list(self.keys))]
        changed = None
        if rows is not None:
            changed = Changed(state, rows)
            news = changed.of_side(RIGHT)
            keys = changed.keys_of(news)
            touched.append(pa.RecordBatch.from_arrays(keys, names=self.keys))
            came, given = changed.places[changed.of_side(LEFT)], []
            if self.correct_for:  # what was given out may have another answer
                given = [places for _, places in state.members(keys_and(keys, len(news), LEFT))]
            events = each_once(events, came, *given)
        elements = state.take_keys(events)
        asked = one_batch([elements.select(list(self.keys)), *touched])
        if asked is None:
            return
        columns, ids = distinct_keys(asked, len(self.keys))
        versions = versions_of(state, columns, int(ids.max()) + 1)
        if len(events):
            yield from self._given(
                state, events, elements, ids[: len(events)], versions, changed, before, now
            )
        let_go(state, versions, now, self.correct_for)

    def _in_time(
        self, state: BucketState, rows: pa.RecordBatch | None, before: int
    ) -> pa.RecordBatch | None:
        if rows is None:
            return None
        of_table = fixed_width.numbers(rows.column(SIDE)) == RIGHT
        late = fixed_width.numbers(rows.column(TIME)) < before - self.correct_for
        late &= ~of_table  # a version counts from its time on, whenever it comes
        nowhere = of_table & ~have_keys(rows, len(self.keys))
        if nowhere.any():
            rows, late = rows.filter(pa.array(~nowhere)), late[~nowhere]
        kept = without_late(state, rows, late, np.abs(weights_of(rows)))
        if kept is None or (kept := added_up(kept)).num_rows == 0:
            return None
        return kept

    def _given(
        self,
        state: BucketState,
        events: Numbers,
        elements: pa.RecordBatch,
        ids: Numbers,
        versions: Versions,
        changed: Changed | None,
        before: int,
        now: int,
    ) -> Iterator[pa.RecordBatch]:
        """What of these events is given out, or taken back; lets go of those that are done."""
        times = fixed_width.numbers(elements.column(TIME))
        weights_before = weights = state.fixed(WEIGHT)[events]
        if changed is not None:
            weights_before, weights, _ = changed.at(state, events)
        has_key = have_keys(elements, len(self.keys))
        asked = np.where(has_key, ids, -1)
        new = versions.at(asked, times)
        old = versions.at(asked, times, known=~versions.are_new) if versions.are_new.any() else new
        was, is_now = weights_before * (times < before), weights * (times < now)
        same = old == new
        changes = (
            (old, np.where(same, np.minimum(is_now - was, 0), -was)),
            (new, np.where(same, np.maximum(is_now - was, 0), is_now)),
        )
        for version, amounts in changes:
            there = np.zeros(len(version), np.bool_)
            if len(versions.rows):
                there = (version != NONE) & versions.are_there[version]
            if self.how == "inner":
                amounts = np.where(there, amounts, 0)
            for chosen, found in ((amounts != 0) & there, True), ((amounts != 0) & ~there, False):
                some = np.flatnonzero(chosen)
                if len(some):
                    rows = state.take_keys(versions.rows[version[some]]) if found else None
                    yield self._batch(elements.take(pa.array(some)), rows, amounts[some])
        gone = (weights == 0) | (now > times + self.correct_for)
        dues = np.where(times < now, times + self.correct_for, times) + 1
        state.put(events[~gone], pa.record_batch({DUE: pa.array(dues[~gone])}))
        state.remove(events[gone])

    def _batch(
        self, events: pa.RecordBatch, rows: pa.RecordBatch | None, weights: Numbers
    ) -> pa.RecordBatch:
        left, right = self.sides
        columns = left.read(events)
        columns += right.nothing(events, left) if rows is None else right.read(rows)
        stamps = events.column(TIME).cast(TIME_TYPE)
        arrays = [*columns, stamps, pa.array(weights.astype(np.int32))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def spec(self) -> dict[str, Any]:
        left, right = self.sides
        return {
            "kernel": "temporal",
            "on": self.on,
            "left": left.described(),
            "right": right.described(),
            "how": self.how,
            "correct_for": self.correct_for,
            "broadcast": self.broadcast,
            "times": [left.time, right.time],
        }
