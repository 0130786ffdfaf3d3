"""The elements of a join that a batch changes, with their weight before and after."""

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.joins.sides import SIDE
from penstock.streams.algebra.rows.groups import distinct_keys
from penstock.streams.algebra.rows.weights import WeightChanges, weights_of
from penstock.streams.state import BucketState, fixed_width


class Changed(WeightChanges):
    def __init__(self, state: BucketState, rows: pa.RecordBatch) -> None:
        self.rows = rows.select(state.schema.keys.names)
        self.sides = fixed_width.numbers(rows.column(SIDE))
        self._width = self.rows.schema.get_field_index(SIDE)  # it stands behind the join key
        super().__init__(state, state.find_or_add(self.rows), weights_of(rows))

    def of_side(self, side: int) -> Numbers:
        return np.flatnonzero(self.sides == side)

    def keys_of(self, some: Numbers) -> list[pa.Array]:
        """The columns of the join key of these elements."""
        indices = pa.array(some)
        return [column.take(indices) for column in self.rows.columns[: self._width]]

    def keys(self) -> tuple[list[pa.Array], Numbers]:
        """The different join keys, and that of each element."""
        return distinct_keys(self.rows, self._width)
