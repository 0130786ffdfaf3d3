"""The join of two streams: pairs of rows that happened within an interval of each other.

    kernel = IntervalJoinKernel([("user", "who")], searches, clicks, 0, 5_000_000, how="left",
                                left_time="at", right_time="seen")

A right row may be from `lowest` to `highest` microseconds after the left one, both included. Time
is cut into panes as wide as that, so that the partners of a row lie in two panes at most and
nothing else of its key is looked at. A row is kept until the clock is past its last partner, and
then for `correct_for` more. One that has no partner comes out alone when the clock is past the last
it could have had, and is taken back if one comes as a correction.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import TIME, WEIGHT
from penstock.streams.algebra.joins.changed import Changed
from penstock.streams.algebra.joins.matches import MATCHES, Rows, Touched
from penstock.streams.algebra.joins.pairs import Pairs, have_keys
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, ROW, SIDE, two_sides
from penstock.streams.algebra.joins.within import Within
from penstock.streams.algebra.kernel import NEVER, one_batch, passed, without_late
from penstock.streams.algebra.rows.groups import keys_and
from penstock.streams.algebra.rows.own_columns import DUE, PANE
from penstock.streams.algebra.rows.weights import added_up, one_by_one, weights_of
from penstock.streams.state import BucketState, StateSchema, fixed_width

_AT = "(at)"  # the event time again, where it can be read without the key


class IntervalJoinKernel:
    """The event time of a row alone is the moment from which it can have no partner."""

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        left: pa.Schema,
        right: pa.Schema,
        lowest: int,
        highest: int,
        how: str = "inner",
        *,
        left_time: str,
        right_time: str,
        on_once: bool = False,
        correct_for: int = 0,
    ) -> None:
        self.sides = two_sides(
            on, left, right, left_time=left_time, right_time=right_time, on_once=on_once
        )
        self.on = [list(each) for each in on]
        self.within = Within(lowest, highest)
        self.how = how
        self.correct_for = correct_for
        self.keys = self.sides[LEFT].keys
        self.packed = self.sides[LEFT].packed
        self._pairs = Pairs(self.sides, how)
        self.output = self._pairs.output
        keys = self.packed
        self.state = StateSchema(
            pa.schema(
                [
                    *(keys.field(name) for name in (*self.keys, SIDE)),
                    pa.field(PANE, pa.int64()),
                    keys.field(TIME),
                    keys.field(ROW),
                ]
            ),
            pa.schema(
                [keys.field(WEIGHT), (MATCHES, pa.int64()), (_AT, pa.int64()), (DUE, pa.int64())]
            ),
            due=DUE,
            spread=len(self.keys),
            grouped=len(self.keys) + 2,
        )

    @property
    def is_final(self) -> bool:
        """Of streams, only what came out alone is ever taken back."""
        return not any(WEIGHT in side.schema.names for side in self.sides)

    @property
    def takes_back(self) -> bool:
        alone = any(self._pairs.gives_alone(side) for side in (LEFT, RIGHT))
        return not self.is_final or (alone and self.correct_for > 0)

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
        touched = Touched()
        if rows is not None:
            changed = Changed(state, rows)
            state.fixed(_AT)[changed.places] = fixed_width.numbers(changed.rows.column(TIME))
            for name in (_AT, MATCHES):
                state.valid(name)[changed.places] = True
            touched.by(changed)
            for side in (LEFT, RIGHT):
                own = changed.of_side(side)
                own = own[have_keys(changed.rows, len(self.keys))[own]]
                candidates = self._candidates(state, changed, side, own)
                candidates = touched.counted(state, changed, own, candidates)
                if self._pairs.are_given:
                    yield from self._pairs.changed(state, changed, side, own, candidates)
                else:
                    deque(candidates, maxlen=0)  # only counted
        due = state.due(now) if now > NEVER else np.empty(0, np.int64)
        yield from self._settled(state, touched.rows(state, due), before, now)

    def _in_time(
        self, state: BucketState, rows: pa.RecordBatch | None, before: int
    ) -> pa.RecordBatch | None:
        if rows is None:
            return None
        late = fixed_width.numbers(rows.column(TIME)) < before - self.correct_for
        rows = without_late(state, rows, late, np.abs(weights_of(rows)))
        if rows is None:
            return None
        rows = added_up(rows)
        if rows.num_rows == 0:
            return None
        panes = self.within.pane(fixed_width.numbers(rows.column(TIME)))
        return rows.append_column(PANE, pa.array(panes))

    def _last_partner(self, times: Numbers, sides: Numbers) -> Numbers:
        """The last time that a partner of each row may have."""
        left, right = (self.within.partner_times(times, side)[1] for side in (LEFT, RIGHT))
        return np.where(sides == LEFT, left, right)

    def _candidates(
        self, state: BucketState, changed: Changed, side: int, own: Numbers
    ) -> Iterator[tuple[Numbers, Numbers]]:
        """Which of these changed elements, and the row of a partner."""
        times = fixed_width.numbers(changed.rows.column(TIME))[own]
        first, last = self.within.partner_times(times, side)
        keys = changed.keys_of(own)
        panes = [self.within.pane(first), self.within.pane(last)]
        behind = np.flatnonzero(panes[0] != panes[1])
        for pane, some in zip(panes, (np.arange(len(own)), behind), strict=True):
            indices = pa.array(some)
            groups = keys_and(
                [column.take(indices) for column in keys], len(some), 1 - side, pane[some]
            )
            for which, places in state.members(groups):
                mine, theirs = some[which], state.fixed(_AT)[places]
                inside = (first[mine] <= theirs) & (theirs <= last[mine])
                yield mine[inside], places[inside]

    def _settled(
        self, state: BucketState, rows: Rows, before: int, now: int
    ) -> Iterator[pa.RecordBatch]:
        """Gives what comes out alone, and lets go of what can have no partner any more."""
        if len(rows.places) == 0:
            return
        elements = state.take_keys(rows.places)
        sides = fixed_width.numbers(elements.column(SIDE))
        times = fixed_width.numbers(elements.column(TIME))
        last = self._last_partner(times, sides)
        waits = np.zeros(len(sides), np.bool_)
        for side in (LEFT, RIGHT):
            semi = self.how == "semi" and side == LEFT
            if not (semi or self._pairs.gives_alone(side)):
                continue
            own = np.flatnonzero(sides == side)
            if semi:
                was, is_now = rows.matches_before[own] > 0, rows.matches[own] > 0
            else:
                waits[own] = last[own] >= now
                was = (rows.matches_before[own] == 0) & (before > last[own])
                is_now = (rows.matches[own] == 0) & (now > last[own])
            weights = rows.weights[own] * is_now - rows.weights_before[own] * was
            known = np.maximum(times, last)[own]
            yield from self._pairs.alone(elements.take(pa.array(own)), side, weights, known)
        gone = (rows.weights == 0) | (now > last + self.correct_for)
        dues = np.where(waits, last, last + self.correct_for) + 1
        state.put(rows.places[~gone], pa.record_batch({DUE: pa.array(dues[~gone])}))
        state.remove(rows.places[gone])

    def spec(self) -> dict[str, Any]:
        left, right = self.sides
        return {
            "kernel": "interval_join",
            "on": self.on,
            "left": left.described(),
            "right": right.described(),
            "within": [self.within.lowest, self.within.highest],
            "how": self.how,
            "correct_for": self.correct_for,
            "times": [left.time, right.time],
        }
