"""The two inputs of a join, as they travel and are kept: key, side, event time and row.

A row is one value of bytes, whatever columns it has, so that both sides go into one state. What
can be read off the key is not in it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import DELETED, OFFSET, TIME, WEIGHT
from penstock.streams.algebra.kernel import one_batch, schema_from_spec, schema_to_spec
from penstock.streams.algebra.rows.row_bytes import from_bytes, to_bytes
from penstock.streams.algebra.rows.shape import column_type, names_of, visible
from penstock.streams.algebra.rows.times import check_time, event_times
from penstock.streams.algebra.rows.weights import weight_column
from penstock.streams.state import fixed_width

LEFT, RIGHT = 0, 1
SIDE = "(side)"
ROW = "(row)"
PLACE = "(place)"


class Side:
    """The rows of one side, by the columns `on`, which are compared as these kinds.

    Rows with a `_weight` are changes of a table, others are all there to stay. With `timed` they
    travel with their event time, null when there is none; with `placed` also with their place in
    their partition, 0 when there is none. Of a row that is `_deleted` there is nothing but the key.
    With `on_hidden` the columns `on` do not come out, as those of the other side say the same.
    """

    portable = True

    def __init__(
        self,
        number: int,
        on: Sequence[str],
        kinds: Sequence[pa.DataType],
        schema: pa.Schema,
        *,
        time: str | None = None,
        timed: bool = False,
        placed: bool = False,
        on_hidden: bool = False,
    ) -> None:
        self.number = number
        self.on = names_of(list(on))
        self.kinds = list(kinds)
        self.schema = schema
        self.time = time
        self.timed = timed or time is not None
        self.placed = placed
        self.on_hidden = on_hidden
        if time is not None:
            check_time(schema, time)
        hidden = self.on if on_hidden else ()
        self.columns = [each for each in visible(schema) if each.name not in hidden]
        on_kinds = [column_type(schema, name) for name in self.on]
        # Floats are not, as a key does not tell -0.0 from 0.0.
        self._from_key = {
            name: number
            for number, (name, own, kind) in enumerate(zip(self.on, on_kinds, kinds, strict=True))
            if own == kind and not pa.types.is_floating(kind)
        }
        self._inside = [each for each in self.columns if each.name not in self._from_key]
        self.keys = tuple(f"(key {number})" for number in range(len(kinds)))
        self.key_fields = [pa.field(*each) for each in zip(self.keys, self.kinds, strict=True)]
        times = [pa.field(TIME, pa.int64())] if self.timed else []
        places = [pa.field(PLACE, pa.int64())] if placed else []
        row, weight = pa.field(ROW, pa.binary()), pa.field(WEIGHT, pa.int64())
        self.element = pa.schema(
            [*self.key_fields, pa.field(SIDE, pa.int8()), *times, *places, row]
        )
        self.packed = pa.schema([*self.element, weight])

    @cached_property
    def needed(self) -> tuple[str, ...]:
        own = [self.time] if self.time else []
        wanted = [WEIGHT, DELETED, *([OFFSET] if self.placed else [])]
        hidden = [name for name in wanted if name in self.schema.names]
        names = [each.name for each in self.columns]
        return tuple(dict.fromkeys([*names, *self.on, *own, *hidden]))

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        length = rows.num_rows
        columns: list[pa.Array] = [
            rows.column(name).cast(kind) for name, kind in zip(self.on, self.kinds, strict=True)
        ]
        columns.append(pa.array(np.full(length, self.number, np.int8)))
        if self.time is not None:
            columns.append(pa.array(event_times(rows, self.time)))
        elif self.timed:
            columns.append(pa.nulls(length, pa.int64()))
        if self.placed:
            is_known = OFFSET in self.schema.names
            columns.append(
                rows.column(OFFSET) if is_known else pa.array(np.zeros(length, np.int64))
            )
        inside = [rows.column(each.name) for each in self._inside]
        weighted = WEIGHT in self.schema.names
        values = to_bytes(inside, self._inside, length, as_key=weighted)
        if DELETED in self.schema.names:
            values = pc.if_else(rows.column(DELETED), pa.scalar(None, pa.binary()), values)
        columns.append(values)
        columns.append(weight_column(rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.packed)

    def read(self, elements: pa.RecordBatch) -> list[pa.Array]:
        """The columns of these elements, which have come as `partial` made them."""
        return self.shown(elements.columns, self.inside(elements.column(ROW)))

    def inside(self, rows: pa.Array) -> list[pa.Array]:
        """The columns that are in a row, and not in the key."""
        return from_bytes(rows, self._inside)

    def shown(self, keys: Sequence[pa.Array], inside: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns of rows with these keys, which are the first of `keys`."""
        values = {name: keys[number] for name, number in self._from_key.items()}
        values |= zip((each.name for each in self._inside), inside, strict=True)
        return [values[each.name] for each in self.columns]

    def nothing(self, elements: pa.RecordBatch, other: "Side") -> list[pa.Array]:
        """The columns beside elements of the other side which have no partner on this one."""
        nulls = {each.name: pa.nulls(elements.num_rows, each.type) for each in self.columns}
        if other.on_hidden:  # what they are equal in is shown on this side alone
            for number, name in enumerate(self.on):
                nulls[name] = elements.column(number).cast(nulls[name].type)
        return list(nulls.values())

    def described(self) -> dict[str, str]:
        """What its rows are made of, which as bytes do not tell it."""
        return {each.name: str(each.type) for each in self.columns}

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "side",
            "number": self.number,
            "on": list(self.on),
            "kinds": schema_to_spec(pa.schema(self.key_fields)),
            "schema": schema_to_spec(self.schema),
            "time": self.time,
            "timed": self.timed,
            "placed": self.placed,
            "on_hidden": self.on_hidden,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "Side":
        return cls(
            spec["number"],
            spec["on"],
            schema_from_spec(spec["kinds"]).types,
            schema_from_spec(spec["schema"]),
            time=spec["time"],
            timed=spec["timed"],
            placed=spec["placed"],
            on_hidden=spec["on_hidden"],
        )


