"""Rolling aggregates: every row as it is, with what the rows of its key in the last while come to.

As sliding windows, but that each row is an entry of its own. Rows of the same key and time have the
same results, and equal rows come out as often as they went in.
"""

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers, frozen
from penstock.streams.algebra.changes import TIME_TYPE
from penstock.streams.algebra.folds.fold import Parts
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.algebra.rows.order import order_words
from penstock.streams.algebra.rows.shape import visible
from penstock.streams.algebra.windows.entries import (
    Entries,
    Moments,
    begins,
    moments_of,
    order_of,
)
from penstock.streams.algebra.windows.sliding import SlidingKernel

_ROW = "(row) "


class RollingKernel(SlidingKernel):
    """The columns of the schema but for those that begin with `_`, the results, and `_time`."""

    name = "rolling"

    def _lay_out(self) -> None:
        super()._lay_out()
        self.output = pa.schema([*self._fields, *self._given_fields])
        self.needed = tuple(dict.fromkeys([*self.needed, *(each.name for each in self._fields)]))

    @property
    def _fields(self) -> list[pa.Field]:
        return visible(self.schema)

    @property
    def _kept(self) -> list[pa.Field]:
        others = [each for each in self._fields if each.name not in self.keys]
        return [pa.field(f"{_ROW}{each.name}", each.type) for each in others]

    @property
    def _result_names(self) -> list[str]:
        columns = dict.fromkeys([*(each.name for each in self._fields), *self.keys])
        return [*columns, *self.aggregates]

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = self._packed_keys(rows)
        each = frozen(np.arange(rows.num_rows))
        parts = self._summary.partial(rows, Groups(each, each, keys))
        kept = [rows.column(field.name.removeprefix(_ROW)) for field in self._kept]
        return pa.RecordBatch.from_arrays([*keys.columns, *parts, *kept], schema=self.packed)

    def _in_order(
        self, entries: Entries, rows: pa.RecordBatch, whose: Numbers
    ) -> tuple[Moments, Parts]:
        order = _in_full_order(rows, whose)
        rows, whose = rows.take(pa.array(order)), whose[order]
        first, last = len(self.keys) + 1, len(self.packed) - len(self._kept)
        return Moments(whose, moments_of(rows), rows.columns[last:]), rows.columns[first:last]

    def _rows(self, moments: Moments) -> Numbers:
        return moments.order

    def _columns(self, entries: Entries, given: Moments, results: list[pa.Array]) -> list[pa.Array]:
        columns = {
            name: each.take(pa.array(given.whose))
            for name, each in zip(self.keys, entries.keys, strict=True)
        }
        kept = (field.name.removeprefix(_ROW) for field in self._kept)
        columns |= dict(zip(kept, given.kept, strict=True))
        times = pa.array(given.times).cast(TIME_TYPE)
        return [*(columns[field.name] for field in self._fields), *results, times]


def _in_full_order(rows: pa.RecordBatch, whose: Numbers) -> Numbers:
    """By key and time, and then by all columns: rows that are run again are numbered as before."""
    times = moments_of(rows)
    order = order_of(whose, times)
    first = begins(whose[order], times[order])
    tied = np.flatnonzero(~(first & np.append(first[1:], True)))
    if len(tied) == 0:
        return order
    chosen = order[tied]
    columns = rows.take(pa.array(chosen)).to_struct_array()
    words = order_words(columns).T[::-1]
    order[tied] = chosen[np.lexsort((*words, times[chosen], whose[chosen]))]
    return order
