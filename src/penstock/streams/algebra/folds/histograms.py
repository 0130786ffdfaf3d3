"""How many numbers lie between given edges."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers, frozen
from penstock.streams.algebra.folds import fold_loops
from penstock.streams.algebra.folds.fold import Overflow, Parts
from penstock.streams.algebra.folds.fold_loops import FITS
from penstock.streams.algebra.multisets.tally import lists_of
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.state import cells, fixed_width


@dataclass(frozen=True)
class Histogram:
    """Counts of what is below all edges, from each to below the next, and from the last on."""

    column: str
    edges: tuple[float, ...]
    kind = pa.list_(pa.int64())
    order_free = True
    parts: Sequence[tuple[str, pa.DataType]] = (("", pa.list_(pa.int64())),)

    @property
    def _bins(self) -> int:
        return len(self.edges) + 1

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        array = rows.column(self.column)
        numbers = fixed_width.numbers(array.cast(pa.float64(), safe=False))
        places = groups.ids * self._bins + np.searchsorted(self.edges, numbers, "right")
        once = fixed_width.validity(array).astype(np.int64)
        return self._added(places, once if weights is None else once * weights, groups, None)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        if into is None and groups.are_single:
            return parts
        counts, rows = self._counts(parts)
        places = groups.ids[rows][:, None] * self._bins + np.arange(self._bins)
        return self._added(places.reshape(-1), counts.reshape(-1), groups, into)

    def _counts(self, parts: Parts) -> tuple[Numbers, Numbers]:
        """Those of all bins, of the rows that have any, and which rows these are."""
        elements, lengths = cells.elements_of(parts[0])
        counts = fixed_width.numbers(elements).reshape(-1, self._bins)
        return counts, np.flatnonzero(lengths)

    def _added(self, places: Numbers, counts: Numbers, groups: Groups, into: Parts | None) -> Parts:
        totals = np.zeros((len(groups), self._bins), np.int64)
        if into is not None:
            held, rows = self._counts(into)
            totals[rows] = held
        place = fold_loops.add_numbers(frozen(places), frozen(counts), totals.reshape(-1))
        if place != FITS:
            raise Overflow(pa.int64(), place // self._bins)
        there = np.flatnonzero(totals.any(axis=1))
        content = pa.array(totals[there].reshape(-1))
        return [lists_of(content, np.repeat(there, self._bins), len(groups))]

    def result(self, parts: Parts) -> pa.Array:
        """All zero where there is nothing."""
        totals = np.zeros((len(parts[0]), self._bins), np.int64)
        counts, rows = self._counts(parts)
        totals[rows] = counts
        groups = np.repeat(np.arange(len(totals)), self._bins)
        return lists_of(pa.array(totals.reshape(-1)), groups, len(totals))
