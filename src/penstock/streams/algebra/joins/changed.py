"""The elements of a join that a batch changes, with their weight before and after."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.joins.sides import SIDE
from penstock.streams.algebra.rows.groups import distinct_keys, group_rows
from penstock.streams.state import BucketState, fixed_width


class Weights(NamedTuple):
    """Of rows of state, before the step and after, and whether it changes them."""

    before: Numbers
    after: Numbers
    are_changed: Mask


class Changed:
    """They are in the state already with their new weight; those of weight 0 are so too, until
    they are removed."""

    def __init__(self, state: BucketState, rows: pa.RecordBatch) -> None:
        self.rows = rows.select(state.schema.keys.names)
        self.sides = fixed_width.numbers(rows.column(SIDE))
        self.places = state.find_or_add(self.rows)
        self.are_new = state.is_new(self.places)
        weights = state.fixed(WEIGHT)
        self.before = np.where(self.are_new, 0, weights[self.places])
        self.after = self.before + weights_of(rows)
        weights[self.places] = self.after
        state.valid(WEIGHT)[self.places] = True
        self._width = len(state.schema.spread_keys)
        self._order = np.argsort(self.places)
        self._sorted = self.places[self._order]

    def of_side(self, side: int) -> Numbers:
        return np.flatnonzero(self.sides == side)

    def keys_of(self, some: Numbers) -> list[pa.Array]:
        """The columns of the join key of these elements."""
        indices = pa.array(some)
        return [column.take(indices) for column in self.rows.columns[: self._width]]

    def keys(self) -> tuple[list[pa.Array], Numbers]:
        """The different join keys, and that of each element."""
        return distinct_keys(self.rows, self._width)

    def weights_at(self, state: BucketState, places: Numbers) -> Weights:
        after = state.fixed(WEIGHT)[places]
        spots = np.minimum(np.searchsorted(self._sorted, places), len(self._sorted) - 1)
        are_changed = self._sorted[spots] == places
        before = np.where(are_changed, self.before[self._order[spots]], after)
        return Weights(before, after, are_changed)


def added_up(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Each element once, with what all its weights add up to; without those of no weight."""
    weights = weights_of(rows)
    groups = group_rows(rows.select([name for name in rows.schema.names if name != WEIGHT]))
    if not groups.are_single:
        total = np.zeros(len(groups), np.int64)
        np.add.at(total, groups.ids, weights)
        columns = [*groups.keys.columns, pa.array(total)]
        rows, weights = pa.RecordBatch.from_arrays(columns, schema=rows.schema), total
    if (weights == 0).any():
        rows = rows.filter(pa.array(weights != 0))
    return rows


def weights_of(rows: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(rows.column(WEIGHT))


def group_keys(
    keys: list[pa.Array], length: int, side: int, panes: Numbers | None = None
) -> pa.RecordBatch:
    """The keys of groups of state: the join key, the side, and where time is cut the pane."""
    arrays = [*keys, pa.array(np.full(length, side, np.int8))]
    if panes is not None:
        arrays.append(pa.array(panes))
    return pa.RecordBatch.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])
