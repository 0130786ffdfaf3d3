"""The first rows of each group in an order, kept up to date as rows come and go.

    kernel = TopKernel("page", [OrderBy("score", descending=True)], 10, schema, rank="place")

Rows that are equal in what they are ordered by come in the order of all they have, so that the
answer is one and the same. Of a table all rows are kept, in `levels`, as any may come to the top
when others go; of a stream only those that are there.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT, WEIGHT_FIELD
from penstock.streams.algebra.kernel import one_batch, schema_from_spec, schema_to_spec
from penstock.streams.algebra.keyed.levels import ENTRY, LEVEL, Levels
from penstock.streams.algebra.rows.groups import counted_out, distinct_keys, each_once, keys_and
from penstock.streams.algebra.rows.order import order_words
from penstock.streams.algebra.rows.row_bytes import to_bytes
from penstock.streams.algebra.rows.shape import check_result_names, column_type, names_of, visible
from penstock.streams.algebra.rows.sort_key import OrderBy, check_order, sort_keys, sorted_within
from penstock.streams.algebra.rows.times import event_times
from penstock.streams.algebra.rows.weights import WeightChanges, added_up, weight_column, weights_of
from penstock.streams.state import BucketState, StateSchema, cells, fixed_width
from penstock.streams.state.cells import Cells

_ORDER = "(order)"  # how many bytes of an entry are there for the order; the row follows


class TopKernel:
    """`count` rows of each group after the first `skip`, and with `rank` the place of each, from 1.

    A row that is there twice takes two places. The columns are those of the schema but for the ones
    that begin with `_`, then `rank`, and with `time` the row's event time as `_time`.
    """

    is_final = False
    portable = True

    def __init__(
        self,
        by: str | Sequence[str],
        order: Sequence[OrderBy],
        count: int,
        schema: pa.Schema,
        *,
        skip: int = 0,
        rank: str | None = None,
        time: str | None = None,
    ) -> None:
        if count < 1 or skip < 0:
            raise InvalidInput(
                f"there is no top of {count} rows after {skip}", hint="1 row or more"
            )
        self.keys = names_of(by)
        self.order = [OrderBy(*each) for each in order]
        self.count, self.skip = count, skip
        self.schema = schema
        self.rank = rank
        self.time = time
        for each in self.order:
            check_order(column_type(schema, each.column), each.column)
        self._columns = visible(schema)
        times = [] if time is None else [pa.field(TIME, TIME_TYPE)]
        self._inside = [each for each in [*self._columns, *times] if each.name not in self.keys]
        ranks = [] if rank is None else [pa.field(rank, pa.int64())]
        if rank is not None:
            check_result_names([rank, *(each.name for each in self._columns)])
        self.output = pa.schema([*self._columns, *ranks, *times, WEIGHT_FIELD])
        keys = [pa.field(name, column_type(schema, name)) for name in self.keys]
        entry, level = pa.field(ENTRY, pa.binary()), pa.field(LEVEL, pa.int8())
        values = [pa.field(_ORDER, pa.int64()), pa.field(WEIGHT, pa.int64())]
        self.packed = pa.schema([*keys, entry, *values])
        self.state = StateSchema(
            pa.schema([*keys, level, entry]),
            pa.schema(values),
            spread=len(keys),
            grouped=len(keys) + 1,
        )
        self._grows = WEIGHT not in schema.names
        self._levels = Levels(count + skip)
        own = [time] if time else []
        weight = [] if self._grows else [WEIGHT]
        names = [each.name for each in self._columns]
        self.needed = tuple(dict.fromkeys([*self.keys, *names, *own, *weight]))

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._grows:
            rows = self._promising(rows)
        length = rows.num_rows
        inside = [
            pa.array(event_times(rows, self.time)).cast(TIME_TYPE)
            if self.time is not None and each.name == TIME
            else rows.column(each.name)
            for each in self._inside
        ]
        order = sort_keys([(rows.column(each.column), *each[1:]) for each in self.order], length)
        sizes = cells.to_cells(order).sizes
        content = to_bytes(inside, self._inside, length, as_key=not self._grows)
        entries = pc.binary_join_element_wise(order, content, b"")
        keys = [rows.column(name) for name in self.keys]
        packed = pa.RecordBatch.from_arrays(
            [*keys, entries, pa.array(sizes), weight_column(rows)], schema=self.packed
        )
        return self._first(packed) if self._grows else packed

    def _promising(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without most of those that have no place at the top, by the first column of the order
        alone: to make entries of all would take several times as long."""
        if not self.order:
            return rows
        first = self.order[0]
        column = rows.column(first.column)
        if column.null_count or fixed_width.dtype_of(column.type) is None:
            return rows
        words = order_words(column)
        if words.shape[1] != 1:
            return rows
        places = ~words[:, 0] if first.descending else words[:, 0]
        _, ids = distinct_keys(rows.select(self.keys), len(self.keys))
        order = np.lexsort((places, ids))
        counts = np.bincount(ids)
        last = np.cumsum(counts) - counts + np.minimum(counts, self._levels.least) - 1
        return rows.filter(pa.array(places <= places[order[last]][ids]))

    def _first(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those that may be at the top, if none goes."""
        _, ids = distinct_keys(rows, len(self.keys))
        order = sorted_within(ids, rows.column(ENTRY))
        starts = np.searchsorted(ids[order], ids[order])
        return rows.take(pa.array(order[np.arange(len(order)) - starts < self._levels.least]))

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is not None:
            rows = added_up(rows)
        if rows is None or rows.num_rows == 0:
            return
        keys, ids = distinct_keys(rows, len(self.keys))
        levels = self._levels.of_entries(state, keys, ids, rows.column(ENTRY))
        elements = rows.select([*self.keys, ENTRY]).add_column(
            len(keys), LEVEL, pa.array(levels.astype(np.int8))
        )
        changed = WeightChanges(state, state.find_or_add(elements), weights_of(rows))
        state.put(changed.places, rows.select([_ORDER]))
        gone = changed.after == 0
        state.remove(changed.places[gone & (levels > 0)])
        heads = each_once(ids[levels == 0])
        if len(heads):
            yield from self._changes(state, keys, heads, changed, ids, levels)
        state.remove(changed.places[gone & (levels == 0)])
        if not self._grows:
            for key in self._crowded(state, keys, ids, levels):
                self._levels.split(state, key)

    def _changes(
        self,
        state: BucketState,
        keys: list[pa.Array],
        heads: Numbers,
        changed: WeightChanges,
        ids: Numbers,
        levels: Numbers,
    ) -> Iterator[pa.RecordBatch]:
        """What changed at the top of the groups of these numbers."""
        indices = pa.array(heads)
        some = [column.take(indices) for column in keys]
        gone = np.bincount(ids[(changed.after <= 0) & (levels == 0)], minlength=int(ids.max()) + 1)[
            heads
        ]
        while len(short := self._levels.are_short(state, some, gone)):
            for each in short:
                self._levels.refill(state, [column.slice(each, 1) for column in some])
        found = list(state.members(keys_and(some, len(heads), 0)))
        which, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        elements = state.take(places)
        order = sorted_within(which, elements.column(ENTRY))
        which, places = which[order], places[order]
        weighed = changed.at(state, places)
        before, after = (self._top(which, each) for each in (weighed.before, weighed.after))
        if self._grows:
            state.remove(places[after.is_beyond])
        for sign, one, other in ((-1, before, after), (1, after, before)):
            rows, ranks, weights = self._only(one, other)
            if len(rows):
                chosen = elements.take(pa.array(order[rows]))
                yield self._batch(chosen, ranks, sign * weights)

    def _top(self, which: Numbers, weights: Numbers) -> "_Top":
        """What rows of groups, in order, have of the places that are asked for."""
        weights = np.maximum(weights, 0)
        ends = np.cumsum(weights)
        starts = ends - weights
        first = starts[np.searchsorted(which, which)]
        starts, ends = starts - first, ends - first
        lowest, highest = self.skip, self.skip + self.count
        return _Top(
            np.clip(starts, lowest, highest), np.clip(ends, lowest, highest), starts >= highest
        )

    def _only(self, one: "_Top", other: "_Top") -> tuple[Numbers, Numbers, Numbers]:
        """What one has and the other has not: the row, its place, and how often."""
        if self.rank is None:
            more = np.maximum((one.ends - one.starts) - (other.ends - other.starts), 0)
            rows = np.flatnonzero(more)
            return rows, rows, more[rows]
        rows, numbers = counted_out(one.ends - one.starts)
        places = one.starts[rows] + numbers
        new = (places < other.starts[rows]) | (places >= other.ends[rows])
        return rows[new], places[new] + 1, np.ones(int(new.sum()), np.int64)

    def _batch(self, elements: pa.RecordBatch, ranks: Numbers, weights: Numbers) -> pa.RecordBatch:
        data, starts, sizes = cells.to_cells(elements.column(ENTRY))
        order = fixed_width.numbers(elements.column(_ORDER))
        there = np.ones(elements.num_rows, np.bool_)
        rows = cells.from_cells(
            pa.struct(self._inside), Cells(data, starts + order, sizes - order), there
        )
        columns = dict(zip((each.name for each in self._inside), rows.flatten(), strict=True))
        columns |= {name: elements.column(name) for name in self.keys}
        columns[WEIGHT] = pa.array(weights.astype(np.int32))
        if self.rank is not None:
            columns[self.rank] = pa.array(ranks)
        arrays = [columns[name] for name in self.output.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def _crowded(
        self, state: BucketState, keys: list[pa.Array], ids: Numbers, levels: Numbers
    ) -> Iterator[list[pa.Array]]:
        """The keys of groups of which a level has too many rows."""
        found = [np.empty(0, np.int64)]
        for level in np.unique(levels).tolist():
            groups = each_once(ids[levels == level])
            indices = pa.array(groups)
            some = keys_and([column.take(indices) for column in keys], len(groups), level)
            found.append(groups[state.member_counts(some) > self._levels.most(level)])
        for group in each_once(*found):
            yield [column.slice(group, 1) for column in keys]

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "top",
            "by": list(self.keys),
            "order": [list(each) for each in self.order],
            "count": self.count,
            "skip": self.skip,
            "rank": self.rank,
            "row": {each.name: str(each.type) for each in self._inside},
            "schema": schema_to_spec(self.schema),
            "time": self.time,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "TopKernel":
        return cls(
            spec["by"],
            [OrderBy(*each) for each in spec["order"]],
            spec["count"],
            schema_from_spec(spec["schema"]),
            skip=spec["skip"],
            rank=spec["rank"],
            time=spec["time"],
        )


class _Top(NamedTuple):
    """Of rows in order, the places that each has among those asked for, from 0 on."""

    starts: Numbers
    ends: Numbers
    is_beyond: Mask  # after all of them
