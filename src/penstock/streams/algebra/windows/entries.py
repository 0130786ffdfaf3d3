"""Entries of keys in state, by their time: those around a time are found without a look at others.

Time is cut into panes. A pane of a key has a head, with how many entries there are and their parts
merged. Those that come together are one chunk, which is a row of its own, numbered as they come;
but a few that come first are in the head, which costs little more to read with them. Nothing is
taken out of a pane; it is let go as a whole.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers, frozen
from penstock.streams.algebra.aggregates.summary import Summary
from penstock.streams.algebra.changes import TIME_TYPE
from penstock.streams.algebra.folds.fold import Parts
from penstock.streams.algebra.rows.chunks import Chunks, Unpacked
from penstock.streams.algebra.rows.groups import counted_out, distinct_keys, grouped, spans
from penstock.streams.algebra.rows.own_columns import DUE, PANE, panes_of
from penstock.streams.algebra.windows.entry_loops import count_up_to
from penstock.streams.state import BucketState, StateSchema, fixed_width

MOMENT = "(moment)"  # the time of an entry
_NUMBER, _COUNT, _CHUNKS = "(number)", "(count)", "(chunks)"
_HEAD = -1
_OWN = 3  # values before the parts: due, count and chunks
_FEW = 16  # entries that a head may have
_AT_ONCE = 1 << 16  # entries that are read: small memory is used again and again


def entry_state(by: Sequence[pa.Field], parts: pa.Schema, chunks: Chunks) -> StateSchema:
    keys, own = (
        [pa.field(name, pa.int64()) for name in names]
        for names in ((PANE, _NUMBER), (DUE, _COUNT, _CHUNKS))
    )
    values = pa.schema([*own, *parts, *chunks.cells])
    return StateSchema(pa.schema([*by, *keys]), values, due=DUE, spread=len(by))


class Moments(NamedTuple):
    """Times of keys, which are known by their number, and what is kept of the rows at them."""

    whose: Numbers
    times: Numbers
    kept: list[pa.Array]

    def __len__(self) -> int:
        return len(self.times)

    def some(self, rows: Numbers) -> "Moments":
        kept = [each.take(pa.array(rows)) for each in self.kept]
        return Moments(self.whose[rows], self.times[rows], kept)

    def span(self, span: slice) -> "Moments":
        return Moments(self.whose[span], self.times[span], [each[span] for each in self.kept])

    def and_then(self, others: "Moments") -> "Moments":
        kept = zip(self.kept, others.kept, strict=True)
        return Moments(
            np.concatenate([self.whose, others.whose]),
            np.concatenate([self.times, others.times]),
            [pa.concat_arrays(pair) for pair in kept],
        )

    @property
    def order(self) -> Numbers:
        """By key and time; of the same, as they are."""
        return order_of(self.whose, self.times)

    @property
    def are_first(self) -> Mask:
        """Which are the first of their key and time, when they are in order."""
        return begins(self.whose, self.times)


class Heads(NamedTuple):
    """Panes that are there, by their heads: the places of these, and how many entries each has.

    `chunks` are those beside the head.
    """

    whose: Numbers
    panes: Numbers
    places: Numbers
    counts: Numbers
    chunks: Numbers

    def __len__(self) -> int:
        return len(self.panes)

    def some(self, rows: Mask | Numbers | slice) -> "Heads":
        return Heads(*(each[rows] for each in self))

    @property
    def are_many(self) -> bool:
        return int(self.counts.sum()) > _AT_ONCE

    def portions(self) -> Iterator[slice]:
        """Some panes at a time, with entries not too many to be read at once."""
        cuts = np.flatnonzero(np.diff(np.cumsum(self.counts) // _AT_ONCE)) + 1
        for first, last in pairwise([0, *cuts.tolist(), len(self)]):
            yield slice(first, last)

    def among(self, whose: Numbers, panes: Numbers) -> Mask:
        """Which of these, that are in order, are among those."""
        marks = np.zeros(len(self), np.bool_)
        at = count_pairs(self.whose, self.panes, whose, panes) - 1
        found = (self.whose[at] == whose) & (self.panes[at] == panes) if len(self) else at >= 0
        marks[at[found]] = True
        return marks


class Found:
    """Entries that were read: which of the panes each is in, and its time."""

    def __init__(self, which: Numbers, entries: Unpacked, parts: range, kept: range) -> None:
        self.which = which
        self.times = entries.numbers(0)
        self._entries = entries
        self._parts, self._kept = parts, kept

    def parts(self, rows: Numbers) -> Parts:
        return self._entries.take(self._parts, rows)

    def moments(self, whose: Numbers, rows: Numbers) -> Moments:
        """Some of them, of these keys."""
        return Moments(whose, self.times[rows], self._entries.take(self._kept, rows))


class Entries:
    """Those of the keys of a step, whose columns are given. Panes are `width` microseconds wide."""

    def __init__(
        self,
        state: BucketState,
        keys: list[pa.Array],
        summary: Summary,
        chunks: Chunks,
        width: int,
    ) -> None:
        self.keys = keys
        self._state = state
        self._summary = summary
        self._chunks = chunks
        self._width = width

    @classmethod
    def due(
        cls, state: BucketState, heads: Numbers, summary: Summary, chunks: Chunks, width: int
    ) -> tuple["Entries", Heads]:
        """Those of these heads, and the panes, key by key."""
        rows = state.take_keys(heads)
        keys, whose = distinct_keys(rows, state.schema.spread or 0)
        self = cls(state, keys, summary, chunks, width)
        panes = panes_of(rows)
        order = order_of(whose, panes)
        return self, self._panes(whose[order], panes[order], heads[order])

    def panes(self, whose: Numbers, first: Numbers, last: Numbers) -> Heads:
        """Those with something between a first moment and a last, in order.

        Both are given key by key, in ascending order.
        """
        first, last = first // self._width, last // self._width
        same = whose[1:] == whose[:-1]
        first[1:] = np.where(same, np.maximum(first[1:], last[:-1] + 1), first[1:])  # none twice
        rows, within = counted_out(np.maximum(last - first + 1, 0))
        whose, panes = whose[rows], first[rows] + within
        places = self._state.find(self._rows(whose, panes, np.full(len(rows), _HEAD)))
        there = np.flatnonzero(places >= 0)
        return self._panes(whose[there], panes[there], places[there])

    def _panes(self, whose: Numbers, panes: Numbers, places: Numbers) -> Heads:
        counts, chunks = (self._state.fixed(name)[places] for name in (_COUNT, _CHUNKS))
        return Heads(whose, panes, places, counts, chunks)

    def _rows(self, whose: Numbers, panes: Numbers, numbers: Numbers) -> pa.RecordBatch:
        columns = [key.take(pa.array(whose)) for key in self.keys]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array(panes), pa.array(numbers)], schema=self._state.schema.keys
        )

    def read(self, panes: Heads) -> Found:
        """All entries of these, pane by pane as they came."""
        which, number = counted_out(panes.chunks + 1)
        places = panes.places[which]
        places[number > 0] = self._beside(panes)
        lengths, entries = self._chunks.unpack(self._state.take_values(places))
        first_kept, end = 1 + len(self._summary.parts), len(self._chunks.columns)
        columns = range(1, first_kept), range(first_kept, end)
        return Found(np.repeat(which, lengths), entries, *columns)

    def _beside(self, panes: Heads) -> Numbers:
        """The places of chunks that are not in a head."""
        which, number = counted_out(panes.chunks)
        return self._state.find(self._rows(panes.whose[which], panes.panes[which], number))

    def merged(self, panes: Heads) -> Parts:
        """The parts of all entries of each."""
        return self._parts_of(self._state.take_values(panes.places))

    def _parts_of(self, values: pa.RecordBatch) -> Parts:
        return list(values.columns[_OWN : _OWN + len(self._summary.parts)])

    def named(self, whose: Numbers, times: Numbers) -> pa.RecordBatch:
        """Whose something is, and of when, should it fail."""
        columns = [pa.DictionaryArray.from_arrays(pa.array(whose), key) for key in self.keys]
        names = self._state.schema.keys.names[: len(columns)]
        moments = pa.array(times).cast(TIME_TYPE)
        return pa.RecordBatch.from_arrays([*columns, moments], names=[*names, "time"])

    def add(self, fresh: Moments, parts: Parts, dues: Numbers) -> None:
        """Entries that are in order; each makes its pane due no later than it says."""
        panes = fresh.times // self._width
        bounds = np.append(np.flatnonzero(begins(fresh.whose, panes)), len(panes))
        for piece in spans(len(bounds) - 1):
            first = bounds[piece.start]
            span = slice(first, bounds[piece.stop])
            counts = np.diff(bounds[piece.start : piece.stop + 1])
            starts = bounds[piece] - first
            some = fresh.span(span), [each[span] for each in parts]
            self._add(*some, panes[span][starts], np.minimum.reduceat(dues[span], starts), counts)

    def _add(
        self, fresh: Moments, parts: Parts, panes: Numbers, due: Numbers, came: Numbers
    ) -> None:
        """Those of some panes, of which so many came of each."""
        starts = np.cumsum(came) - came
        whose = fresh.whose[starts]
        heads = self._state.find_or_add(self._rows(whose, panes, np.full(len(panes), _HEAD)))
        before = self._panes(whose, panes, heads)  # zeros, of new ones
        held = self._state.take_values(heads)
        due = np.where(
            before.counts > 0, np.minimum(due, fixed_width.numbers(held.column(DUE))), due
        )
        groups = grouped(counted_out(came)[0], self.named(whose, fresh.times[starts]))
        merged = self._summary.merge(parts, groups, self._parts_of(held))
        beside = (before.counts > 0) | (came > _FEW)
        own = [pa.array(each) for each in (due, before.counts + came, before.chunks + beside)]
        names = self._state.schema.values.names[: len(own) + len(merged)]
        self._state.put(heads, pa.RecordBatch.from_arrays([*own, *merged], names=names))
        rows = self._rows(whose[beside], panes[beside], before.chunks[beside])
        heads[beside] = self._state.find_or_add(rows)
        columns = [pa.array(fresh.times), *parts, *fresh.kept]
        self._state.put(heads, self._chunks.pack(columns, starts))

    def put_due(self, panes: Heads, due: Numbers) -> None:
        self._state.put(panes.places, pa.RecordBatch.from_arrays([pa.array(due)], names=[DUE]))

    def remove(self, panes: Heads) -> None:
        """With all entries."""
        self._state.remove(panes.places)
        self._state.remove(self._beside(panes))


def moments_of(packed: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(packed.column(MOMENT))


def count_pairs(firsts: Numbers, seconds: Numbers, first: Numbers, second: Numbers) -> Numbers:
    """How many of the pairs, which are in ascending order, come up to each of the others."""
    counts = np.empty(len(first), np.int64)
    pairs = [frozen(np.ascontiguousarray(each)) for each in (firsts, seconds, first, second)]
    count_up_to(pairs[0], pairs[1], pairs[2], pairs[3], counts)
    return counts


def order_of(whose: Numbers, what: Numbers) -> Numbers:
    """By key, and then by this; of the same, as they are.

    As one number if that can be: what is nearly in order, as entries mostly are, is sorted in less
    time then.
    """
    if len(whose) == 0:
        return np.empty(0, np.int64)
    first, last = int(what.min()), int(what.max())
    if (int(whose.max()) + 1) * (last - first + 1) >= 1 << 63:
        return np.lexsort((what, whose))
    return np.argsort(whose * (last - first + 1) + (what - first), kind="stable")


def begins(whose: Numbers, what: Numbers) -> Mask:
    """Where another key, or something else of it, begins."""
    begins = np.ones(len(whose), np.bool_)
    begins[1:] = (whose[1:] != whose[:-1]) | (what[1:] != what[:-1])
    return begins
