"""What can be said of an exact multiset: how many values there are, which, and where they lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.folds.fold import Parts, add, integers, take
from penstock.streams.algebra.multisets.tally import (
    Entries,
    Tally,
    bounds_of,
    lists_of,
    sorted_words,
)
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.algebra.rows.order import order_words
from penstock.streams.state import fixed_width

_DIGITS = 10**6  # to which a share of all values is taken


class Distinct(Tally):
    """How many different values there are."""

    kind = pa.int64()

    def result(self, parts: Parts) -> pa.Array:
        return integers(np.bincount(self.present(parts).groups, minlength=len(parts[0])))


@dataclass(frozen=True)
class End(Tally):
    """The first value, or the last one, in the order that is kept."""

    last: bool = False

    @property
    def kind(self) -> pa.DataType:
        return self.value

    def result(self, parts: Parts) -> pa.Array:
        entries = self.present(parts)
        rows = np.full(len(parts[0]), -1)
        step = 1 if self.last else -1
        rows[entries.groups[::step]] = np.arange(len(entries.groups))[::step]
        return take(entries.values, rows)


@dataclass(frozen=True)
class Quantile(Tally):
    """The value below or at which a share of all lies, for each share; `single` is one of them."""

    shares: tuple[float, ...] = ()
    single: bool = True

    @property
    def kind(self) -> pa.DataType:
        return self.of_value if self.single else pa.list_(self.of_value)

    @property
    def of_value(self) -> pa.DataType:
        return self.value

    def result(self, parts: Parts) -> pa.Array:
        entries = self.present(parts)
        count = len(parts[0])
        there = np.zeros(count, np.bool_)
        there[entries.groups] = True
        up_to = np.cumsum(entries.counts)
        ends = np.searchsorted(entries.groups, np.arange(count), "right")
        through = np.concatenate([np.zeros(1, np.int64), up_to])[ends]
        totals = np.diff(through, prepend=0)
        found = []
        for share in self.shares:
            exact = Fraction(share).limit_denominator(_DIGITS)
            ranks = np.maximum(-(-exact.numerator * totals // exact.denominator), 1)
            places = np.searchsorted(up_to, through - totals + ranks)
            found.append(self.shown(take(entries.values, np.where(there, places, -1))))
        return found[0] if self.single else _side_by_side(found, there)

    def shown(self, values: pa.Array) -> pa.Array:
        return values


def _side_by_side(columns: Sequence[pa.Array], there: Mask) -> pa.Array:
    """Lists of one value of each column, null where there are none."""
    groups = np.flatnonzero(there)
    turns = np.arange(len(columns)) * len(there)
    places = (groups[:, None] + turns[None, :]).reshape(-1)
    values = pa.concat_arrays(list(columns)).take(pa.array(places))
    return lists_of(values, np.repeat(groups, len(columns)), len(there))


@dataclass(frozen=True)
class Top(Tally):
    """The most frequent values, or those with the highest sums, each with that number."""

    k: int = 10

    @property
    def kind(self) -> pa.DataType:
        measure = ("count", pa.int64()) if self.sums is None else ("sum", self.sums.kind)
        return pa.list_(pa.struct([("value", self.value), measure]))

    def result(self, parts: Parts) -> pa.Array:
        entries = self.present(parts)
        measures = entries.parts[0] if self.sums is None else self.sums.result(entries.parts[1:])
        order = by_height(entries.groups, measures)
        chosen = order[rank_in_group(entries.groups[order]) < self.k]
        rows = pa.array(chosen)
        both = [entries.values.take(rows), measures.take(rows)]
        pairs = pa.StructArray.from_arrays(both, fields=list(self.kind.value_type))
        return lists_of(pairs, entries.groups[chosen], len(parts[0]), none=False)


def by_height(groups: Numbers, measures: pa.Array) -> Numbers:
    """The order by group, the highest first, null last; those as high stay as they are.

    Groups are given one after the other.
    """
    missing = ~fixed_width.validity(measures).reshape(-1, 1)
    words = np.hstack([missing.astype(np.int64), ~order_words(measures)])
    return sorted_words(bounds_of(groups, int(groups[-1]) + 1 if len(groups) else 0), words)


def rank_in_group(groups: Numbers) -> Numbers:
    """How many of the same group come before each, one group after the other."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


_MORE = ("more", pa.int64())


@dataclass(frozen=True)
class Collection(Tally):
    """The first values in the order that is kept, up to a limit, and how many more there are.

    What is beyond the limit is counted and not kept, unless rows can be taken back (`weighted`),
    which brings it in again.
    """

    limit: int = 0
    weighted: bool = False

    @property
    def kind(self) -> pa.DataType:
        return pa.struct([("values", pa.list_(self.value)), _MORE])

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*super().parts, _MORE]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        lists = super().partial(rows, weights, groups)
        return self._cut([*lists, pa.nulls(len(groups), pa.int64())])

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        *lists, more = parts
        held = None if into is None else into[:-1]
        merged = super().merge(lists, groups, held)
        return self._cut([*merged, add(more, groups, None if into is None else into[-1])])

    def _cut(self, parts: Parts) -> Parts:
        if self.weighted:
            return parts
        *lists, more = parts
        entries = self.entries(lists)
        kept, left_out = self._up_to_limit(entries)
        if not left_out.any():
            return parts
        count = len(more)
        total = fixed_width.numbers(more) + _total(entries.groups, left_out, count)
        inside = np.flatnonzero(kept)
        entries = entries.take(inside)._replace(parts=[integers(kept[inside])])
        return [*self.listed(entries, count), integers(total, total > 0)]

    def _up_to_limit(self, entries: Entries) -> tuple[Numbers, Numbers]:
        """How often each is kept, and how often left out."""
        counts = entries.counts
        up_to = np.cumsum(counts)
        firsts = np.searchsorted(entries.groups, entries.groups)
        before = up_to - counts - (up_to - counts)[firsts]
        kept = np.clip(self.limit - before, 0, counts)
        return kept, counts - kept

    def result(self, parts: Parts) -> pa.Array:
        *lists, more = parts
        entries = self.present(lists)
        kept, left_out = self._up_to_limit(entries)
        rows = np.repeat(np.arange(len(kept)), kept)
        count = len(more)
        taken = entries.values.take(pa.array(rows))
        values = lists_of(taken, entries.groups[rows], count, none=False)
        total = fixed_width.numbers(more) + _total(entries.groups, left_out, count)
        return pa.StructArray.from_arrays([values, integers(total)], fields=list(self.kind))


def _total(groups: Numbers, numbers: Numbers, count: int) -> Numbers:
    totals = np.zeros(count, np.int64)
    np.add.at(totals, groups, numbers)
    return totals
