"""Aggregation over sliding windows: for each event of a key, the events of the last while.

The window of an event has what is less than `size` before it, and what is at the same time. State
has every event once, in panes an eighth of the size wide: a window is the heads of the panes that
lie in it, and entries of the two that it begins and ends in, so that an event more does not read
all of its window. A pane is due when the next of its entries is to be given out, and when no window
that can still come or change has any of them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import TIME_TYPE, WEIGHT, changes
from penstock.streams.algebra.folds.fold import Parts, take
from penstock.streams.algebra.rows.chunks import Chunks
from penstock.streams.algebra.rows.groups import distinct_keys, group_rows, grouped, spans
from penstock.streams.algebra.rows.times import event_times
from penstock.streams.algebra.windows.entries import (
    MOMENT,
    Entries,
    Moments,
    begins,
    count_pairs,
    entry_state,
    moments_of,
    order_of,
)
from penstock.streams.algebra.windows.ranges import Ranges, merge_ranges
from penstock.streams.algebra.windows.window import Sliding
from penstock.streams.algebra.windows.windowed import Windowed, spans_of
from penstock.streams.state import BucketState

_PANES = 8  # of a window


class SlidingKernel(Windowed):
    """Gives a row for each key and time at which it has an event."""

    name = "sliding"
    window: Sliding

    def _lay_out(self) -> None:
        super()._lay_out()
        moment = pa.field(MOMENT, pa.int64())
        self._chunks = Chunks([moment, *self._summary.parts, *self._kept])
        self.state = entry_state(self._by_fields, self._summary.parts, self._chunks)
        self.packed = pa.schema([*self._by_fields, *self._chunks.columns])

    @property
    def _width(self) -> int:
        return -(-self.window.size // _PANES)

    @property
    def _kept(self) -> Sequence[pa.Field]:
        """What is kept of each row, to be given with its window."""
        return []

    def _check(self) -> None:
        super()._check()
        if WEIGHT in self.schema.names:
            raise InvalidInput(
                "sliding windows are made of events, and the rows of a table can go",
                hint="take the stream that the table was made from; ps.dedup gives one with "
                'emit="final" and without correct_for',
            )

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        groups = group_rows(self._packed_keys(rows))
        parts = self._summary.partial(rows, groups)
        return pa.RecordBatch.from_arrays([*groups.keys.columns, *parts], schema=self.packed)

    def _packed_keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            *(rows.column(name) for name in self.keys),
            pa.array(event_times(rows, self.time)),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=[*self.keys, MOMENT])

    def _is_late(self, rows: pa.RecordBatch, before: int) -> Mask:
        """A row counts in its own window and in all others that it lies in, or in none."""
        return moments_of(rows) < before - self.correct_for

    def _merge(
        self, state: BucketState, rows: pa.RecordBatch, before: int
    ) -> Iterator[pa.RecordBatch]:
        keys, whose = distinct_keys(rows, len(self.keys))
        entries = Entries(state, keys, self._summary, self._chunks, self._width)
        fresh, parts = self._in_order(entries, rows, whose)
        is_told = self._is_given(fresh.times, before)
        told = fresh.some(np.flatnonzero(is_told))
        hit = self._hit(entries, told, before)
        old = self._results_of(entries, hit)
        settled = self._settled_at(fresh.times // self._width)
        entries.add(fresh, parts, np.where(is_told, settled, fresh.times + 1))
        both = hit.and_then(told)
        order = self._rows(both)
        given, was = both.some(order), np.where(order < len(hit), order, -1)
        for piece in spans(len(given)):
            results = [take(each, was[piece]) for each in old]
            yield from self._changed(entries, given.span(piece), results, was[piece] >= 0)

    def _close(
        self, state: BucketState, due: Numbers, before: int, now: int
    ) -> Iterator[pa.RecordBatch]:
        entries, panes = Entries.due(state, due, self._summary, self._chunks, self._width)
        settled = self._settled_at(panes.panes)
        next_due = settled.copy()
        waiting = np.flatnonzero((panes.panes + 1) * self._width > before)
        if self.emit == "changes":
            waiting = waiting[:0]
        for portion in panes.some(waiting).portions():
            chosen = waiting[portion]
            found = entries.read(panes.some(chosen))
            which, times = chosen[found.which], found.times
            later = times >= now
            np.minimum.at(next_due, which[later], times[later] + 1)
            ending = np.flatnonzero((before <= times) & ~later)
            whose = panes.whose[which[ending]]
            rows = self._rows(Moments(whose, times[ending], []))
            given = found.moments(whose[rows], ending[rows])
            for piece in spans(len(given)):
                yield from self._changed(entries, given.span(piece))
        gone = settled <= now
        entries.remove(panes.some(gone))
        entries.put_due(panes.some(~gone), next_due[~gone])

    def _is_given(self, times: Numbers, clock: int) -> Mask:
        return (times < clock) | (self.emit == "changes")

    def _settled_at(self, panes: Numbers) -> Numbers:
        """From when on no window comes, or changes, that has something of the pane."""
        return (panes + 1) * self._width - 1 + self.window.size + self.correct_for

    def _in_order(
        self, entries: Entries, rows: pa.RecordBatch, whose: Numbers
    ) -> tuple[Moments, Parts]:
        """What came, by key and time, and the parts of each; those of one time together."""
        order = order_of(whose, moments_of(rows))
        rows, whose = rows.take(pa.array(order)), whose[order]
        times, parts = moments_of(rows), rows.columns[len(self.keys) + 1 :]
        first = begins(whose, times)
        fresh = Moments(whose[first], times[first], [])
        if not first.all():
            groups = grouped(np.cumsum(first) - 1, entries.named(fresh.whose, fresh.times))
            parts = self._summary.merge(parts, groups, None)
        return fresh, parts

    def _hit(self, entries: Entries, told: Moments, before: int) -> Moments:
        """What was given out before with a window in which one of these moments lies, in order."""
        last = told.times + self.window.size - 1
        if self.emit == "final":
            last = np.minimum(last, before - 1)
        panes = entries.panes(told.whose, told.times, last)
        found = entries.read(panes)
        whose, times = panes.whose[found.which], found.times
        # Those of the moments up to its own, less those that are too long before.
        inside = count_pairs(told.whose, told.times, whose, times)
        inside -= count_pairs(told.whose, told.times, whose, times - self.window.size)
        chosen = np.flatnonzero((inside > 0) & self._is_given(times, before))
        chosen = chosen[order_of(whose[chosen], times[chosen])]
        return found.moments(whose[chosen], chosen)

    def _rows(self, moments: Moments) -> Numbers:
        """Which rows are given, in their order: of the same key and time, the first."""
        order = moments.order
        return order[moments.some(order).are_first]

    # Windows and their results.

    def _changed(
        self,
        entries: Entries,
        given: Moments,
        old: list[pa.Array] | None = None,
        was: Mask | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows that are given at some moments; `old` results stand for those that `was`."""
        new = self._results_of(entries, given)
        now = np.ones(len(given), np.bool_)
        columns = [self._columns(entries, given, each) for each in (old or new, new)]
        yield from changes(self.output, columns[0], ~now if was is None else was, columns[1], now)

    def _columns(self, entries: Entries, given: Moments, results: list[pa.Array]) -> list[pa.Array]:
        """All columns of the output but the weight."""
        window, _ = spans_of(given.times - self.window.size, given.times)
        keys = [each.take(pa.array(given.whose)) for each in entries.keys]
        return [window, *keys, *results, pa.array(given.times).cast(TIME_TYPE)]

    def _results_of(self, entries: Entries, moments: Moments) -> list[pa.Array]:
        """Those of the windows that end at some moments, which are in order."""
        found = [[pa.nulls(0, self._summary.kinds[name])] for name in self.aggregates]
        for piece in spans(len(moments)):
            some = moments.span(piece)
            first = some.are_first
            whose, times = some.whose[first], some.times[first]
            parts = self._windows(entries, whose, times)
            results, _ = self._results(parts, entries.named(whose, times))
            rows = pa.array(np.cumsum(first) - 1)
            for all_of_it, each in zip(found, results, strict=True):
                all_of_it.append(each if first.all() else each.take(rows))
        return [pa.concat_arrays(each) for each in found]

    def _windows(self, entries: Entries, whose: Numbers, times: Numbers) -> Parts:
        """The merged parts of those that end at some times, which are in order, each once."""
        width, starts = self._width, times - self.window.size + 1
        panes = entries.panes(whose, starts, times)
        # Those that a window has only some of; or all, as heads are merged as their entries come.
        cut = np.full(len(panes), not self._summary.order_free)
        for edges, moments in ((starts % width, starts), ((times + 1) % width, times)):
            cut |= panes.among(whose[edges != 0], moments[edges != 0] // width)
        edge, whole = panes.some(cut), panes.some(~cut)
        if edge.are_many and whose[0] != whose[-1]:
            return self._windows_in_two(entries, whose, times)
        found = entries.read(edge)
        of = np.concatenate([edge.whose[found.which], whole.whose])
        at = np.concatenate([found.times, whole.panes * width])
        order = order_of(of, at)
        of, at = of[order], at[order]
        ranges = Ranges(
            count_pairs(of, at, whose, starts - 1), count_pairs(of, at, whose, times) - 1
        )
        used, ranges = ranges.packed(len(of))
        if len(whole):
            both = zip(found.parts(np.arange(len(found.times))), entries.merged(whole), strict=True)
            parts = [pa.concat_arrays(pair).take(pa.array(order[used])) for pair in both]
        else:
            parts = found.parts(order[used])
        return merge_ranges(self._summary, parts, ranges, entries.named(of[used], at[used]))

    def _windows_in_two(self, entries: Entries, whose: Numbers, times: Numbers) -> Parts:
        """The same, some keys at a time."""
        middle = np.searchsorted(whose, whose[len(whose) // 2])
        middle = middle or np.searchsorted(whose, whose[0], "right")
        halves = [
            self._windows(entries, whose[half], times[half])
            for half in (slice(None, middle), slice(middle, None))
        ]
        return [pa.concat_arrays(each) for each in zip(*halves, strict=True)]
