"""Entries of keys in state, by their time: those around a time are found without a look at others.

Time is cut into panes. A pane of a key has a head, with how many entries there are and their parts
merged, and the entries themselves, numbered as they come. One that is alone is in the head, and
has no row of its own. Nothing is taken out of a pane; it is let go as a whole.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers, frozen
from penstock.streams.algebra.aggregates.summary import Summary
from penstock.streams.algebra.changes import TIME_TYPE
from penstock.streams.algebra.folds.fold import Parts, take
from penstock.streams.algebra.rows.groups import counted_out, distinct_keys, grouped, spans
from penstock.streams.algebra.rows.own_columns import DUE, PANE, panes_of
from penstock.streams.algebra.windows.entry_loops import count_up_to
from penstock.streams.state import BucketState, StateSchema, fixed_width

MOMENT = "(moment)"  # the time of an entry
_NUMBER, _COUNT = "(number)", "(entries)"
_HEAD = -1
_OWN = 3  # values before the parts: time, count and due
_AT_ONCE = 1 << 20  # entries that are read


def entry_state(by: Sequence[pa.Field], parts: pa.Schema, kept: Sequence[pa.Field]) -> StateSchema:
    """`kept` is what entries have besides their parts."""
    keys, own = (
        [pa.field(name, pa.int64()) for name in names]
        for names in ((PANE, _NUMBER), (MOMENT, _COUNT, DUE))
    )
    values = pa.schema([*own, *parts, *kept])
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
        return np.lexsort((self.times, self.whose))

    @property
    def are_first(self) -> Mask:
        """Which are the first of their key and time, when they are in order."""
        return begins(self.whose, self.times)


class Heads(NamedTuple):
    """Panes that are there, by their heads: the places of these, and how many entries each has."""

    whose: Numbers
    panes: Numbers
    places: Numbers
    counts: Numbers

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


class Entries:
    """Those of the keys of a step, whose columns are given. Panes are `width` microseconds wide."""

    def __init__(
        self, state: BucketState, keys: list[pa.Array], summary: Summary, width: int
    ) -> None:
        self.keys = keys
        self._state = state
        self._summary = summary
        self._width = width

    @classmethod
    def due(
        cls, state: BucketState, heads: Numbers, summary: Summary, width: int
    ) -> tuple["Entries", Heads]:
        """Those of these heads, and the panes, key by key."""
        rows = state.take_keys(heads)
        keys, whose = distinct_keys(rows, state.schema.spread or 0)
        self = cls(state, keys, summary, width)
        order = np.argsort(whose, kind="stable")
        return self, self._panes(whose[order], panes_of(rows)[order], heads[order])

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
        return Heads(whose, panes, places, self._state.fixed(_COUNT)[places])

    def _rows(self, whose: Numbers, panes: Numbers, numbers: Numbers) -> pa.RecordBatch:
        columns = [key.take(pa.array(whose)) for key in self.keys]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array(panes), pa.array(numbers)], schema=self._state.schema.keys
        )

    def of(self, panes: Heads) -> tuple[Numbers, Numbers]:
        """All entries of these: which of the panes each is in, and its place."""
        which, number = counted_out(panes.counts)
        places = panes.places[which]
        several = np.flatnonzero(panes.counts[which] > 1)
        chosen = which[several]
        rows = self._rows(panes.whose[chosen], panes.panes[chosen], number[several])
        places[several] = self._state.find(rows)
        return which, places

    def times(self, places: Numbers) -> Numbers:
        times: Numbers = self._state.fixed(MOMENT)[places]
        return times

    def parts(self, places: Numbers) -> Parts:
        """Those of entries, or of heads."""
        return self._parts_of(self._state.take_values(places).columns)

    def _parts_of(self, values: Sequence[pa.Array]) -> Parts:
        return list(values[_OWN : _OWN + len(self._summary.parts)])

    def moments(self, whose: Numbers, places: Numbers) -> Moments:
        kept = []
        if len(self._state.schema.values) > _OWN + len(self._summary.parts):
            values = self._state.take_values(places).columns
            kept = values[_OWN + len(self._summary.parts) :]
        return Moments(whose, self.times(places), kept)

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
        which, number = counted_out(came)
        starts = np.cumsum(came) - came
        whose = fresh.whose[starts]
        heads = self._state.find_or_add(self._rows(whose, panes, np.full(len(panes), _HEAD)))
        held = self._state.take_values(heads)
        had = fixed_width.numbers(held.column(_COUNT))
        due = np.where(had > 0, np.minimum(due, fixed_width.numbers(held.column(DUE))), due)
        # One that was alone is given a row of its own, before those that came.
        moved, rows = np.flatnonzero(had == 1), np.flatnonzero((had + came)[which] > 1)
        chosen = np.concatenate([moved, which[rows]])
        numbers = np.concatenate([np.zeros(len(moved), np.int64), (had[which] + number)[rows]])
        places = self._state.find_or_add(self._rows(whose[chosen], panes[chosen], numbers))
        nothing = pa.nulls(len(chosen), pa.int64())
        times, *others = (
            pa.concat_arrays([old.take(pa.array(moved)), new.take(pa.array(rows))])
            for old, new in zip(
                [held.column(MOMENT), *held.columns[_OWN:]],
                [pa.array(fresh.times), *parts, *fresh.kept],
                strict=True,
            )
        )
        self._put(places, [times, nothing, nothing, *others])
        groups = grouped(which, self.named(whose, fresh.times[starts]))
        merged = self._summary.merge(parts, groups, self._parts_of(held.columns))
        alone = np.where(had + came == 1, starts, -1)
        times, *kept = (take(each, alone) for each in (pa.array(fresh.times), *fresh.kept))
        self._put(heads, [times, pa.array(had + came), pa.array(due), *merged, *kept])

    def _put(self, places: Numbers, values: Sequence[pa.Array]) -> None:
        schema = self._state.schema.values
        self._state.put(places, pa.RecordBatch.from_arrays(list(values), schema=schema))

    def put_due(self, panes: Heads, due: Numbers) -> None:
        self._state.put(panes.places, pa.RecordBatch.from_arrays([pa.array(due)], names=[DUE]))

    def remove(self, panes: Heads) -> None:
        """With all entries."""
        self._state.remove(panes.places)
        several = panes.some(panes.counts > 1)
        for portion in several.portions():
            self._state.remove(self.of(several.some(portion))[1])


def moments_of(packed: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(packed.column(MOMENT))


def count_pairs(firsts: Numbers, seconds: Numbers, first: Numbers, second: Numbers) -> Numbers:
    """How many of the pairs, which are in ascending order, come up to each of the others."""
    counts = np.empty(len(first), np.int64)
    pairs = [frozen(np.ascontiguousarray(each)) for each in (firsts, seconds, first, second)]
    count_up_to(pairs[0], pairs[1], pairs[2], pairs[3], counts)
    return counts


def begins(whose: Numbers, what: Numbers) -> Mask:
    """Where another key, or something else of it, begins."""
    begins = np.ones(len(whose), np.bool_)
    begins[1:] = (whose[1:] != whose[:-1]) | (what[1:] != what[:-1])
    return begins
