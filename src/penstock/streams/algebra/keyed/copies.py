"""Rows that are there more than once, told apart: each has the number of its copy, from 1.

    kernel = CopiesKernel(schema, "copy")

So what has no key, as the result of a query may, gets one: all columns and the number.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import WEIGHT, WEIGHT_FIELD
from penstock.streams.algebra.kernel import one_batch, schema_from_spec, schema_to_spec
from penstock.streams.algebra.rows.groups import counted_out
from penstock.streams.algebra.rows.shape import check_result_names, visible
from penstock.streams.algebra.rows.weights import WeightChanges, added_up, weight_column, weights_of
from penstock.streams.state import BucketState, StateSchema


class CopiesKernel:
    """The columns are those of the schema but for the ones that begin with `_`, and the number."""

    is_final = False
    portable = True

    def __init__(self, schema: pa.Schema, number: str) -> None:
        self.schema = schema
        self.number = number
        fields = visible(schema)
        self.keys = tuple(each.name for each in fields)
        check_result_names([number, *self.keys])
        weight = pa.field(WEIGHT, pa.int64())
        self.packed = pa.schema([*fields, weight])
        self.state = StateSchema(pa.schema(fields), pa.schema([weight]))
        self.output = pa.schema([*fields, pa.field(number, pa.int64()), WEIGHT_FIELD])
        hidden = [WEIGHT] if WEIGHT in schema.names else []
        self.needed = (*self.keys, *hidden)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [rows.column(name) for name in self.keys]
        return added_up(
            pa.RecordBatch.from_arrays([*columns, weight_column(rows)], schema=self.packed)
        )

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None or (rows := added_up(rows)).num_rows == 0:
            return
        keys = rows.select(list(self.keys))
        changed = WeightChanges(state, state.find_or_add(keys), weights_of(rows))
        before, after = (np.maximum(each, 0) for each in (changed.before, changed.after))
        yield from self._copies(keys, after, before, -1)
        yield from self._copies(keys, before, after, 1)
        state.remove(changed.places[changed.after == 0])

    def _copies(
        self, keys: pa.RecordBatch, low: Numbers, high: Numbers, weight: int
    ) -> Iterator[pa.RecordBatch]:
        """The copies from the one number to the other, where that is higher."""
        which, more = counted_out(np.maximum(high - low, 0))
        if len(which):
            columns = [column.take(pa.array(which)) for column in keys.columns]
            numbers = pa.array(low[which] + more + 1)
            weights = pa.array(np.full(len(which), weight, np.int32))
            yield pa.RecordBatch.from_arrays([*columns, numbers, weights], schema=self.output)

    def spec(self) -> dict[str, Any]:
        return {"kernel": "copies", "schema": schema_to_spec(self.schema), "number": self.number}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "CopiesKernel":
        return cls(schema_from_spec(spec["schema"]), spec["number"])
