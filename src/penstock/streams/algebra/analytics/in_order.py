"""Rows held back until the clock is past them, for what has to meet them in the order of time.

    kernel = InOrderKernel("user", schema, time="at")

The rows of a batch are in no order, but all that come in later batches are later in event time, but
for stragglers, which go through at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import TIME, WEIGHT_FIELD
from penstock.streams.algebra.kernel import NEVER, one_batch, passed
from penstock.streams.algebra.rows.groups import group_rows, spans
from penstock.streams.algebra.rows.own_columns import DUE
from penstock.streams.algebra.rows.whole import WholeRows
from penstock.streams.state import BucketState, StateSchema, fixed_width

_NUMBER = "(number)"
_BATCH_BITS = 32


class InOrderKernel:
    """The stream as it is, its bookkeeping columns reduced to the key, `_time` and the row's place.

    Every row has a `_weight` of +1.
    """

    portable = True
    is_final = True

    def __init__(self, key: str | Sequence[str], schema: pa.Schema, time: str) -> None:
        self._rows = WholeRows(key, schema, time)
        self._rows.refuse_tables("rows are held back until nothing comes before them")
        self.keys = self._rows.keys
        self.packed = self._rows.packed
        self.needed = self._rows.needed
        # A record may have been made into several rows, so its place alone is no key.
        own = [*self._rows.key_fields, *self._rows.place]
        values = [each for each in self.packed if each not in own]
        self.state = StateSchema(
            pa.schema([*own, pa.field(_NUMBER, pa.int64())]),
            pa.schema([*values, pa.field(DUE, pa.int64())]),
            due=DUE,
            spread=len(self.keys),
        )
        columns = self._rows.columns
        hidden = [each for each in self._rows.key_fields if each not in columns]
        self.output = pa.schema(
            [*columns, *hidden, *self._rows.times, *self._rows.place, WEIGHT_FIELD]
        )

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._rows.pack(rows)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        _, now = passed(state, clock)
        rows = one_batch(packed)
        if rows is not None:
            waits = fixed_width.numbers(rows.column(TIME)) >= now
            self._hold(state, rows.filter(pa.array(waits)))
            yield from self._given(rows.filter(pa.array(~waits)))
        if now > NEVER:
            due = state.due(now)
            for piece in spans(len(due)):
                yield from self._given(state.take(due[piece]))
            state.remove(due)

    def _hold(self, state: BucketState, rows: pa.RecordBatch) -> None:
        if rows.num_rows == 0:
            return
        names = self.state.keys.names[:-1]
        numbers = (state.version + 1 << _BATCH_BITS) + _occurrences(rows.select(names))
        keys = [*(rows.column(name) for name in names), pa.array(numbers)]
        places = state.find_or_add(pa.RecordBatch.from_arrays(keys, schema=self.state.keys))
        due = pa.array(fixed_width.numbers(rows.column(TIME)) + 1)
        values = [*(rows.column(name) for name in self.state.values.names[:-1]), due]
        state.put(places, pa.RecordBatch.from_arrays(values, schema=self.state.values))

    def _given(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if rows.num_rows == 0:
            return
        weights = pa.array(np.ones(rows.num_rows, np.int32))
        columns = [rows.column(name) for name in self.output.names[:-1]]
        yield pa.RecordBatch.from_arrays([*columns, weights], schema=self.output)

    def spec(self) -> dict[str, Any]:
        return {"kernel": "in_order", **self._rows.spec()}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "InOrderKernel":
        return cls(**WholeRows.arguments(spec))


def _occurrences(keys: pa.RecordBatch) -> Numbers:
    """How often the key of each row came in the rows before it."""
    groups = group_rows(keys)
    order = np.argsort(groups.ids, kind="stable")
    ids = groups.ids[order]
    counts = np.empty(len(order), np.int64)
    counts[order] = np.arange(len(order)) - np.searchsorted(ids, ids)
    return counts
