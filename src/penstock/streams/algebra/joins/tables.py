"""The join of two tables, kept up to date: a changelog of pairs.

    kernel = TableJoinKernel([("customer", "id")], orders, customers, how="left")

State has every row of both sides with its weight, found by key and side. A batch changes some rows;
of each pair that has one of these the product of the weights is compared before and after, so that
every pair comes out at most once, with what it changed by. Rows that find no partner follow the
number of rows that the other side has for their key.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.joins.changed import Changed
from penstock.streams.algebra.joins.pairs import Pairs, have_keys
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, SIDE, two_sides
from penstock.streams.algebra.kernel import one_batch
from penstock.streams.algebra.rows.groups import keys_and
from penstock.streams.algebra.rows.weights import added_up, one_by_one, weights_of
from penstock.streams.state import BucketState, StateSchema, fixed_width


class TableJoinKernel:
    """A null equals nothing, unless `null_safe`. With `on_once` the right's columns that are
    compared do not come out beside the left's."""

    is_final = False

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        left: pa.Schema,
        right: pa.Schema,
        how: str = "inner",
        *,
        null_safe: bool = False,
        on_once: bool = False,
        left_time: str | None = None,
        right_time: str | None = None,
    ) -> None:
        self.sides = two_sides(
            on, left, right, left_time=left_time, right_time=right_time, on_once=on_once
        )
        self.on = [list(each) for each in on]
        self.how = how
        self.null_safe = null_safe
        self.keys = self.sides[LEFT].keys
        self.packed = self.sides[LEFT].packed
        self._pairs = Pairs(self.sides, how)
        self.output = self._pairs.output
        self.state = StateSchema(
            self.sides[LEFT].element,
            pa.schema([self.packed.field(WEIGHT)]),
            spread=len(self.keys),
            grouped=len(self.keys) + 1,
        )

    @property
    def takes_back(self) -> bool:
        are_streams = not any(WEIGHT in side.schema.names for side in self.sides)
        return not are_streams or self.how not in ("inner", "semi")

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        changes = self._changes(state, packed)
        return changes if self.takes_back else map(one_by_one, changes)

    def _changes(
        self, state: BucketState, packed: Sequence[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        rows = added_up(rows)
        if not self.null_safe:
            have = have_keys(rows, len(self.keys))
            if not have.all():
                yield from self._without_key(rows.filter(pa.array(~have)))
                rows = rows.filter(pa.array(have))
        if rows.num_rows == 0:
            return
        changed = Changed(state, rows)
        for side in (LEFT, RIGHT):
            own = changed.of_side(side)
            if self._pairs.are_given and len(own):
                groups = keys_and(changed.keys_of(own), len(own), 1 - side)
                candidates = state.members(groups)
                yield from self._pairs.changed(state, changed, side, own, candidates)
        for side in (LEFT, RIGHT):
            if self._pairs.gives_alone(side) or (self.how == "semi" and side == LEFT):
                yield from self._alone(state, changed, side)
        state.remove(changed.places[changed.after == 0])

    def _without_key(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """They have no partner, and need not be kept to know it."""
        for side in (LEFT, RIGHT):
            if self._pairs.gives_alone(side):
                some = rows.filter(pa.array(fixed_width.numbers(rows.column(SIDE)) == side))
                yield from self._pairs.alone(some, side, weights_of(some))

    def _alone(self, state: BucketState, changed: Changed, side: int) -> Iterator[pa.RecordBatch]:
        """Changes of the rows of a side that find a partner, for semi, or find none."""
        keys, ids = changed.keys()
        others = _counts(state, changed, keys, ids, 1 - side)
        was, now = (count > 0 if self.how == "semi" else count == 0 for count in others)
        own = changed.of_side(side)
        weights = changed.after[own] * now[ids[own]] - changed.before[own] * was[ids[own]]
        yield from self._pairs.alone(changed.rows.take(pa.array(own)), side, weights)
        turned = np.flatnonzero(was != now)
        if len(turned) == 0:
            return
        indices = pa.array(turned)
        some = [column.take(indices) for column in keys]
        for which, places in state.members(keys_and(some, len(turned), side)):
            there = changed.at(state, places)
            signs = np.where(now[turned[which]], 1, -1)
            weights = np.where(there.are_changed, 0, there.after * signs)
            yield from self._pairs.alone(state.take_keys(places), side, weights)

    def spec(self) -> dict[str, Any]:
        left, right = self.sides
        return {
            "kernel": "table_join",
            "on": self.on,
            "left": left.described(),
            "right": right.described(),
            "how": self.how,
            "null_safe": self.null_safe,
            "times": [left.time, right.time],
        }


def _counts(
    state: BucketState, changed: Changed, keys: list[pa.Array], ids: Numbers, side: int
) -> tuple[Numbers, Numbers]:
    """How many rows this side has of each key, before and after."""
    count = state.member_counts(keys_and(keys, int(ids.max()) + 1, side))
    of_side = changed.sides == side
    before, after = (
        count - np.bincount(ids[of_side & (weights == 0)], minlength=len(count))
        for weights in (changed.before, changed.after)
    )
    return before, after
