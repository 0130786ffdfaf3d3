"""Keyed aggregation: one row per key, kept up to date.

    kernel = AggregateKernel("customer", {"n": count(), "total": sum("amount")}, schema, time="at")

The state of a key is the parts of what is asked of its rows. A step merges what the batch has into
them and gives the rows before and after.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers
from penstock.streams.algebra.aggregates.basic import Aggregate, Count, Latest
from penstock.streams.algebra.aggregates.summary import Summary
from penstock.streams.algebra.changes import TIME, WEIGHT_FIELD, changes
from penstock.streams.algebra.kernel import one_batch
from penstock.streams.algebra.rows.groups import Groups, group_rows
from penstock.streams.algebra.rows.own_columns import ROWS
from penstock.streams.algebra.rows.shape import RowShape, check_result_names, column_type, names_of
from penstock.streams.state import BucketState, StateSchema, fixed_width


class AggregateKernel:
    """Rows with a `_weight` are changes of a table, others are all there to stay.

    With `time`, the output has the highest event time of the key's rows as `_time`. That of a table
    is the highest of all changes since the key was last without rows.
    """

    is_final = False

    def __init__(
        self,
        by: str | Sequence[str],
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        time: str | None = None,
    ) -> None:
        self.keys = names_of(by)
        self.aggregates = dict(aggregates)
        self.schema = schema
        if not self.keys:
            raise InvalidInput("rows are aggregated by a key", hint='give it as by="customer"')
        check_result_names([*self.keys, *aggregates])
        own: dict[str, Aggregate] = {} if time is None else {TIME: Latest(time)}
        if RowShape(schema).weighted:
            own[ROWS] = Count()
        self._summary = Summary(aggregates, schema, time, own)
        self._weighted = ROWS in own

        keys = [pa.field(name, column_type(schema, name)) for name in self.keys]
        self.state = StateSchema(pa.schema(keys), self._summary.parts)
        self.packed = pa.schema([*keys, *self._summary.parts])
        kinds = {name: kind for name, kind in self._summary.kinds.items() if name != ROWS}
        self._results = list(kinds)
        self.output = pa.schema([*keys, *kinds.items(), WEIGHT_FIELD])
        self.needed = tuple(dict.fromkeys([*self.keys, *self._summary.needed]))

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        groups = group_rows(rows.select(self.keys))
        parts = self._summary.partial(rows, groups)
        return pa.RecordBatch.from_arrays([*groups.keys.columns, *parts], schema=self.packed)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        groups = group_rows(rows.select(self.keys))
        places = state.find_or_add(groups.keys)
        for piece, some, of_piece in groups.pieces(rows):
            yield from self._merge(state, places[piece], some, of_piece)

    def _merge(
        self, state: BucketState, places: Numbers, rows: pa.RecordBatch, groups: Groups
    ) -> Iterator[pa.RecordBatch]:
        """Merges the rows of some groups into the state of these, and gives what changed."""
        was, now = ~state.is_new(places), np.ones(len(groups), np.bool_)
        before = state.take_values(places).columns
        after = self._summary.merge(rows.columns[len(self.keys) :], groups, before)
        old, new = (self._summary.results(parts, groups.keys) for parts in (before, after))
        state.put(places, pa.RecordBatch.from_arrays(after, schema=self.state.values))
        if self._weighted:
            was, now = (fixed_width.numbers(each[ROWS]) > 0 for each in (old, new))
            # The time is no reason to keep a row; anything else that is left of one is.
            state.remove(places[self._summary.is_nothing(after, but=TIME)])
        keys = groups.keys.columns
        yield from changes(
            self.output,
            [*keys, *(old[name] for name in self._results)],
            was,
            [*keys, *(new[name] for name in self._results)],
            now,
        )

    @property
    def portable(self) -> bool:
        return self._summary.portable

    def spec(self) -> dict[str, Any]:
        return {"kernel": "aggregate", "by": list(self.keys), **self._summary.spec()}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "AggregateKernel":
        return cls(spec["by"], **Summary.arguments(spec))
