"""Aggregation over tumbling and hopping windows.

State has a row for each key and pane, so that every event is in it once, however many windows
overlap; a window is the panes that it covers, merged. Windows are numbered: number k covers `size`
panes from pane k * hop on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.aggregates import Aggregate
from penstock.streams.algebra.changes import changes
from penstock.streams.algebra.folds import Parts
from penstock.streams.algebra.grouping import group_rows, grouped
from penstock.streams.algebra.kernel import END, NEVER, one_batch
from penstock.streams.algebra.windowed import DUE, Windowed
from penstock.streams.algebra.windows import Hopping
from penstock.streams.state import BucketState, StateSchema, fixed_width

PANE = "(pane)"
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
    """`emit` is "final", once the clock has passed, or "changes", as rows come."""

    name = "window"

    def __init__(
        self,
        by: str | Sequence[str],
        window: Hopping,
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        time: str,
        *,
        correct_for: int = 0,
        emit: str = "final",
    ) -> None:
        super().__init__(by, window, aggregates, schema, time, correct_for, emit)
        self._panes, self._size, self._hop = window.panes, window.size, window.hop
        pane = pa.field(PANE, pa.int64())
        keys = pa.schema([*self._key_fields, pane])
        values = pa.schema([*self._summary.parts, pa.field(DUE, pa.int64())])
        self.state = StateSchema(keys, values, due=DUE, spread=len(self.keys))
        self.packed = pa.schema([*keys, *self._summary.parts])

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        panes = self._panes.number(self._times(rows))
        if self._hop > self._size:
            inside = panes % self._hop < self._size
            rows, panes = rows.filter(pa.array(inside)), panes[inside]
        arrays = [*(rows.column(name) for name in self.keys), pa.array(panes)]
        groups = group_rows(pa.RecordBatch.from_arrays(arrays, schema=self.state.keys))
        parts = self._summary.partial(rows, groups)
        return pa.RecordBatch.from_arrays([*groups.keys.columns, *parts], schema=self.packed)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before = NEVER if state.clock is None else state.clock
        now = before if clock is None else max(clock, before)
        rows = one_batch(packed)
        if rows is not None:
            yield from self._merge(state, rows, before)
        yield from self._close(state, before, now)

    def _merge(
        self, state: BucketState, rows: pa.RecordBatch, before: int
    ) -> Iterator[pa.RecordBatch]:
        """Takes rows in, and gives what changes by them in windows that were given out before."""
        groups = group_rows(rows.select(self.state.keys.names))
        panes = _panes_of(groups.keys)
        first, last = self._windows_of(panes)
        open_from = self._first_after(before)
        settled = self._first_after(before - self.correct_for) if before > NEVER else -_FAR
        late = last < settled
        if late.any():
            of_late = late[groups.ids]
            state.count_late(self._rows_in(rows.filter(pa.array(of_late))))
            rows = rows.filter(pa.array(~of_late))
            if rows.num_rows:
                yield from self._merge(state, rows, before)
            return
        places = state.find_or_add(groups.keys)
        fresh = state.is_new(places)
        until = last if self.emit == "changes" else np.minimum(last, open_from - 1)
        pairs = self._pairs(groups.keys, np.maximum(first, settled), until)
        old = self._of_windows(state, pairs)
        for piece, some, of_piece in groups.pieces(rows):
            held = state.take_values(places[piece]).columns[:-1]
            parts = self._summary.merge(some.columns[len(self.state.keys) :], of_piece, held)
            state.put(places[piece], pa.RecordBatch.from_arrays(parts, schema=self._summary.parts))
        first_due = np.maximum(first, open_from) if self.emit == "final" else last + 1
        self._put_due(state, places[fresh], first_due[fresh], last[fresh])
        new = self._of_windows(state, pairs)
        yield from self._changed(pairs, old, new)

    def _close(self, state: BucketState, before: int, now: int) -> Iterator[pa.RecordBatch]:
        """Gives out the windows that end by now, and lets go of panes that nothing needs."""
        if now == NEVER:
            return
        places = state.due(now)
        if len(places) == 0:
            return
        taken = state.take(places)
        keys = taken.select(self.state.keys.names)
        first, last = self._windows_of(_panes_of(keys))
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
        return Pairs(chosen, _panes_of(chosen))

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
        parts = state.take_values(places[there]).columns[:-1]
        return self._summary.merge(parts, grouped(rows[there], pairs.keys), None)

    def _changed(
        self, pairs: Pairs, old: Parts | None, new: Parts | None
    ) -> Iterator[pa.RecordBatch]:
        if new is None:
            return
        starts = self._panes.start(pairs.windows * self._hop)
        spans = self._spans(starts, self._ends(pairs.windows))
        keys = pairs.keys.columns[:-1]
        after, now = self._results(new, pairs.keys)
        before, was = after, np.zeros_like(now)
        if old is not None:
            before, was = self._results(old, pairs.keys)
        columns = [[*keys, *spans[:2], *results, spans[2]] for results in (before, after)]
        yield from changes(self.output, columns[0], was, columns[1], now)

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "WindowKernel":
        return cls(**cls._arguments(spec))


def _panes_of(keys: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(keys.columns[-1])