def two_sides(
    on: Sequence[tuple[str, str]],
    left: pa.Schema,
    right: pa.Schema,
    *,
    left_time: str | None = None,
    right_time: str | None = None,
    placed: bool = False,
    on_once: bool = False,
) -> tuple[Side, Side]:
    """`on_once` leaves what is compared to the left, as the right has the same.

    Raises InvalidInput for columns that cannot be compared, or would be there twice.
    """
    for side, schema in enumerate((left, right)):
        if DELETED in schema.names and (side == LEFT or not placed):
            raise InvalidInput(
                "some rows delete others, and a join of streams keeps all of them",
                hint="ps.changes(df, key=...) makes a table of such rows",
            )
    pairs = [(column_type(left, one), column_type(right, other)) for one, other in on]
    kinds = [
        compared_as(*kinds, f"{one} = {other}")
        for (one, other), kinds in zip(on, pairs, strict=True)
    ]
    timed = left_time is not None or right_time is not None
    ons = [[one for one, _ in on], [other for _, other in on]]
    both = {"timed": timed, "placed": placed}
    sides = (
        Side(LEFT, ons[LEFT], kinds, left, time=left_time, **both),
        Side(RIGHT, ons[RIGHT], kinds, right, time=right_time, on_hidden=on_once, **both),
    )
    names = [each.name for each in sides[LEFT].columns]
    for each in sides[RIGHT].columns:
        if each.name in names:
            raise InvalidInput(
                f"both sides of the join have a column {each.name!r}",
                hint=f'rename one before: withColumnRenamed("{each.name}", ...)',
            )
    return sides


def of_side(packed: Sequence[pa.RecordBatch], side: int) -> pa.RecordBatch | None:
    """The rows of one side, if there are any."""
    chosen = []
    for batch in packed:
        own = fixed_width.numbers(batch.column(SIDE)) == side
        chosen.append(batch if own.all() else batch.filter(pa.array(own)))
    return one_batch(chosen)


def compared_as(one: pa.DataType, other: pa.DataType, where: str) -> pa.DataType:
    """The type in which values of both are compared."""
    types = pa.types
    if one == other or (types.is_timestamp(one) and types.is_timestamp(other)):
        return one
    if types.is_integer(one) and types.is_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if types.is_floating(one) and types.is_floating(other):
        return pa.float64()
    raise InvalidInput(
        f"{where}: {one} cannot be compared with {other}",
        hint="cast one of the columns, so that both have the same type",
    )
