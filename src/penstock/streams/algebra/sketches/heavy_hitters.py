"""The most frequent values, about, in bounded memory: the counts of Misra and Gries, merged.

A group keeps the counts of so many values. When there are more, the count of the highest one that
has no room is taken off all of them, and those that have none left are forgotten. What was taken
off in all, which no count lacks more than, is at most the number of rows divided by the room.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.folds.fold import Parts, add, integers
from penstock.streams.algebra.multisets.answers import Top, by_height, rank_in_group
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.state import fixed_width

_MISSED = ("missed", pa.int64())


@dataclass(frozen=True)
class HeavyHitters(Top):
    room: int = 1000
    order_free = False  # which values have no room depends on which come together

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*super().parts, _MISSED]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        lists = super().partial(rows, weights, groups)
        return self._cut([*lists, integers(np.zeros(len(groups), np.int64))])

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        *lists, missed = parts
        held = None if into is None else into[:-1]
        merged = super().merge(lists, groups, held)
        return self._cut([*merged, add(missed, groups, None if into is None else into[-1])])

    def _cut(self, parts: Parts) -> Parts:
        *lists, missed = parts
        entries = self.entries(lists)
        order = by_height(entries.groups, entries.parts[0])
        next_one = order[rank_in_group(entries.groups[order]) == self.room]
        if len(next_one) == 0:
            return parts
        taken_off = np.zeros(len(missed), np.int64)
        taken_off[entries.groups[next_one]] = entries.counts[next_one]
        left = entries.counts - taken_off[entries.groups]
        kept = np.flatnonzero(left > 0)
        entries = entries.take(kept)._replace(parts=[integers(left[kept])])
        missed = integers(fixed_width.numbers(missed) + taken_off)
        return [*self.listed(entries, len(missed)), missed]

    def result(self, parts: Parts) -> pa.Array:
        return super().result(parts[:-1])
