"""What joins give out: rows of both sides together, or of one side without the other."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT_FIELD
from penstock.streams.algebra.joins.changed import Changed
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, Side
from penstock.streams.state import BucketState, fixed_width

_PAIRED = ("inner", "left", "right", "full")
_ALONE = {LEFT: ("left", "full", "anti"), RIGHT: ("right", "full")}
KINDS = (*_PAIRED, "semi", "anti")


class Pairs:
    """Columns of the left and then of the right; of semi and anti only those of the left.

    With a time on either side, `_time` is that of the later row.
    """

    def __init__(self, sides: tuple[Side, Side], how: str) -> None:
        if how not in KINDS:
            raise InvalidInput(f"there is no {how!r} join", hint=f"how is {', '.join(KINDS)}")
        self.how = how
        self.sides = sides
        self.are_given = how in _PAIRED
        given = list(sides[LEFT].columns)
        if self.are_given:
            given += sides[RIGHT].columns
        self._timed = sides[LEFT].timed
        times = [pa.field(TIME, TIME_TYPE)] if self._timed else []
        self.output = pa.schema([*given, *times, WEIGHT_FIELD])

    def gives_alone(self, side: int) -> bool:
        """Whether rows of this side come out that have no partner."""
        return self.how in _ALONE[side]

    def changed(
        self,
        state: BucketState,
        changed: Changed,
        side: int,
        own: Numbers,
        candidates: Iterator[tuple[Numbers, Numbers]],
    ) -> Iterator[pa.RecordBatch]:
        """Every pair of one of `own`, changed elements of this side, with a candidate, whose weight
        is another one now, and by how much. Candidates are which of them, and rows of state."""
        mine = changed.rows.take(pa.array(own))
        columns = self.sides[side].read(mine)
        for which, places in candidates:
            here, there = own[which], changed.at(state, places)
            weights: Numbers = changed.after[here] * there.after
            weights -= changed.before[here] * there.before
            if side == RIGHT:  # a pair of two that changed has come already
                weights[there.are_changed] = 0
            chosen = np.flatnonzero(weights)
            if len(chosen) == 0:
                continue
            indices, found = pa.array(which[chosen]), state.take_keys(places[chosen])
            ours = [column.take(indices) for column in columns]
            theirs = self.sides[1 - side].read(found)
            together = [*ours, *theirs] if side == LEFT else [*theirs, *ours]
            if self._timed:
                times = pc.max_element_wise(mine.column(TIME).take(indices), found.column(TIME))
                together.append(times.cast(TIME_TYPE))
            yield self.batch(together, weights[chosen])

    def alone(
        self,
        elements: pa.RecordBatch,
        side: int,
        weights: Numbers,
        times: Numbers | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one side without those of the other, unless of no weight; as of other times."""
        chosen = np.flatnonzero(weights)
        if len(chosen) == 0:
            return
        elements = elements.take(pa.array(chosen))
        columns = self.sides[side].read(elements)
        if self.are_given:
            nothing = self.sides[1 - side].nothing(elements, self.sides[side])
            columns = [*columns, *nothing] if side == LEFT else [*nothing, *columns]
        if self._timed:
            stamps = elements.column(TIME) if times is None else pa.array(times[chosen])
            columns.append(stamps.cast(TIME_TYPE))
        yield self.batch(columns, weights[chosen])

    def batch(self, columns: list[pa.Array], weights: Numbers) -> pa.RecordBatch:
        arrays = [*columns, pa.array(weights).cast(pa.int32())]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)


def have_keys(rows: pa.RecordBatch, width: int) -> Mask:
    """Whether no column of the key is null, as a null equals nothing."""
    valid = np.ones(rows.num_rows, np.bool_)
    for column in rows.columns[:width]:
        valid &= fixed_width.validity(column)
    return valid
