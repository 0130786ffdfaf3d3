"""Weights of rows: what a batch adds to them, and what they are before a step and after."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.state import BucketState, fixed_width


def weights_of(rows: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(rows.column(WEIGHT))


def weight_column(rows: pa.RecordBatch) -> pa.Array:
    """As int64; 1 for each row that has none, and is there to stay."""
    if WEIGHT in rows.schema.names:
        return rows.column(WEIGHT).cast(pa.int64())
    return pa.array(np.ones(rows.num_rows, np.int64))


def added_up(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Each row once, with what all its weights add up to; without those of no weight.

    Floats come as keys compare them, so that a row looks the same when it comes and when it goes.
    """
    weights = weights_of(rows)
    groups = group_rows(rows.select([name for name in rows.schema.names if name != WEIGHT]))
    if not groups.are_single:
        total = np.zeros(len(groups), np.int64)
        np.add.at(total, groups.ids, weights)
        weights = total
    named = dict(zip(groups.keys.schema.names, groups.keys.columns, strict=True))
    named[WEIGHT] = pa.array(weights)
    columns = [named[name] for name in rows.schema.names]
    rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    if (weights == 0).any():
        rows = rows.filter(pa.array(weights != 0))
    return rows


def one_by_one(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of which none is taken back, each as often as its weight says, with a weight of 1: as
    a stream has them, which tells no weights."""
    weights = weights_of(rows)
    if (weights == 1).all():
        return rows
    rows = rows.take(pa.array(np.repeat(np.arange(len(weights)), weights)))
    field = rows.schema.field(WEIGHT)
    ones = pa.array(np.ones(rows.num_rows, np.int64)).cast(field.type)
    return rows.set_column(rows.schema.get_field_index(WEIGHT), field, ones)


class Weights(NamedTuple):
    """Of rows of state, before the step and after, and whether it changes them."""

    before: Numbers
    after: Numbers
    are_changed: Mask


class WeightChanges:
    """The rows of state that a step changes, which have their new weight already; those of weight 0
    are there too, until they are removed."""

    def __init__(self, state: BucketState, places: Numbers, more: Numbers) -> None:
        """`places` are from `find_or_add`, each once, and get so much more weight."""
        self.places = places
        self.are_new = state.is_new(places)
        weights = state.fixed(WEIGHT)
        self.before = np.where(self.are_new, 0, weights[places])
        self.after = self.before + more
        weights[places] = self.after
        state.valid(WEIGHT)[places] = True
        self._order = np.argsort(places)
        self._sorted = places[self._order]

    def at(self, state: BucketState, places: Numbers) -> Weights:
        """Of any rows."""
        after = state.fixed(WEIGHT)[places]
        spots = np.minimum(np.searchsorted(self._sorted, places), len(self._sorted) - 1)
        are_changed = self._sorted[spots] == places
        before = np.where(are_changed, self.before[self._order[spots]], after)
        return Weights(before, after, are_changed)
