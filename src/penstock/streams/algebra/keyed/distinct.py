"""What there is of different rows in a stream: each once, when it first comes.

    kernel = DistinctKernel(["customer", "country"], schema)

Nothing is taken back, as the rows of a stream come to stay; of a table it is an aggregation by all
columns, which counts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import WEIGHT, WEIGHT_FIELD
from penstock.streams.algebra.kernel import one_batch, schema_from_spec, schema_to_spec
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.algebra.rows.shape import column_type, names_of
from penstock.streams.state import BucketState, StateSchema


class DistinctKernel:
    is_final = False
    portable = True

    def __init__(self, by: str | Sequence[str], schema: pa.Schema) -> None:
        if WEIGHT in schema.names:
            raise InvalidInput(
                "rows that may be taken back have to be counted", hint="aggregate them by the key"
            )
        self.keys = names_of(by)
        self.schema = schema
        self.needed = self.keys
        self.packed = pa.schema([(name, column_type(schema, name)) for name in self.keys])
        self.state = StateSchema(self.packed, pa.schema([]))
        self.output = self.packed.append(WEIGHT_FIELD)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return group_rows(rows.select(self.keys)).keys

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        keys = group_rows(rows).keys
        new = keys.filter(pa.array(state.is_new(state.find_or_add(keys))))
        if new.num_rows:
            weights = pa.array(np.ones(new.num_rows, np.int32))
            yield pa.RecordBatch.from_arrays([*new.columns, weights], schema=self.output)

    def spec(self) -> dict[str, Any]:
        return {"kernel": "distinct", "by": list(self.keys), "schema": schema_to_spec(self.schema)}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "DistinctKernel":
        return cls(spec["by"], schema_from_spec(spec["schema"]))
