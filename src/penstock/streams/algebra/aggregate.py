"""Keyed aggregation: one row per key, kept up to date.

    kernel = AggregateKernel("customer", {"n": count(), "total": sum("amount")}, schema, time="at")

The state of a key is the parts of its folds, and what was picked. A step merges what the batch has
into them and gives the rows before and after.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput, KernelError
from penstock.events.compiled import Numbers
from penstock.streams.algebra.aggregates import (
    Aggregate,
    First,
    Last,
    aggregate_from_spec,
    aggregate_spec,
    column_type,
)
from penstock.streams.algebra.changes import (
    OFFSET,
    PARTITION,
    TIME,
    TIME_TYPE,
    WEIGHT,
    WEIGHT_FIELD,
    changes,
)
from penstock.streams.algebra.folds import Counting, Extreme, Fold, Overflow, Parts, is_nothing
from penstock.streams.algebra.grouping import Groups, group_rows
from penstock.streams.algebra.kernel import one_batch, schema_from_spec, schema_to_spec
from penstock.streams.algebra.picks import Picks, beside, chosen_rows
from penstock.streams.state import BucketState, StateSchema, fixed_width

_ROWS = "(rows)"  # of a key, where rows can be taken back
_EARLIEST = -(2**63)


class AggregateKernel:
    """Rows with a `_weight` are changes of a table, others are all there to stay.

    With `time`, the output has the highest event time of the key's rows as `_time`. That of a table
    is the highest of all changes since the key was last without rows.
    """

    def __init__(
        self,
        by: str | Sequence[str],
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        time: str | None = None,
    ) -> None:
        self.keys = (by,) if isinstance(by, str) else tuple(by)
        self.aggregates = dict(aggregates)
        self.schema = schema
        self.time = time
        self._weighted = WEIGHT in schema.names
        self._check_names()
        self._folds = self._made_folds()
        order = {"time": time, "partition": PARTITION, "offset": OFFSET}
        self._order = {word: name for word, name in order.items() if name in schema.names}
        self._picks = [picks for kind in (First, Last) for picks in self._made_picks(kind)]

        keys = [pa.field(name, column_type(schema, name)) for name in self.keys]
        parts = [
            pa.field(f"{name}: {part}" if part else name, kind)
            for name, fold in self._folds.items()
            for part, kind in fold.parts
        ]
        places = [field for picks in self._picks for field in picks.parts]
        self.state = StateSchema(pa.schema(keys), pa.schema([*parts, *places]))
        self._sources = list(dict.fromkeys(name for each in self._picks for name in each.columns))
        shipped = [pa.field(f"of {name}", schema.field(name).type) for name in self._sources]
        self._words = [f"({word})" for word in self._order if self._picks]
        words = [pa.field(word, pa.int64()) for word in self._words]
        self.packed = pa.schema([*keys, *parts, *shipped, *words])
        self._results = [*self.aggregates, *([TIME] if time else [])]
        kinds = {name: fold.kind for name, fold in self._folds.items()}
        kinds.update(
            (name, each.parts.field(name).type) for each in self._picks for name in each.names
        )
        results = [pa.field(name, kinds[name]) for name in self._results]
        self.output = pa.schema([*keys, *results, WEIGHT_FIELD])
        read = [column for each in self.aggregates.values() for column in each.columns]
        own = [time or "", *([PARTITION, OFFSET] if self._picks else []), WEIGHT]
        used = dict.fromkeys([*self.keys, *read, *own])
        self.needed = tuple(name for name in used if name in schema.names)

    def _check_names(self) -> None:
        names = [*self.keys, *self.aggregates]
        if not self.keys:
            raise InvalidInput("rows are aggregated by a key", hint='give it as by="customer"')
        for name in names:
            if name.startswith("_") or names.count(name) > 1:
                raise InvalidInput(
                    f"{name!r} cannot be a column of the result",
                    hint="each needs a name of its own; those that begin with _ are taken",
                )

    def _made_folds(self) -> dict[str, Fold]:
        folds = {
            name: each.fold(self.schema, weighted=self._weighted)
            for name, each in self.aggregates.items()
            if not isinstance(each, First | Last)
        }
        if self.time is not None:
            column_type(self.schema, self.time)
            folds[TIME] = Extreme(self.time, TIME_TYPE, highest=True)
        if self._weighted:
            folds[_ROWS] = Counting(None)
        return folds

    def _made_picks(self, kind: type[First | Last]) -> Iterator[Picks]:
        columns = {
            name: each.column for name, each in self.aggregates.items() if isinstance(each, kind)
        }
        for column in columns.values():
            column_type(self.schema, column)
        if columns and self._weighted:
            raise InvalidInput(
                f"there is no {kind.name} of {next(iter(columns.values()))!r} in a table",
                hint="a table's rows can go; only count, sum and mean follow that",
            )
        if columns:
            yield Picks(columns, self.schema, list(self._order), last=kind is Last)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        groups = group_rows(rows.select(self.keys))
        weights = self._weights(rows) if self._weighted else None
        parts: Parts = []
        for name, fold in self._folds.items():
            with _naming(name, groups, groups.ids):
                each = fold.partial(rows, weights)
            with _naming(name, groups):
                parts += fold.merge(each, groups, None)
        arrays = [*groups.keys.columns, *parts]
        if self._picks:
            arrays = self._with_picked(rows, groups, arrays)
        return pa.RecordBatch.from_arrays(arrays, schema=self.packed)

    def _weights(self, rows: pa.RecordBatch) -> Numbers:
        weights = rows.column(WEIGHT)
        if weights.null_count:
            raise KernelError(
                f"{weights.null_count} changes have no {WEIGHT}",
                hint="give 1 for a row that comes and -1 for one that goes",
            )
        return fixed_width.numbers(weights.cast(pa.int64()))

    def _with_picked(
        self, rows: pa.RecordBatch, groups: Groups, arrays: list[pa.Array]
    ) -> list[pa.Array]:
        """One row for each group, and where more than one is picked, others with null parts."""
        words = [self._word(rows.column(name)) for name in self._order.values()]
        order = beside(words, rows.num_rows)
        picked = [
            each
            for picks in self._picks
            for each in picks.rows([rows.column(name) for name in picks.columns], order, groups)
        ]
        leading, others = chosen_rows(picked, groups)
        chosen = pa.array(np.concatenate([leading, others]))
        if len(others):
            more = pa.array(groups.ids[others])
            key_count = len(self.keys)
            arrays = [
                pa.concat_arrays(
                    [e, e.take(more) if i < key_count else pa.nulls(len(more), e.type)]
                )
                for i, e in enumerate(arrays)
            ]
        columns = [*(rows.column(name) for name in self._sources), *words]
        return [*arrays, *(column.take(chosen) for column in columns)]

    def _word(self, column: pa.Array) -> pa.Array:
        if pa.types.is_temporal(column.type):
            column = column.cast(TIME_TYPE)
        return column.cast(pa.int64()).fill_null(_EARLIEST)

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
        after: Parts = []
        old: dict[str, pa.Array] = {}
        new: dict[str, pa.Array] = {}
        for name, fold in self._folds.items():
            span = slice(len(after), len(after) + len(fold.parts))
            held = before[span]
            with _naming(name, groups):
                after += fold.merge(rows.columns[len(self.keys) :][span], groups, held)
                old[name], new[name] = fold.result(held), fold.result(after[span])
        order = beside([rows.column(name) for name in self._words], rows.num_rows)
        for picks in self._picks:
            span = slice(len(after), len(after) + len(picks.parts))
            values = [rows.column(f"of {name}") for name in picks.columns]
            after += picks.merge(values, order, groups, before[span])
            old |= picks.results(before[span])
            new |= picks.results(after[span])
        state.put(places, pa.RecordBatch.from_arrays(after, schema=self.state.values))
        if self._weighted:
            was, now = (fixed_width.numbers(each[_ROWS]) > 0 for each in (old, new))
            # The time is no reason to keep a row; anything else that is left of one is.
            fields = zip(self.state.values.names, after, strict=True)
            state.remove(places[is_nothing([part for name, part in fields if name != TIME])])
        keys = groups.keys.columns
        yield from changes(
            self.output,
            [*keys, *(old[name] for name in self._results)],
            was,
            [*keys, *(new[name] for name in self._results)],
            now,
        )

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "aggregate",
            "by": list(self.keys),
            "aggregates": {name: aggregate_spec(each) for name, each in self.aggregates.items()},
            "schema": schema_to_spec(self.schema),
            "time": self.time,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "AggregateKernel":
        aggregates = {name: aggregate_from_spec(each) for name, each in spec["aggregates"].items()}
        return cls(spec["by"], aggregates, schema_from_spec(spec["schema"]), spec["time"])


@contextmanager
def _naming(name: str, groups: Groups, ids: Numbers | None = None) -> Iterator[None]:
    """Says which key it is whose total does not fit, or, given the groups of rows, a row's part."""
    try:
        yield
    except Overflow as error:
        group = error.at if ids is None else ids[error.at]
        raise KernelError(
            f"{name!r} of {groups.described(int(group))} leaves {error.kind}",
            hint="cast its column to a wider type, such as decimal(38, 0) or double",
        ) from None
