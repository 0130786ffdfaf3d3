"""A topic of upserts as a table: the last row of each key, kept up to date.

    kernel = UpsertKernel("id", schema, time="at")

Rows are upserts, or, where `_deleted` is true, tombstones, of which only the key counts. The last
to arrive wins: within a batch the one with the highest `_offset`, or, without offsets, the one that
comes last. All rows of a key are expected in one partition, as only there they have an order.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import (
    DELETED,
    OFFSET,
    PARTITION,
    TIME,
    TIME_TYPE,
    WEIGHT,
    WEIGHT_FIELD,
    changes,
)
from penstock.streams.algebra.kernel import one_batch, schema_from_spec, schema_to_spec
from penstock.streams.algebra.rows.groups import Groups, group_rows, spans
from penstock.streams.algebra.rows.order import last_rows, order_words
from penstock.streams.algebra.rows.shape import column_type, names_of, visible
from penstock.streams.state import BucketState, StateSchema, fixed_width


class UpsertKernel:
    """The table has the columns of the schema but for those that begin with `_`, in its order.

    With `time`, the output has the row's event time as `_time`.
    """

    portable = True
    is_final = False

    def __init__(
        self, key: str | Sequence[str], schema: pa.Schema, time: str | None = None
    ) -> None:
        self.keys = names_of(key)
        self.schema = schema
        self.time = time
        if not self.keys:
            raise InvalidInput("a table has a key", hint='give it as key="id"')
        if WEIGHT in schema.names:
            raise InvalidInput(
                "changes with a weight are no upserts", hint="they are a table already"
            )
        fields = visible(schema)
        self._columns = [field.name for field in fields]
        keys = [pa.field(name, column_type(schema, name)) for name in self.keys]
        values = [field for field in fields if field.name not in self.keys]
        times = []
        if time is not None:
            column_type(schema, time)
            times = [pa.field(TIME, TIME_TYPE)]
        self.state = StateSchema(pa.schema(keys), pa.schema([*values, *times]))
        self.output = pa.schema([*fields, *times, WEIGHT_FIELD])
        orders = [schema.field(name) for name in (OFFSET, PARTITION) if name in schema.names]
        deleted = [pa.field(DELETED, pa.bool_())] if DELETED in schema.names else []
        self.packed = pa.schema([*keys, *values, *times, *deleted, *orders])

    @cached_property
    def needed(self) -> tuple[str, ...]:
        packed = [name for name in self.packed.names if name != TIME]
        return tuple(dict.fromkeys([*packed, *([self.time] if self.time else [])]))

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            rows.column(self.time).cast(TIME_TYPE)
            if field.name == TIME
            else rows.column(field.name)
            for field in self.packed
        ]
        made = pa.RecordBatch.from_arrays(arrays, schema=self.packed)
        groups, last = self._last(made)
        values = [each.take(pa.array(last)) for each in made.columns[len(self.keys) :]]
        return pa.RecordBatch.from_arrays([*groups.keys.columns, *values], schema=self.packed)

    def _last(self, rows: pa.RecordBatch) -> tuple[Groups, Numbers]:
        """The keys, and the last row of each."""
        groups = group_rows(rows.select(self.keys))
        if groups.are_single:
            return groups, groups.firsts
        names = [name for name in (OFFSET, PARTITION) if name in self.packed.names]
        words = [order_words(rows.column(name)) for name in names]
        words.append(np.arange(rows.num_rows).reshape(-1, 1))
        return groups, last_rows(groups.ids, len(groups), np.hstack(words))

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        groups, last = self._last(rows)
        for piece in spans(len(groups)):
            if groups.are_single:
                some = rows.slice(piece.start, piece.stop - piece.start)
            else:
                some = rows.take(pa.array(last[piece]))
            gone = np.zeros(some.num_rows, np.bool_)
            if DELETED in self.packed.names:
                gone = fixed_width.numbers(some.column(DELETED))
            if gone.any():
                yield from self._delete(state, some.filter(pa.array(gone)))
                some = some.filter(pa.array(~gone))
            yield from self._upsert(state, some)

    def _upsert(self, state: BucketState, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        places = state.find_or_add(rows.select(self.keys))
        was = ~state.is_new(places)
        old = self._rows(rows, state.take_values(places))
        values = rows.select(self.state.values.names)
        state.put(places, values)
        new = self._rows(rows, values)
        yield from changes(self.output, old, was, new, np.ones(len(was), np.bool_))

    def _delete(self, state: BucketState, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        places = state.find(rows.select(self.keys))
        rows, places = rows.filter(pa.array(places >= 0)), places[places >= 0]
        old = self._rows(rows, state.take_values(places))
        state.remove(places)
        was = np.ones(len(places), np.bool_)
        yield from changes(self.output, old, was, old, ~was)

    def _rows(self, keys: pa.RecordBatch, values: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the output, without the weight."""
        return [
            (keys if name in self.keys else values).column(name) for name in self.output.names[:-1]
        ]

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "upsert",
            "key": list(self.keys),
            "schema": schema_to_spec(self.schema),
            "time": self.time,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "UpsertKernel":
        return cls(spec["key"], schema_from_spec(spec["schema"]), spec["time"])
