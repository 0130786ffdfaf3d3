"""Aggregation over tumbling and hopping windows.

State has a row for each key and pane, so that every event is in it once, however many windows
overlap; a window is the panes that it covers, merged. Windows are numbered: number k covers `size`
panes from pane k * hop on.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import changes
from penstock.streams.algebra.folds.fold import Parts
from penstock.streams.algebra.kernel import END, NEVER
from penstock.streams.algebra.rows.groups import group_rows, grouped
from penstock.streams.algebra.windows.panes import Panes
from penstock.streams.algebra.windows.window import Hopping
from penstock.streams.algebra.windows.windowed import DUE, Windowed, panes_of
from penstock.streams.state import BucketState

_FAR = 1 << 61  # more than the number of any window
_PANES_AT_ONCE = 1 << 20


class Pairs(NamedTuple):
    """Keys and windows, each pair once."""

    keys: pa.RecordBatch
    windows: Numbers

    def __len__(self) -> int:
        return len(self.windows)

    def some(self, piece: slice) -> "Pairs":
        keys = self.keys.slice(piece.start, piece.stop - piece.start)
        return Pairs(keys, self.windows[piece])


class WindowKernel(Windowed):
    name = "window"
    window: Hopping

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        panes = self._panes.number(self._times(rows))
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

    def _is_late(self, panes: Numbers, before: int) -> Mask:
        return self._windows_of(panes)[1] < self._first_open(before)

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
        if self.emit == "final":
            open_from = self._first_after(before)
            pairs = self._pairs(keys, np.maximum(first, open_from), np.minimum(last, next_open - 1))
            yield from self._changed(pairs, None, self._of_windows(state, pairs))
        due = np.maximum(first, next_open) if self.emit == "final" else last + 1
        gone = np.zeros(len(places), np.bool_)
        waiting = due <= last
        gone[~waiting] = self._ends(last[~waiting]) + self.correct_for <= now
        self._put_due(state, places[~gone], due[~gone], last[~gone])
        state.remove(places[gone])

    def _put_due(self, state: BucketState, places: Numbers, due: Numbers, last: Numbers) -> None:
        """Each pane is looked at when window `due` ends, or, past its last one, when it can go."""
        if len(places) == 0:
            return
        ends = self._ends(np.minimum(due, last))
        times = np.where(due <= last, ends, ends + self.correct_for)
        state.put(places, pa.RecordBatch.from_arrays([pa.array(times)], names=[DUE]))

    # Windows and their numbers.

    def _windows_of(self, panes: Numbers) -> tuple[Numbers, Numbers]:
        """The first and the last window that has this pane."""
        return -((self._size - 1 - panes) // self._hop), panes // self._hop

    def _ends(self, windows: Numbers) -> Numbers:
        return self._panes.start(windows * self._hop + self._size)

    def _first_after(self, time: int) -> int:
        """The first window that ends after this time."""
        if time <= NEVER or time >= END:
            return -_FAR if time <= NEVER else _FAR
        pane = int(self._panes.number(np.array([time]))[0])
        return (pane - self._size) // self._hop + 1

    def _pairs(self, keys: pa.RecordBatch, first: Numbers, last: Numbers) -> Pairs:
        """The windows from `first` to `last` of each of these keys, each once."""
        counts = np.maximum(last - first + 1, 0)
        rows = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        windows = first[rows] + within
        columns = [column.take(pa.array(rows)) for column in keys.columns[:-1]]
        chosen = pa.RecordBatch.from_arrays([*columns, pa.array(windows)], schema=keys.schema)
        if self._size > 1 and len(windows):  # else a pane is a window
            chosen = group_rows(chosen).keys
        return Pairs(chosen, panes_of(chosen))

    def _of_windows(self, state: BucketState, pairs: Pairs) -> Parts | None:
        """The merged parts of each window; None when there are no windows at all."""
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
        count, size = len(pairs), self._size
        panes = (pairs.windows * self._hop)[:, None] + np.arange(size)
        rows = np.repeat(np.arange(count), size)
        columns = [column.take(pa.array(rows)) for column in pairs.keys.columns[:-1]]
        places = state.find(
            pa.RecordBatch.from_arrays(
                [*columns, pa.array(panes.reshape(-1))], schema=self.state.keys
            )
        )
        there = places >= 0
        parts = self._parts_of(state.take_values(places[there]))
        return self._summary.merge(parts, grouped(rows[there], pairs.keys), None)

    def _changed(
        self, pairs: Pairs, old: Parts | None, new: Parts | None
    ) -> Iterator[pa.RecordBatch]:
        if new is None:
            return
        starts = self._panes.start(pairs.windows * self._hop)
        window, time = self._spans(starts, self._ends(pairs.windows))
        keys = pairs.keys.columns[:-1]
        after, now = self._results(new, pairs.keys)
        before, was = after, np.zeros_like(now)
        if old is not None:
            before, was = self._results(old, pairs.keys)
        columns = [[window, *keys, *results, time] for results in (before, after)]
        yield from changes(self.output, columns[0], was, columns[1], now)
