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
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT, WEIGHT_FIELD
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, SIDE, two_sides
from penstock.streams.algebra.kernel import one_batch, schema_to_spec
from penstock.streams.algebra.rows.groups import distinct_keys, group_rows
from penstock.streams.state import BucketState, StateSchema, fixed_width

# Whether pairs come out, and rows of the left and the right that have no partner.
_PAIRS = ("inner", "left", "right", "full")
_ALONE = {LEFT: ("left", "full", "anti"), RIGHT: ("right", "full")}
KINDS = (*_PAIRS, "semi", "anti")


class TableJoinKernel:
    """Columns of the left and then of the right; of semi and anti only those of the left.

    A null equals nothing, unless `null_safe`. With a time on either side, `_time` is the later.
    """

    is_final = False
    portable = True

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        left: pa.Schema,
        right: pa.Schema,
        how: str = "inner",
        *,
        null_safe: bool = False,
        left_time: str | None = None,
        right_time: str | None = None,
    ) -> None:
        if how not in KINDS:
            raise InvalidInput(f"there is no {how!r} join", hint=f"how is {', '.join(KINDS)}")
        self.sides = two_sides(on, left, right, left_time=left_time, right_time=right_time)
        self.on = [tuple(each) for each in on]
        self.how = how
        self.null_safe = null_safe
        self.keys = self.sides[LEFT].keys
        self.packed = self.sides[LEFT].packed
        width = len(self.keys)
        self.state = StateSchema(
            self.sides[LEFT].element,
            pa.schema([self.packed.field(WEIGHT)]),
            spread=width,
            grouped=width + 1,
        )
        given = list(self.sides[LEFT].columns)
        if how in _PAIRS:
            given += self.sides[RIGHT].columns
        times = [pa.field(TIME, TIME_TYPE)] if self.sides[LEFT].timed else []
        self.output = pa.schema([*given, *times, WEIGHT_FIELD])

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        rows = added_up(rows)
        if not self.null_safe:
            rows, without_key = self._with_key(rows)
            for side in (LEFT, RIGHT):
                if self.how in _ALONE[side]:
                    some = _of_side(without_key, side)
                    yield from self._given(some, side, _weights(some))
        if rows.num_rows == 0:
            return
        changed = _Changed(state, rows)
        if self.how in _PAIRS:
            yield from self._pairs(state, changed)
        for side in (LEFT, RIGHT):
            if self.how in _ALONE[side] or (self.how == "semi" and side == LEFT):
                yield from self._alone(state, changed, side)
        changed.remove_gone(state)

    def _with_key(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        valid = np.ones(rows.num_rows, np.bool_)
        for column in rows.columns[: len(self.keys)]:
            valid &= fixed_width.validity(column)
        if valid.all():
            return rows, rows.slice(0, 0)
        return rows.filter(pa.array(valid)), rows.filter(pa.array(~valid))

    def _pairs(self, state: BucketState, changed: "_Changed") -> Iterator[pa.RecordBatch]:
        """Every pair whose weight is another one now, and by how much."""
        for side in (LEFT, RIGHT):
            own = np.flatnonzero(changed.sides == side)
            if len(own) == 0:
                continue
            mine = self.sides[side].read(changed.rows.take(pa.array(own)))
            times = self._times(changed.rows.take(pa.array(own)))
            for which, places in state.members(changed.groups_of(own, 1 - side)):
                here, there = own[which], changed.at(state, places)
                weights = changed.after[here] * there.after
                weights -= changed.before[here] * there.before
                if side == RIGHT:  # a pair of two that changed has come already
                    weights[there.are_changed] = 0
                chosen = np.flatnonzero(weights)
                if len(chosen) == 0:
                    continue
                found = state.take_keys(places[chosen])
                theirs = self.sides[1 - side].read(found)
                indices = pa.array(which[chosen])
                ours = [column.take(indices) for column in mine]
                together = [*ours, *theirs] if side == LEFT else [*theirs, *ours]
                if times is not None:
                    later = pc.max_element_wise(times.take(indices), found.column(TIME))
                    together.append(later.cast(TIME_TYPE))
                yield self._batch(together, weights[chosen])

    def _alone(
        self, state: BucketState, changed: "_Changed", side: int
    ) -> Iterator[pa.RecordBatch]:
        """Changes of the rows of a side that find a partner, for semi, or find none."""
        keys, ids = changed.keys()
        others = changed.counts(state, keys, ids, 1 - side)
        was, now = (count > 0 if self.how == "semi" else count == 0 for count in others)
        own = np.flatnonzero(changed.sides == side)
        weights = changed.after[own] * now[ids[own]] - changed.before[own] * was[ids[own]]
        chosen = np.flatnonzero(weights)
        yield from self._given(changed.rows.take(pa.array(own[chosen])), side, weights[chosen])
        turned = np.flatnonzero(was != now)
        if len(turned) == 0:
            return
        indices = pa.array(turned)
        groups = _groups([column.take(indices) for column in keys], len(turned), side)
        for which, places in state.members(groups):
            there = changed.at(state, places)
            signs = np.where(now[turned[which]], 1, -1)
            weights = np.where(there.are_changed, 0, there.after * signs)
            chosen = np.flatnonzero(weights)
            if len(chosen):
                yield from self._given(state.take_keys(places[chosen]), side, weights[chosen])

    def _given(
        self, elements: pa.RecordBatch, side: int, weights: Numbers
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one side without those of the other."""
        if elements.num_rows == 0:
            return
        columns = self.sides[side].read(elements)
        if self.how in _PAIRS:
            nothing = self.sides[1 - side].nothing(elements.num_rows)
            columns = [*columns, *nothing] if side == LEFT else [*nothing, *columns]
        times = self._times(elements)
        if times is not None:
            columns.append(times.cast(TIME_TYPE))
        yield self._batch(columns, weights)

    def _times(self, elements: pa.RecordBatch) -> pa.Array | None:
        return elements.column(TIME) if self.sides[LEFT].timed else None

    def _batch(self, columns: list[pa.Array], weights: Numbers) -> pa.RecordBatch:
        arrays = [*columns, pa.array(weights).cast(pa.int32())]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def spec(self) -> dict[str, Any]:
        left, right = self.sides
        return {
            "kernel": "table_join",
            "on": [list(each) for each in self.on],
            "left": schema_to_spec(left.schema),
            "right": schema_to_spec(right.schema),
            "how": self.how,
            "null_safe": self.null_safe,
            "times": [left.time, right.time],
        }


class _At:
    """Rows of state: their weight before and after the step, and whether they are changed by it."""

    def __init__(self, before: Numbers, after: Numbers, are_changed: Mask) -> None:
        self.before, self.after, self.are_changed = before, after, are_changed


class _Changed:
    """The elements that a step changes, in the state already with their new weight.

    Those of weight 0 stay until `remove_gone`.
    """

    def __init__(self, state: BucketState, rows: pa.RecordBatch) -> None:
        self.rows = rows.select(state.schema.keys.names)
        self.sides = fixed_width.numbers(rows.column(SIDE))
        self._places = state.find_or_add(self.rows)
        new = state.is_new(self._places)
        weights = state.fixed(WEIGHT)
        self.before = np.where(new, 0, weights[self._places])
        self.after = self.before + _weights(rows)
        weights[self._places] = self.after
        state.valid(WEIGHT)[self._places] = True
        self._width = len(state.schema.spread_keys)
        self._order = np.argsort(self._places)
        self._sorted = self._places[self._order]

    def groups_of(self, some: Numbers, side: int) -> pa.RecordBatch:
        """The group in which the partners of these elements are."""
        indices = pa.array(some)
        keys = [column.take(indices) for column in self.rows.columns[: self._width]]
        return _groups(keys, len(some), side)

    def keys(self) -> tuple[list[pa.Array], Numbers]:
        """The different join keys, and that of each element."""
        return distinct_keys(self.rows, self._width)

    def counts(
        self, state: BucketState, keys: list[pa.Array], ids: Numbers, side: int
    ) -> tuple[Numbers, Numbers]:
        """How many rows this side has of each key, before and after."""
        count = state.member_counts(_groups(keys, int(ids.max()) + 1, side))
        of_side = self.sides == side
        found = [
            count - np.bincount(ids[of_side & (weights == 0)], minlength=len(count))
            for weights in (self.before, self.after)
        ]
        return found[0], found[1]

    def at(self, state: BucketState, places: Numbers) -> _At:
        after = state.fixed(WEIGHT)[places]
        spots = np.minimum(np.searchsorted(self._sorted, places), len(self._sorted) - 1)
        are_changed = self._sorted[spots] == places
        before = np.where(are_changed, self.before[self._order[spots]], after)
        return _At(before, after, are_changed)

    def remove_gone(self, state: BucketState) -> None:
        state.remove(self._places[self.after == 0])


def added_up(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Each element once, with what all its weights add up to; without those of no weight."""
    weights = _weights(rows)
    groups = group_rows(rows.select([name for name in rows.schema.names if name != WEIGHT]))
    if not groups.are_single:
        total = np.zeros(len(groups), np.int64)
        np.add.at(total, groups.ids, weights)
        columns = [*groups.keys.columns, pa.array(total)]
        rows, weights = pa.RecordBatch.from_arrays(columns, schema=rows.schema), total
    if (weights == 0).any():
        rows = rows.filter(pa.array(weights != 0))
    return rows


def _groups(keys: list[pa.Array], length: int, side: int) -> pa.RecordBatch:
    columns = [*keys, pa.array(np.full(length, side, np.int8))]
    return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])


def _of_side(rows: pa.RecordBatch, side: int) -> pa.RecordBatch:
    return rows.filter(pa.array(fixed_width.numbers(rows.column(SIDE)) == side))


def _weights(rows: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(rows.column(WEIGHT))
