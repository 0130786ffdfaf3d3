"""Aggregation over sessions: events of a key, each no more than a gap after the one before.

Time is cut into panes as wide as the gap. All events of a key in one pane belong to one session, as
they are less than a gap apart; those of two panes can only if the panes are next to each other and
the first event of the one is no more than a gap after the last of the other. So a session is a run
of panes, and an event that comes late links, or parts, nothing but neighbours. A pane that can no
longer change is folded into the one after it, which then begins where the session began.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import WEIGHT, changes
from penstock.streams.algebra.folds.fold import Parts, take
from penstock.streams.algebra.rows.groups import (
    Groups,
    distinct_keys,
    each_once,
    group_rows,
    grouped,
)
from penstock.streams.algebra.rows.own_columns import DUE, PANE, panes_of
from penstock.streams.algebra.rows.times import event_times
from penstock.streams.algebra.windows.window import Session
from penstock.streams.algebra.windows.windowed import WINDOW, Windowed, spans_of
from penstock.streams.state import BucketState, fixed_width

_BEGIN, _FIRST, _LAST = "(begin)", "(first)", "(last)"


class Runs(NamedTuple):
    """Panes in the order of key and time, and the session that each belongs to.

    `begin` is when a pane's session began, as far as earlier panes are folded into it; `first` and
    `last` are the times of its own events.
    """

    keys: pa.RecordBatch
    places: Numbers
    panes: Numbers
    begin: Numbers
    first: Numbers
    last: Numbers
    parts: Parts
    session: Numbers

    @property
    def heads(self) -> Numbers:
        """The first pane of each session."""
        return np.flatnonzero(np.diff(self.session, prepend=-1))

    @property
    def tails(self) -> Numbers:
        """The last pane of each session."""
        return np.flatnonzero(np.diff(self.session, append=len(self.session)))


class Found(NamedTuple):
    """Whole sessions: whose they are, when they began, their last event, and what is in them."""

    keys: pa.RecordBatch
    begin: Numbers
    last: Numbers
    parts: Parts


class SessionKernel(Windowed):
    name = "session"
    window: Session
    times = (_BEGIN, _FIRST, _LAST)
    packed_times = (_FIRST, _LAST)

    @property
    def _gap(self) -> int:
        return self.window.gap

    def _check(self) -> None:
        super()._check()
        if WEIGHT in self.schema.names:
            raise InvalidInput(
                "sessions are made of events, and the rows of a table can go",
                hint="take the stream that the table was made from; ps.dedup gives one with "
                'emit="final" and without correct_for',
            )

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        times = event_times(rows, self.time)
        groups = self._groups(rows, times // self._gap)
        first, last = _extremes(times, times, groups)
        parts = self._summary.partial(rows, groups)
        columns = [*groups.keys.columns, pa.array(first), pa.array(last), *parts]
        return pa.RecordBatch.from_arrays(columns, schema=self.packed)

    def _is_late(self, rows: pa.RecordBatch, before: int) -> Mask:
        return (panes_of(rows) + 1) * self._gap + self.correct_for <= before

    def _merge(
        self, state: BucketState, rows: pa.RecordBatch, before: int
    ) -> Iterator[pa.RecordBatch]:
        groups = group_rows(rows.select(self.state.keys.names))
        times = [fixed_width.numbers(rows.column(name)) for name in (_FIRST, _LAST)]
        first, last = _extremes(times[0], times[1], groups)
        places = state.find_or_add(groups.keys)
        # An event that is on time is more than a gap after any session that has ended.
        seeds = places if self.emit == "changes" else places[first < before]
        old = self._given(self._runs(state, seeds, but=places[state.is_new(places)]), before)
        for piece, some, of_piece in groups.pieces(rows):
            self._put(state, places[piece], some, of_piece, first[piece], last[piece], before)
        new = self._given(self._runs(state, seeds), before)
        yield from self._changed(old, new)

    def _put(
        self,
        state: BucketState,
        places: Numbers,
        rows: pa.RecordBatch,
        groups: Groups,
        first: Numbers,
        last: Numbers,
        before: int,
    ) -> None:
        """Merges the rows of some panes into what there is of them."""
        held = state.take_values(places)
        there = fixed_width.validity(held.column(_FIRST))
        begin, had_first, had_last = (
            fixed_width.numbers(held.column(name)) for name in (_BEGIN, _FIRST, _LAST)
        )
        begin = np.where(there, np.minimum(begin, first), first)
        first = np.where(there, np.minimum(had_first, first), first)
        last = np.where(there, np.maximum(had_last, last), last)
        parts = self._summary.merge(
            rows.columns[len(self.state.keys) + 2 :], groups, self._parts_of(held)
        )
        ends = last + self._gap
        is_given = (ends < before) | (self.emit == "changes")
        panes = panes_of(groups.keys)
        due = np.where(is_given, self._settled_at(panes), ends + 1)
        columns = [*(pa.array(each) for each in (begin, first, last, due)), *parts]
        state.put(places, pa.RecordBatch.from_arrays(columns, schema=self.state.values))

    def _close(
        self, state: BucketState, due: Numbers, before: int, now: int
    ) -> Iterator[pa.RecordBatch]:
        runs = self._runs(state, due)
        assert runs is not None
        if self.emit == "final":
            ends = runs.last[runs.tails] + self._gap
            yield from self._changed(None, self._sessions(runs, (before <= ends) & (ends < now)))
        settled = self._settled_at(runs.panes) <= now
        # Those of a session stand in the order of time, so what is settled of it comes first.
        self._fold(state, runs, settled)
        state.remove(runs.places[settled])
        waiting = ~settled & (runs.last + self._gap < now)
        times = self._settled_at(runs.panes[waiting])
        state.put(runs.places[waiting], pa.RecordBatch.from_arrays([pa.array(times)], names=[DUE]))

    def _settled_at(self, panes: Numbers) -> Numbers:
        """From when on no row is taken that could be linked to one of the pane."""
        return (panes + 2) * self._gap + self.correct_for

    def _fold(self, state: BucketState, runs: Runs, settled: Mask) -> None:
        """What is settled of a session that goes on becomes part of its next pane."""
        next_is_open = np.zeros(len(settled), np.bool_)
        next_is_open[1:] = settled[:-1] & ~settled[1:] & (np.diff(runs.session) == 0)
        targets = np.flatnonzero(next_is_open)
        if len(targets) == 0:
            return
        chosen = np.isin(runs.session, runs.session[targets]) & (settled | next_is_open)
        rows = np.flatnonzero(chosen)
        ids = np.searchsorted(runs.session[targets], runs.session[rows])
        keys = runs.keys.take(pa.array(targets))
        parts = self._in_turn([each.take(pa.array(rows)) for each in runs.parts], ids, keys)
        begin = runs.begin[runs.heads][runs.session[targets]]
        columns = [pa.array(begin), *parts]
        names = [_BEGIN, *self._summary.parts.names]
        state.put(runs.places[targets], pa.RecordBatch.from_arrays(columns, names=names))

    # Panes and the sessions that they make.

    def _runs(self, state: BucketState, seeds: Numbers, but: Numbers | None = None) -> Runs | None:
        """The panes of these places and all that stand next to them, one by one; None of nothing.

        `but` leaves panes out that have no events yet.
        """
        if len(seeds) == 0:
            return None
        places = self._neighbours(state, seeds)
        if but is not None:
            places = _without(places, each_once(but))
            if len(places) == 0:
                return None
        taken = state.take(places)
        _, whose = distinct_keys(taken, len(self.keys))
        panes = panes_of(taken)
        order = np.lexsort((panes, whose))
        taken, whose, panes = taken.take(pa.array(order)), whose[order], panes[order]
        begin, first, last = (
            fixed_width.numbers(taken.column(name)) for name in (_BEGIN, _FIRST, _LAST)
        )
        linked = np.zeros(len(places), np.bool_)
        linked[1:] = (
            (whose[1:] == whose[:-1])
            & (panes[1:] - panes[:-1] == 1)
            & (first[1:] - last[:-1] <= self._gap)
        )
        return Runs(
            taken.select(self.state.keys.names),
            places[order],
            panes,
            begin,
            first,
            last,
            self._parts_of(taken.select(self.state.values.names)),
            np.cumsum(~linked) - 1,
        )

    def _neighbours(self, state: BucketState, seeds: Numbers) -> Numbers:
        found = each_once(seeds)
        for side in (-1, 1):
            edge = found
            while len(edge):
                keys = state.take_keys(edge)
                panes = pa.array(panes_of(keys) + side)
                keys = keys.set_column(len(self.keys), keys.schema.field(PANE), panes)
                edge = state.find(keys)
                edge = _without(each_once(edge[edge >= 0]), found)
                found = np.sort(np.concatenate([found, edge]))
        return found

    def _given(self, runs: Runs | None, before: int) -> Found | None:
        """The sessions that are given out, by this clock."""
        if runs is None:
            return None
        ends = runs.last[runs.tails] + self._gap
        return self._sessions(runs, (ends < before) | (self.emit == "changes"))

    def _sessions(self, runs: Runs, wanted: Mask) -> Found | None:
        """Some of the sessions, which are numbered."""
        if not wanted.any():
            return None
        rows = np.flatnonzero(wanted[runs.session])
        heads = runs.heads[wanted]
        keys = runs.keys.take(pa.array(heads))
        ids = (np.cumsum(wanted) - 1)[runs.session[rows]]
        merged = self._in_turn([each.take(pa.array(rows)) for each in runs.parts], ids, keys)
        return Found(keys, runs.begin[heads], runs.last[runs.tails[wanted]], merged)

    def _in_turn(self, parts: Parts, ids: Numbers, keys: pa.RecordBatch) -> Parts:
        """The parts of each session, whose panes stand together in the order of time.

        Where the order of merging shows, these are merged one by one, so that it does not show
        whether the first of them were folded into the next before.
        """
        groups = grouped(ids, keys)
        if self._summary.order_free:
            return self._summary.merge(parts, groups, None)
        lengths = np.bincount(ids, minlength=len(groups))
        going, merged = np.arange(len(groups)), _taken(parts, groups.firsts)
        done: list[tuple[Numbers, Parts]] = []
        turn = 0
        while len(going):
            turn += 1
            goes_on = lengths[going] > turn
            done.append((going[~goes_on], _taken(merged, np.flatnonzero(~goes_on))))
            going, merged = going[goes_on], _taken(merged, np.flatnonzero(goes_on))
            if len(going):
                rows, whose = groups.firsts[going] + turn, keys.take(pa.array(going))
                of_turn = grouped(np.arange(len(going)), whose)
                merged = self._summary.merge(_taken(parts, rows), of_turn, merged)
        order = np.argsort(np.concatenate([each for each, _ in done]))
        columns = zip(*(each for _, each in done), strict=True)
        return _taken([pa.concat_arrays(each) for each in columns], order)

    def _changed(self, old: Found | None, new: Found | None) -> Iterator[pa.RecordBatch]:
        """Sessions with the same beginning are one that changed."""
        sides = [self._columns(each) for each in (old, new)]
        both = pa.concat_batches([self._beginnings(each) for each in sides])
        if both.num_rows == 0:
            return
        groups = group_rows(both)
        columns, there = [], []
        first = 0
        for side in sides:
            rows = np.full(len(groups), -1)
            rows[groups.ids[first : first + side.num_rows]] = np.arange(side.num_rows)
            columns.append([take(each, rows) for each in side.columns])
            there.append(rows >= 0)
            first += side.num_rows
        yield from changes(self.output, columns[0], there[0], columns[1], there[1])

    def _columns(self, found: Found | None) -> pa.RecordBatch:
        """All columns of the output but the weight."""
        schema = pa.schema(list(self.output)[:-1])
        if found is None:
            return _empty(schema)
        window, time = spans_of(found.begin, found.last + self._gap)
        results, _ = self._results(found.parts, found.keys)
        keys = found.keys.columns[:-1]
        return pa.RecordBatch.from_arrays([window, *keys, *results, time], schema=schema)

    def _beginnings(self, sessions: pa.RecordBatch) -> pa.RecordBatch:
        starts = sessions.column(WINDOW).field("start").cast(pa.int64())
        keys = [sessions.column(name) for name in self.keys]
        return pa.RecordBatch.from_arrays([*keys, starts], schema=self.state.keys)


def _extremes(first: Numbers, last: Numbers, groups: Groups) -> tuple[Numbers, Numbers]:
    """The lowest and the highest time of each group."""
    lowest = np.full(len(groups), np.iinfo(np.int64).max)
    highest = np.full(len(groups), np.iinfo(np.int64).min)
    np.minimum.at(lowest, groups.ids, first)
    np.maximum.at(highest, groups.ids, last)
    return lowest, highest


def _taken(parts: Parts, rows: Numbers) -> Parts:
    return [part.take(pa.array(rows)) for part in parts]


def _without(places: Numbers, others: Numbers) -> Numbers:
    """Those that are not among others; both are in their order."""
    if len(others) == 0:
        return places
    at = np.searchsorted(others, places).clip(max=len(others) - 1)
    is_other: Mask = others[at] != places
    return places[is_other]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
