"""Exact multisets: which values a group has, in order, and how often each.

A tally keeps each value once, with the parts that are folded for it: how often it is there, and
what else is asked. The parts of a group are lists, of which the first ones, taken together, are in
ascending order. A value of which nothing is left is gone; one that was taken back before it came is
there less than zero times. Merging rewrites the lists of the groups that change, and of no others.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import KernelError
from penstock.events.compiled import Numbers, frozen
from penstock.streams.algebra.folds.fold import (
    Counting,
    Fold,
    Overflow,
    Parts,
    integers,
    is_nothing,
)
from penstock.streams.algebra.folds.picks import place_word
from penstock.streams.algebra.multisets.tally_loops import mark_first, sort_in_groups
from penstock.streams.algebra.rows.group_loops import sort_by_group
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.algebra.rows.order import order_words
from penstock.streams.state import cells, fixed_width

_NO_KEYS = pa.RecordBatch.from_pydict({})
_COUNTING = Counting(None)


class Entries(NamedTuple):
    """The values of all groups one after the other, in ascending order in each."""

    groups: Numbers  # the group of each
    columns: list[pa.Array]  # what they are ordered by, the value itself last
    parts: Parts  # what is folded for each: how often it is there, if that is counted, and sums

    @property
    def values(self) -> pa.Array:
        return self.columns[-1]

    @property
    def counts(self) -> Numbers:
        return fixed_width.numbers(self.parts[0])

    def take(self, chosen: Numbers) -> "Entries":
        rows = pa.array(chosen)
        columns, parts = ([each.take(rows) for each in side] for side in self[1:])
        return Entries(self.groups[chosen], columns, parts)


@dataclass(frozen=True)
class Tally:
    """What all folds over a multiset have in common; they differ in their results.

    Values are kept in the order of the columns `order`, then in their own. Without `counted` it is
    a set. `sums` is folded for each value, over its rows.
    """

    column: str
    value: pa.DataType
    order: tuple[str, ...] = ()
    counted: bool = True
    sums: Fold | None = None

    @property
    def order_free(self) -> bool:
        return self.sums is None or self.sums.order_free

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        columns = [*((f"by {name}", pa.int64()) for name in self.order), ("values", self.value)]
        if self.counted:
            columns.append(("count", pa.int64()))
        if self.sums is not None:
            columns += [(f"sum {part}".rstrip(), kind) for part, kind in self.sums.parts]
        return [(name, pa.list_(kind)) for name, kind in columns]

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """Those of the column as they are kept: numbers that count as equal are the same."""
        array = rows.column(self.column)
        if not pa.types.is_floating(array.type):
            return array
        numbers = fixed_width.canonical(fixed_width.numbers(array))
        return fixed_width.from_numbers(array.type, numbers, fixed_width.validity(array))

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        columns = [*(place_word(rows.column(name)) for name in self.order), self.values(rows)]
        there = np.flatnonzero(fixed_width.validity(columns[-1]))
        ids = groups.ids
        if len(there) < len(ids):
            columns = [each.take(pa.array(there)) for each in columns]
            ids = frozen(ids[there])
        order, same = sorted_entries(ids, len(groups), columns)
        chosen = there[order]
        parts: Parts = []
        with _of_group(ids[order], same):
            once = None if weights is None else weights[chosen]
            if self.counted:
                ones = np.ones(len(chosen), np.int64) if once is None else once
                parts += _COUNTING.merge([integers(ones)], same, None)
            if self.sums is not None:
                parts += self.sums.partial(rows.take(pa.array(chosen)), once, same)
        return self._merged(ids, columns, order, same, parts, len(groups))

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        if into is None and groups.are_single:
            return parts
        given = self.entries(parts)
        ids = groups.ids[given.groups]
        columns, folded = given.columns, given.parts
        if into is not None:
            held = self.entries(into)
            ids = np.concatenate([held.groups, ids])
            columns, folded = (
                [pa.concat_arrays(pair) for pair in zip(*sides, strict=True)]
                for sides in ((held.columns, columns), (held.parts, folded))
            )
        order, same = sorted_entries(frozen(ids), len(groups), columns)
        folded = [each.take(pa.array(order)) for each in folded]
        merged: Parts = []
        with _of_group(ids[order], same):
            if self.counted:
                merged += _COUNTING.merge(folded[:1], same, None)
            if self.sums is not None:
                merged += self.sums.merge(folded[1:], same, None)
        return self._merged(ids, columns, order, same, merged, len(groups))

    def _merged(
        self,
        ids: Numbers,
        columns: list[pa.Array],
        order: Numbers,
        same: Groups,
        parts: Parts,
        count: int,
    ) -> Parts:
        firsts = order[same.firsts]
        entries = Entries(ids[firsts], [each.take(pa.array(firsts)) for each in columns], parts)
        # A count may pass zero while sums still have to be evened out by rows that are to come.
        if self.counted and (gone := is_nothing(parts)).any():
            entries = entries.take(np.flatnonzero(~gone))
        return self.listed(entries, count)

    def entries(self, parts: Parts) -> Entries:
        """Those of the parts of groups, by the number of the row they are in."""
        found = [cells.elements_of(part) for part in parts]
        lengths = found[0][1]
        arrays = [elements for elements, _ in found]
        width = len(self.order) + 1
        rows = np.repeat(np.arange(len(lengths)), lengths)
        return Entries(rows, arrays[:width], arrays[width:])

    def present(self, parts: Parts) -> Entries:
        """Without those that were taken back before they came."""
        entries = self.entries(parts)
        if not self.counted or (there := entries.counts > 0).all():
            return entries
        return entries.take(np.flatnonzero(there))

    def listed(self, entries: Entries, count: int) -> Parts:
        """The parts of so many groups; those without any entry are null."""
        arrays = [*entries.columns, *entries.parts]
        return [lists_of(each, entries.groups, count) for each in arrays]


def lists_of(values: pa.Array, groups: Numbers, count: int, *, none: bool = True) -> pa.Array:
    """The values of each of so many groups as a list, null (`none`) or empty if there are none.

    They are given one group after the other.
    """
    bounds = bounds_of(groups, count)
    bitmap = fixed_width.bitmap_of(np.diff(bounds) > 0) if none else None
    buffers = [bitmap, offsets_of(bounds)]
    return pa.Array.from_buffers(pa.list_(values.type), count, buffers, children=[values])


def bounds_of(groups: Numbers, count: int) -> Numbers:
    """Where each of so many groups begins and the last ends, one group after the other."""
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=bounds[1:])
    return bounds


def offsets_of(bounds: Numbers) -> pa.Buffer:
    """As Arrow has them. Raises KernelError when they do not fit into its 32 bits."""
    if bounds[-1] >= 2**31:
        raise KernelError(
            f"{len(bounds) - 1} groups have {bounds[-1]} values or bytes, and 2 GiB are the most",
            hint="use an approximate aggregate, or one with a larger error",
        )
    return pa.py_buffer(bounds.astype(np.int32))


def sorted_entries(ids: Numbers, count: int, columns: Sequence[pa.Array]) -> tuple[Numbers, Groups]:
    """The order of rows by group and then by value; in it, which of them have the same of both."""
    bounds = bounds_of(ids, count)
    by_group = np.empty(len(ids), np.int64)
    sort_by_group(frozen(ids), bounds[:-1].copy(), by_group)
    words = np.hstack([order_words(each) for each in columns])[by_group]
    order = sorted_words(bounds, words)
    marks = np.empty(len(ids), np.bool_)
    mark_first(frozen(bounds), _flat(words), words.shape[1], frozen(order), marks)
    same = Groups(frozen(np.cumsum(marks) - 1), frozen(np.flatnonzero(marks)), _NO_KEYS)
    return by_group[order], same


def sorted_words(bounds: Numbers, words: Numbers) -> Numbers:
    """The order of rows by their words, an array of two dimensions, inside of these bounds."""
    order, scratch = np.arange(len(words)), np.empty(len(words), np.int64)
    sort_in_groups(frozen(bounds), _flat(words), words.shape[1], order, scratch)
    return order


def _flat(words: Numbers) -> Numbers:
    return frozen(np.ascontiguousarray(words).reshape(-1))


@contextmanager
def _of_group(ids: Numbers, same: Groups) -> Iterator[None]:
    """A sum of one value that does not fit is one of the group."""
    try:
        yield
    except Overflow as error:
        raise Overflow(error.kind, ids[same.firsts[error.group]]) from None
