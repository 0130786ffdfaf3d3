"""A table told every so often: changes are held back until the clock comes to the next round time.

State has, for each key, the row that was told last and the one there is now. Windows are let go
when nothing corrects them any more.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import WEIGHT, changes
from penstock.streams.algebra.kernel import (
    END,
    NEVER,
    one_batch,
    passed,
    schema_from_spec,
    schema_to_spec,
)
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.algebra.rows.own_columns import DUE
from penstock.streams.algebra.rows.shape import column_type, names_of
from penstock.streams.algebra.windows.windowed import WINDOW
from penstock.streams.state import BucketState, StateSchema, fixed_width

_TOLD, _THERE = "(told)", "(there)"


class HeldKernel:
    """`every` is in microseconds. Where `window` is a key, `correct_for` says how long after its
    end a row can still change."""

    portable = True
    is_final = False

    def __init__(
        self,
        key: str | Sequence[str],
        schema: pa.Schema,
        every: int,
        correct_for: int | None = None,
    ) -> None:
        if every < 1:
            raise InvalidInput(f"every {every} microseconds is not now and then", hint="1 ms")
        self.keys = names_of(key)
        self.schema = self.output = self.packed = _keys_first(schema, self.keys)
        self.every = every
        self.correct_for = correct_for
        self._columns = self.schema.names[:-1]  # all but the weight
        fields = [
            pa.field(f"{which}{name}", column_type(schema, name))
            for which in (_TOLD, _THERE)
            for name in self._columns[len(self.keys) :]
        ]
        marks = [pa.field(name, pa.int64()) for name in (DUE, _TOLD, _THERE)]
        keys = pa.schema([schema.field(name) for name in self.keys])
        self.state = StateSchema(keys, pa.schema([*marks, *fields]), due=DUE)
        self.needed = tuple(self.schema.names)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(self.packed.names)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        rows = one_batch(packed)
        if rows is not None:
            self._hold(state, rows, before)
        if now > NEVER:
            yield from self._tell(state, now)

    def _hold(self, state: BucketState, rows: pa.RecordBatch, before: int) -> None:
        """Of the changes of a key, the last one says what is there."""
        groups = group_rows(rows.select(self.keys))
        last = np.empty(len(groups), np.int64)
        last[groups.ids] = np.arange(rows.num_rows)
        latest = rows.take(pa.array(last))
        there = fixed_width.numbers(latest.column(WEIGHT)) > 0
        places = state.find_or_add(groups.keys)
        values = [latest.column(name) for name in self._columns[len(self.keys) :]]
        due = np.full(len(places), self._next_round(before))
        names = [DUE, _THERE, *(f"{_THERE}{name}" for name in self._columns[len(self.keys) :])]
        arrays = [pa.array(due), pa.array(there.astype(np.int64)), *values]
        state.put(places, pa.RecordBatch.from_arrays(arrays, names=names))

    def _next_round(self, before: int) -> int:
        return NEVER + 1 if before == NEVER else (before // self.every + 1) * self.every

    def _tell(self, state: BucketState, now: int) -> Iterator[pa.RecordBatch]:
        places = state.due(now)
        if len(places) == 0:
            return
        taken = state.take(places)
        keys = taken.columns[: len(self.keys)]
        told, there = (
            fixed_width.numbers(taken.column(name)).astype(np.bool_) for name in (_TOLD, _THERE)
        )
        width = len(self._columns) - len(self.keys)
        old = taken.columns[len(self.keys) + 3 :][:width]
        new = taken.columns[len(self.keys) + 3 + width :]
        yield from changes(self.output, [*keys, *old], told, [*keys, *new], there)
        gone = ~there
        later = np.full(len(places), END)
        if self.correct_for is not None:
            ends = fixed_width.numbers(taken.column(WINDOW).field("end"))
            # A session can still go on at its very end.
            later = ends.astype(np.int64) + self.correct_for + 1
            gone |= later <= now
        self._settle(state, places[~gone], later[~gone], new, ~gone)
        state.remove(places[gone])

    def _settle(
        self, state: BucketState, places: Numbers, due: Numbers, new: list[pa.Array], kept: Mask
    ) -> None:
        """What is there has been told."""
        if len(places) == 0:
            return
        names = [DUE, _TOLD, *(f"{_TOLD}{name}" for name in self._columns[len(self.keys) :])]
        ones = np.ones(len(places), np.int64)
        arrays = [pa.array(due), pa.array(ones), *(each.filter(pa.array(kept)) for each in new)]
        state.put(places, pa.RecordBatch.from_arrays(arrays, names=names))

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "held",
            "key": list(self.keys),
            "every": self.every,
            "correct_for": self.correct_for,
            "schema": schema_to_spec(self.schema),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "HeldKernel":
        schema = schema_from_spec(spec["schema"])
        return cls(spec["key"], schema, spec["every"], spec["correct_for"])


def _keys_first(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    if WEIGHT not in schema.names:
        raise InvalidInput(
            "only a table can be told every so often", hint="what aggregate gives, for example"
        )
    others = [each for each in schema if each.name not in (*keys, WEIGHT)]
    return pa.schema([*(schema.field(name) for name in keys), *others, schema.field(WEIGHT)])
