"""Rows of a stream as those kernels carry them that give every row again.

They travel with their key in front, then the other columns, their event time as `_time`, and their
place in the log, `_partition` and `_offset`, as far as there is one.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import OFFSET, PARTITION, TIME, TIME_TYPE, WEIGHT
from penstock.streams.algebra.folds.picks import beside, place_word
from penstock.streams.algebra.kernel import schema_from_spec, schema_to_spec
from penstock.streams.algebra.rows.shape import column_type, names_of, visible
from penstock.streams.algebra.rows.times import check_time, event_times

_PLACE = (PARTITION, OFFSET)


class WholeRows:
    def __init__(self, key: str | Sequence[str], schema: pa.Schema, time: str | None) -> None:
        self.keys = names_of(key)
        self.schema = schema
        self.time = time
        if not self.keys:
            raise InvalidInput("rows are told apart by a key", hint='name a column, as in "user"')
        if time is not None:
            check_time(schema, time)
        self.key_fields = [pa.field(name, column_type(schema, name)) for name in self.keys]

    @cached_property
    def columns(self) -> list[pa.Field]:
        """Those of the schema but for the ones that begin with `_`, in its order."""
        return visible(self.schema)

    @cached_property
    def times(self) -> list[pa.Field]:
        return [] if self.time is None else [pa.field(TIME, TIME_TYPE)]

    @cached_property
    def place(self) -> list[pa.Field]:
        names = [name for name in _PLACE if name in self.schema.names and name not in self.keys]
        return [pa.field(name, column_type(self.schema, name)) for name in names]

    @cached_property
    def packed(self) -> pa.Schema:
        values = [each for each in self.columns if each.name not in self.keys]
        return pa.schema([*self.key_fields, *values, *self.times, *self.place])

    @cached_property
    def needed(self) -> tuple[str, ...]:
        packed = [name for name in self.packed.names if name != TIME]
        return tuple(dict.fromkeys([*packed, *([self.time] if self.time else [])]))

    def pack(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            pa.array(event_times(rows, self.time)).cast(TIME_TYPE)
            if self.time is not None and field.name == TIME
            else rows.column(field.name)
            for field in self.packed
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.packed)

    def order(self, packed: pa.RecordBatch) -> Numbers:
        """Words that compare as the rows do by event time, partition and offset."""
        names = [name for name in (TIME, *_PLACE) if name in packed.schema.names]
        return beside([place_word(packed.column(name)) for name in names], packed.num_rows)

    def refuse_tables(self, what: str) -> None:
        if WEIGHT in self.schema.names:
            raise InvalidInput(
                f"{what}, and the rows of a table can go",
                hint="take the stream that the table was made from; ps.dedup gives one with "
                'emit="final" and without correct_for',
            )

    def spec(self) -> dict[str, Any]:
        return {"key": list(self.keys), "schema": schema_to_spec(self.schema), "time": self.time}

    @staticmethod
    def arguments(spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "key": spec["key"],
            "schema": schema_from_spec(spec["schema"]),
            "time": spec["time"],
        }
