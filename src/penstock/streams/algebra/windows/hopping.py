"""Aggregation over tumbling and hopping windows.

State has a row for each key and pane, so that every event is in it once, however many windows
overlap; a window is the panes that it covers, merged. Windows are numbered: number k covers `size`
panes from pane k * hop on.

A pane is due when the first window that has it ends. From then on the newest such pane of a key is
due whenever a window ends: whatever older ones are in that window, it is in it too. The others are
due when they can be let go.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import changes
from penstock.streams.algebra.folds.fold import Parts, spread
from penstock.streams.algebra.kernel import END, NEVER
from penstock.streams.algebra.rows.groups import counted_out, distinct_keys, group_rows
from penstock.streams.algebra.rows.own_columns import DUE, panes_of
from penstock.streams.algebra.rows.times import event_times
from penstock.streams.algebra.windows.panes import Panes
from penstock.streams.algebra.windows.ranges import Ranges, merge_ranges
from penstock.streams.algebra.windows.window import Hopping
from penstock.streams.algebra.windows.windowed import Windowed, spans_of
from penstock.streams.state import BucketState

_FAR = 1 << 61  # more than the number of any window
_PANES_AT_ONCE = 1 << 20


class Pairs(NamedTuple):
    """Keys and windows, each pair once, in the order of their keys' numbers and of the windows."""

    keys: pa.RecordBatch
    whose: Numbers
    windows: Numbers

    def __len__(self) -> int:
        return len(self.windows)

    def some(self, piece: slice) -> "Pairs":
        keys = self.keys.slice(piece.start, piece.stop - piece.start)
        return Pairs(keys, self.whose[piece], self.windows[piece])


