"""A table of the last row of each key, by event time, whenever it comes.

    kernel = LatestKernel("sensor", schema, time="at")

Rows are in the order of event time, partition and offset; those with the same place in it are in
the order of their values. The last one is kept whole, with its nulls, and its place beside it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import WEIGHT_FIELD, changes
from penstock.streams.algebra.folds.fold import take
from penstock.streams.algebra.kernel import one_batch
from penstock.streams.algebra.rows.groups import Groups, group_rows
from penstock.streams.algebra.rows.order import Picking
from penstock.streams.algebra.rows.shape import check_result_names
from penstock.streams.algebra.rows.whole import WholeRows
from penstock.streams.state import BucketState, StateSchema


class LatestKernel:
    """The columns of the schema but for those that begin with `_`, in its order, and `_time`."""

    portable = True
    is_final = False

    def __init__(self, key: str | Sequence[str], schema: pa.Schema, time: str) -> None:
        self._rows = WholeRows(key, schema, time)
        self._rows.refuse_tables("the last row of a key is looked for among events")
        check_result_names([each.name for each in self._rows.columns])
        self.keys = self._rows.keys
        self.packed = self._rows.packed
        self.needed = self._rows.needed
        values = list(self.packed)[len(self.keys) :]
        self.state = StateSchema(pa.schema(self._rows.key_fields), pa.schema(values))
        self.output = pa.schema([*self._rows.columns, *self._rows.times, WEIGHT_FIELD])

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        packed = self._rows.pack(rows)
        groups = group_rows(packed.select(self.keys))
        if groups.are_single:
            return packed
        return packed.take(pa.array(self._last(groups.ids, len(groups), [packed])))

    def _last(self, ids: Numbers, count: int, rows: Sequence[pa.RecordBatch]) -> Numbers:
        """The last row of each group, counted through all batches; of equal ones the first."""
        order = np.vstack([self._rows.order(each) for each in rows])
        picking = Picking(ids, count, order, highest=True)
        return picking.rows(*(each.to_struct_array() for each in rows))

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        groups = group_rows(rows.select(self.keys))
        for _, some, of_piece in groups.pieces(rows):
            yield from self._changed(state, some, of_piece)

    def _changed(
        self, state: BucketState, rows: pa.RecordBatch, groups: Groups
    ) -> Iterator[pa.RecordBatch]:
        places = state.find(groups.keys)
        known = np.flatnonzero(places >= 0)
        held = state.take(places[known])
        last = self._last(np.concatenate([known, groups.ids]), len(groups), [held, rows])
        is_new = last >= len(known)  # else the one that is held is the last still
        came = rows.take(pa.array(last[is_new] - len(known)))
        row_held = np.full(len(groups), -1)
        row_held[known] = np.arange(len(known))
        was = row_held[is_new]
        keys = groups.keys.filter(pa.array(is_new))
        old, new = (
            [
                keys.column(name) if name in self.keys else values[name]
                for name in self.output.names[:-1]
            ]
            for values in (
                {name: take(held.column(name), was) for name in self.state.values.names},
                {name: came.column(name) for name in self.state.values.names},
            )
        )
        yield from changes(self.output, old, was >= 0, new, np.ones(len(was), np.bool_))
        state.put(state.find_or_add(keys), came.select(self.state.values.names))

    def spec(self) -> dict[str, Any]:
        return {"kernel": "latest", **self._rows.spec()}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "LatestKernel":
        return cls(**WholeRows.arguments(spec))
