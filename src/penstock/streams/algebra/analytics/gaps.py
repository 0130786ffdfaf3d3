"""Silence: when nothing came from a key for longer than some time.

    kernel = GapKernel("sensor", 300_000_000, schema, time="at")

Events of a key, each no more than `after` behind the one before, make a stretch; between two of
them lies a gap, and the last one is followed by a gap that lasts. An event inside a stretch changes
nothing, so state has, for each key, no more than where its stretches begin and end: that of the
last one, which stays, and of those before it as long as an event can still come in between.

What was given out is not kept, as it follows from the stretches and the clock.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT, WEIGHT_FIELD, changes
from penstock.streams.algebra.kernel import (
    END,
    NEVER,
    one_batch,
    passed,
    schema_from_spec,
    schema_to_spec,
    without_late,
)
from penstock.streams.algebra.rows.groups import group_rows, spans
from penstock.streams.algebra.rows.own_columns import DUE, PANE, ROWS
from penstock.streams.algebra.rows.shape import check_result_names, column_type, names_of
from penstock.streams.algebra.rows.times import check_time, event_times
from penstock.streams.algebra.windows.window import in_words
from penstock.streams.state import BucketState, StateSchema, cells, fixed_width

SINCE, UNTIL = "since", "until"

_ALL = "(all)"  # the key of a stream that is one key
_WHOSE = "(whose)"
_FIRST, _LAST, _EARLIER = "(first)", "(last)", "(earlier)"


class Stretches(NamedTuple):
    """In the order of key and time; `whose` is which of the keys at hand each belongs to."""

    whose: Numbers
    first: Numbers
    last: Numbers

    @property
    def are_newest(self) -> Mask:
        """Which are the last of their key."""
        newest: Mask = np.diff(self.whose, append=-1) != 0
        return newest

    @property
    def ends(self) -> Numbers:
        """When the gap behind each ends, `END` for one that lasts."""
        return np.where(self.are_newest, END, np.append(self.first[1:], END))


class Gaps(NamedTuple):
    whose: Numbers
    since: Numbers
    until: Numbers  # END while it lasts


class GapKernel:
    """A table with a row for each key and gap: the key, `since`, the time of the last event before
    it, and `until`, that of the first one after it, null as long as there is none.

    Its event time is when it is known, `after` after `since`; it is given out when the clock has
    passed that. Events exactly `after` apart have no gap between them. All times are in
    microseconds. `correct_for` is how long after the clock has passed them events are still taken.
    With `forget`, a key that is silent for longer than that is let go: its gap is one that lasts,
    and should it come back, it is a new key. Otherwise every key is known forever.
    """

    portable = True
    is_final = False  # the end of a gap is no correction

    def __init__(
        self,
        by: str | Sequence[str],
        after: int,
        schema: pa.Schema,
        time: str,
        *,
        correct_for: int = 0,
        forget: int | None = None,
    ) -> None:
        self.keys = names_of(by)
        self.after = after
        self.schema = schema
        self.time = time
        self.correct_for = correct_for
        self.forget = forget
        self._check()
        fields = [pa.field(name, column_type(schema, name)) for name in self.keys]
        own = [pa.field(name, pa.int64()) for name in (_FIRST, _LAST, DUE)]
        self.state = StateSchema(
            pa.schema(fields or [pa.field(_ALL, pa.int8())]),
            pa.schema([*own, pa.field(_EARLIER, pa.list_(pa.int64()))]),
            due=DUE,
            spread=len(fields),
        )
        packed = [pa.field(name, pa.int64()) for name in (_FIRST, _LAST, ROWS)]
        self.packed = pa.schema([*fields, *packed])
        times = [pa.field(name, TIME_TYPE) for name in (SINCE, UNTIL, TIME)]
        self.output = pa.schema([*fields, *times, WEIGHT_FIELD])
        self.needed = tuple(dict.fromkeys([*self.keys, time]))

    def _check(self) -> None:
        if self.after < 1:
            raise InvalidInput(f"after {self.after} microseconds is no silence", hint="1 ms")
        if self.forget is not None and self.forget < self.after:
            raise InvalidInput(
                f"a key cannot be forgotten after {in_words(self.forget)}, as it is silent only "
                f"after {in_words(self.after)}",
                hint="forget it later, or never",
            )
        if WEIGHT in self.schema.names:
            raise InvalidInput(
                "gaps lie between events, and the rows of a table can go",
                hint="take the stream that the table was made from; ps.dedup gives one with "
                'emit="final" and without correct_for',
            )
        check_time(self.schema, self.time)
        check_result_names([*self.keys, SINCE, UNTIL])

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The first and the last event of each key and pane; panes are as wide as no gap is."""
        times = event_times(rows, self.time)
        panes = pa.array(times // self.after)
        arrays = [*(rows.column(name) for name in self.keys), panes]
        groups = group_rows(pa.RecordBatch.from_arrays(arrays, [*self.keys, PANE]))
        first, last = times[groups.firsts], times[groups.firsts]
        np.minimum.at(first, groups.ids, times)
        np.maximum.at(last, groups.ids, times)
        counts = np.bincount(groups.ids, minlength=len(groups))
        columns = [*groups.keys.columns[:-1], *map(pa.array, (first, last, counts))]
        return pa.RecordBatch.from_arrays(columns, schema=self.packed)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        rows = one_batch(packed)
        if rows is not None:
            # Of a pane all or none are late.
            late = fixed_width.numbers(rows.column(_FIRST)) < self._earliest(before)
            rows = without_late(state, rows, late, fixed_width.numbers(rows.column(ROWS)))
        if rows is not None:
            groups = group_rows(self._keys_of(rows))
            places = state.find_or_add(groups.keys)
            for piece, some, of_piece in groups.pieces(rows):
                times = [fixed_width.numbers(some.column(name)) for name in (_FIRST, _LAST)]
                events = Stretches(of_piece.ids, times[0], times[1])
                yield from self._advance(state, places[piece], events, before, now)
        if now > NEVER:
            due = state.due(now)
            for piece in spans(len(due)):
                yield from self._advance(state, due[piece], None, before, now)

    def _earliest(self, clock: int) -> int:
        """The time from which on events are taken at this clock: where a pane begins."""
        return (clock - self.correct_for) // self.after * self.after

    def _settled_at(self, times: Numbers) -> Numbers:
        """The first clock at which no event before these times is taken."""
        return -(-times // self.after) * self.after + self.correct_for

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.keys:
            return rows.select(self.keys)
        return pa.RecordBatch.from_arrays(
            [pa.array(np.zeros(rows.num_rows, np.int8))], schema=self.state.keys
        )

    def _advance(
        self, state: BucketState, places: Numbers, events: Stretches | None, before: int, now: int
    ) -> Iterator[pa.RecordBatch]:
        """Takes in what came of these keys since the step before, and moves their clock on."""
        held = state.take(places)
        old = _stretches_of(held)
        new = old if events is None else self._joined(old, events)
        yield from self._changed(held, self._told(old, before), self._told(new, now))
        self._put(state, places, new, now)

    def _joined(self, held: Stretches, events: Stretches) -> Stretches:
        """Those that overlap, or are no more than `after` apart, as one."""
        whose, first, last = (np.concatenate(each) for each in zip(held, events, strict=True))
        count = len(whose)
        times = np.concatenate([first, last])
        whose = np.concatenate([whose, whose])
        begins = np.arange(2 * count) < count
        order = np.lexsort((times, whose))
        whose, times = whose[order], times[order]
        covered = np.cumsum(np.where(begins[order], 1, -1))  # by how many, from each time on
        parted = np.ones(2 * count, np.bool_)
        parted[1:] = (np.diff(whose) != 0) | ((covered[:-1] == 0) & (np.diff(times) > self.after))
        heads = np.flatnonzero(parted)
        tails = np.append(heads[1:], 2 * count)[: len(heads)] - 1
        return Stretches(whose[heads], times[heads], times[tails])

    def _told(self, stretches: Stretches, clock: int) -> Gaps:
        """The gaps that are given out at this clock."""
        told = stretches.last + self.after < clock
        whose, since, until = stretches.whose[told], stretches.last[told], stretches.ends[told]
        if self.forget is not None:
            until = np.where(until - since > self.forget, END, until)
        return Gaps(whose, since, until)

    def _changed(self, keys: pa.RecordBatch, old: Gaps, new: Gaps) -> Iterator[pa.RecordBatch]:
        """Gaps that begin at the same time are one that changed."""
        pairs = [pa.array(np.concatenate(each)) for each in zip(old[:2], new[:2], strict=True)]
        if len(pairs[0]) == 0:
            return
        groups = group_rows(pa.RecordBatch.from_arrays(pairs, [_WHOSE, SINCE]))
        whose, since = groups.keys.columns
        times = fixed_width.numbers(since)
        time = pa.array(times + self.after).cast(TIME_TYPE)
        fixed = [*(keys.column(name).take(whose) for name in self.keys), since.cast(TIME_TYPE)]
        columns, there = [], []
        ids = groups.ids
        for side in (old, new):
            until, given = np.full(len(groups), END), np.zeros(len(groups), np.bool_)
            own, ids = ids[: len(side.since)], ids[len(side.since) :]
            until[own], given[own] = side.until, True
            columns.append([*fixed, pa.array(until, mask=until == END).cast(TIME_TYPE), time])
            there.append(given)
        yield from changes(self.output, columns[0], there[0], columns[1], there[1])

    def _put(self, state: BucketState, places: Numbers, new: Stretches, now: int) -> None:
        """Keeps what can still change and the last stretch of each key, or lets go of the key."""
        newest = new.are_newest
        first, last = new.first[newest], new.last[newest]
        due = np.full(len(places), END)
        untold = new.last + self.after >= now
        np.minimum.at(due, new.whose[untold], new.last[untold] + self.after + 1)
        earlier = ~newest & (new.ends > self._earliest(now))
        lengths = np.bincount(new.whose[earlier], minlength=len(places))
        due = np.where(lengths > 0, np.minimum(due, self._settled_at(first)), due)
        kept = np.ones(len(places), np.bool_)
        if self.forget is not None:
            forgotten_at = self._settled_at(last + self.forget + 1)
            due, kept = np.minimum(due, forgotten_at), forgotten_at > now
        bounds = np.stack([new.first[earlier], new.last[earlier]], axis=1).reshape(-1)
        lists = pa.ListArray.from_arrays(
            pa.array(np.append(0, np.cumsum(2 * lengths)).astype(np.int32)),
            pa.array(bounds),
            mask=pa.array(lengths == 0),
        )
        columns = [pa.array(first), pa.array(last), pa.array(due, mask=due == END), lists]
        values = pa.RecordBatch.from_arrays(columns, schema=self.state.values)
        state.put(places[kept], values.filter(pa.array(kept)))
        state.remove(places[~kept])

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "gaps",
            "by": list(self.keys),
            "after": self.after,
            "schema": schema_to_spec(self.schema),
            "time": self.time,
            "correct_for": self.correct_for,
            "forget": self.forget,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "GapKernel":
        return cls(
            spec["by"],
            spec["after"],
            schema_from_spec(spec["schema"]),
            spec["time"],
            correct_for=spec["correct_for"],
            forget=spec["forget"],
        )


def _stretches_of(held: pa.RecordBatch) -> Stretches:
    """Those of rows of state; a row that is new has none."""
    there = fixed_width.validity(held.column(_LAST))
    elements, lengths = cells.elements_of(held.column(_EARLIER))
    earlier = fixed_width.numbers(elements).reshape(-1, 2)
    whose = np.repeat(np.arange(held.num_rows), lengths // 2 + there)
    are_earlier = np.diff(whose, append=-1) == 0
    bounds = np.empty((len(whose), 2), np.int64)
    bounds[are_earlier] = earlier
    for side, name in enumerate((_FIRST, _LAST)):
        bounds[~are_earlier, side] = fixed_width.numbers(held.column(name))[there]
    return Stretches(whose, bounds[:, 0], bounds[:, 1])