class HoppingKernel(Windowed):
    name = "hopping"
    window: Hopping

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        panes = self._panes.number(event_times(rows, self.time))
        if self._hop > self._size:
            inside = panes % self._hop < self._size
            rows, panes = rows.filter(pa.array(inside)), panes[inside]
        groups = self._groups(rows, panes)
        parts = self._summary.partial(rows, groups)
        return pa.RecordBatch.from_arrays([*groups.keys.columns, *parts], schema=self.packed)

    @property
    def _panes(self) -> Panes:
        return self.window.panes

    @property
    def _size(self) -> int:
        return self.window.size

    @property
    def _hop(self) -> int:
        return self.window.hop

    def _is_late(self, rows: pa.RecordBatch, before: int) -> Mask:
        return self._windows_of(panes_of(rows))[1] < self._first_open(before)

    def _first_open(self, before: int) -> int:
        """The first window that can still change."""
        return -_FAR if before == NEVER else self._first_after(before - self.correct_for)

    def _merge(
        self, state: BucketState, rows: pa.RecordBatch, before: int
    ) -> Iterator[pa.RecordBatch]:
        groups = group_rows(rows.select(self.state.keys.names))
        first, last = self._windows_of(panes_of(groups.keys))
        open_from = self._first_after(before)
        places = state.find_or_add(groups.keys)
        fresh = state.is_new(places)
        until = last if self.emit == "changes" else np.minimum(last, open_from - 1)
        pairs = self._pairs(groups.keys, np.maximum(first, self._first_open(before)), until)
        old = self._of_windows(state, pairs)
        for piece, some, of_piece in groups.pieces(rows):
            held = self._parts_of(state.take_values(places[piece]))
            parts = self._summary.merge(some.columns[len(self.state.keys) :], of_piece, held)
            state.put(places[piece], pa.RecordBatch.from_arrays(parts, schema=self._summary.parts))
        first_due = np.maximum(first, open_from) if self.emit == "final" else last + 1
        self._put_due(state, places[fresh], first_due[fresh], last[fresh])
        new = self._of_windows(state, pairs)
        yield from self._changed(pairs, old, new)

    def _close(
        self, state: BucketState, places: Numbers, before: int, now: int
    ) -> Iterator[pa.RecordBatch]:
        keys = state.take_keys(places)
        first, last = self._windows_of(panes_of(keys))
        next_open = self._first_after(now)
        due = last + 1
        if self.emit == "final":
            open_from = self._first_after(before)
            pairs = self._pairs(keys, np.maximum(first, open_from), np.minimum(last, next_open - 1))
            yield from self._changed(pairs, None, self._of_windows(state, pairs))
            newest = self._newest(keys, (first < next_open) & (next_open <= last))
            due[newest] = next_open
        gone = (due > last) & (self.window.ends(last) + self.correct_for <= now)
        self._put_due(state, places[~gone], due[~gone], last[~gone])
        state.remove(places[gone])

    def _newest(self, keys: pa.RecordBatch, wanted: Mask) -> Numbers:
        """Of these panes, the newest wanted one of each key."""
        rows = np.flatnonzero(wanted)
        if len(rows) == 0:
            return rows
        whose, panes = distinct_keys(keys, len(self.keys))[1][rows], panes_of(keys)[rows]
        order = np.lexsort((panes, whose))
        is_last: Mask = np.diff(whose[order], append=-1) != 0
        newest: Numbers = rows[order[is_last]]
        return newest

    def _put_due(self, state: BucketState, places: Numbers, due: Numbers, last: Numbers) -> None:
        """Each pane is looked at when window `due` ends, or, past its last one, when it can go."""
        if len(places) == 0:
            return
        ends = self.window.ends(np.minimum(due, last))
        times = np.where(due <= last, ends, ends + self.correct_for)
        state.put(places, pa.RecordBatch.from_arrays([pa.array(times)], names=[DUE]))

    # Windows and their numbers.

    def _windows_of(self, panes: Numbers) -> tuple[Numbers, Numbers]:
        """The first and the last window that has this pane."""
        return -((self._size - 1 - panes) // self._hop), panes // self._hop

    def _first_after(self, time: int) -> int:
        """The first window that ends after this time."""
        if time <= NEVER or time >= END:
            return -_FAR if time <= NEVER else _FAR
        pane = int(self._panes.number(np.array([time]))[0])
        return (pane - self._size) // self._hop + 1

    def _pairs(self, keys: pa.RecordBatch, first: Numbers, last: Numbers) -> Pairs:
        """The windows from `first` to `last` of the key of each of these panes.

        Both do not fall as panes rise, so of the panes of a key each only adds to those before.
        """
        rows = np.flatnonzero(first <= last)
        whose = np.arange(len(rows))
        if self._size > 1:  # else a pane is a window
            numbers, panes = distinct_keys(keys, len(self.keys))[1][rows], panes_of(keys)[rows]
            order = np.lexsort((panes, numbers))
            rows, whose = rows[order], numbers[order]
        first, last = first[rows], last[rows]
        if self._size > 1 and len(rows):
            is_same = whose[1:] == whose[:-1]
            first[1:] = np.where(is_same, np.maximum(first[1:], last[:-1] + 1), first[1:])
        counts = last - first + 1
        repeated, within = counted_out(counts)
        windows = first[repeated] + within
        taken = pa.array(rows[repeated])
        columns = [column.take(taken) for column in keys.columns[:-1]]
        chosen = pa.RecordBatch.from_arrays([*columns, pa.array(windows)], schema=keys.schema)
        return Pairs(chosen, whose[repeated], windows)

    def _of_windows(self, state: BucketState, pairs: Pairs) -> Parts | None:
        """The merged parts of each window, null where there is none; None of no windows at all."""
        if len(pairs) == 0:
            return None
        at_once = max(1, _PANES_AT_ONCE // self._size)
        pieces = [
            self._of_some(state, pairs.some(slice(first, first + at_once)))
            for first in range(0, len(pairs), at_once)
        ]
        if len(pieces) == 1:
            return pieces[0]
        return [pa.concat_arrays(each) for each in zip(*pieces, strict=True)]

    def _of_some(self, state: BucketState, pairs: Pairs) -> Parts:
        rows, panes, ends = self._covered(pairs)
        taken = pa.array(rows)
        columns = [column.take(taken) for column in pairs.keys.columns[:-1]]
        keys = pa.RecordBatch.from_arrays([*columns, pa.array(panes)], schema=self.state.keys)
        places = state.find(keys)
        there = places >= 0
        parts = self._parts_of(state.take_values(places[there]))
        if self._size == 1:
            return parts if there.all() else spread(parts, there)
        found = np.concatenate([np.zeros(1, np.int64), np.cumsum(there)])
        ranges = Ranges(found[ends - self._size], found[ends] - 1)
        filled = ranges.first <= ranges.last
        ranges = Ranges(ranges.first[filled], ranges.last[filled])
        keys = keys.filter(pa.array(there))
        if not filled.any():
            return spread(parts, filled)
        merged = merge_ranges(self._summary, parts, ranges, keys)
        return merged if filled.all() else spread(merged, filled)

    def _covered(self, pairs: Pairs) -> tuple[Numbers, Numbers, Numbers]:
        """The panes of these windows, each once for its key: by which pair each is there, which
        pane it is, and where those of each window end, which are the last `size` before that."""
        first = pairs.windows * self._hop
        last = first + self._size - 1
        is_same = pairs.whose[1:] == pairs.whose[:-1]
        first[1:] = np.where(is_same, np.maximum(first[1:], last[:-1] + 1), first[1:])
        counts = last - first + 1
        ends = np.cumsum(counts)
        rows = np.repeat(np.arange(len(pairs)), counts)
        return rows, first[rows] + np.arange(len(rows)) - (ends - counts)[rows], ends

    def _changed(
        self, pairs: Pairs, old: Parts | None, new: Parts | None
    ) -> Iterator[pa.RecordBatch]:
        if new is None:
            return
        window, time = spans_of(self.window.starts(pairs.windows), self.window.ends(pairs.windows))
        keys = pairs.keys.columns[:-1]
        after, now = self._results(new, pairs.keys)
        before, was = after, np.zeros_like(now)
        if old is not None:
            before, was = self._results(old, pairs.keys)
        columns = [[window, *keys, *results, time] for results in (before, after)]
        yield from changes(self.output, columns[0], was, columns[1], now)
