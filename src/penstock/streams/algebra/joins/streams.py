"""The inner join of two streams: rows come to stay, so that no pair is ever taken back.

    kernel = StreamJoinKernel([("auction", "id")], bids, auctions)
    kernel = StreamJoinKernel([("user", "who")], searches, clicks, within=(0, 5_000_000),
                              left_time="at", right_time="seen")

Rows of one key that come in one batch are one row of state, a chunk, which is found, kept and
written at once. Each side meets the chunks that the other has, those of this batch once. Within an
interval of microseconds, which a right row may be after the left one, time is cut into panes as
wide as that, so that the partners of a row lie in few of them and nothing else of its key is looked
at. A chunk is kept until the clock is past the last partner of its rows, and then for `correct_for`
more.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers, frozen
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT
from penstock.streams.algebra.joins.pair_loops import pair_up
from penstock.streams.algebra.joins.pairs import Pairs, have_keys
from penstock.streams.algebra.joins.row_chunks import NO_TIMES, Entries, RowChunks, starts_of
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, ROW, SIDE, Side, of_side, two_sides
from penstock.streams.algebra.joins.within import Within
from penstock.streams.algebra.kernel import NEVER, one_batch, passed, without_late
from penstock.streams.algebra.rows.group_loops import sort_by_group
from penstock.streams.algebra.rows.groups import group_rows, keys_and
from penstock.streams.algebra.rows.own_columns import DUE, PANE
from penstock.streams.state import BucketState, StateSchema, fixed_width

_BATCH = "(batch)"  # what tells the chunks of a key apart
_BYTES = "(bytes)"  # of the rows of a chunk, where it can be read without them
_PIECE = 1 << 15  # pairs that are given at once
_MOST = 64 << 20  # bytes of chunks that are looked at together


class StreamJoinKernel:
    """Without `within` all rows are kept for ever. A null equals nothing, unless `null_safe`. With
    `on_once` the right's columns that are compared do not come out beside the left's."""

    is_final = False
    takes_back = False

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        left: pa.Schema,
        right: pa.Schema,
        *,
        within: tuple[int, int] | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        null_safe: bool = False,
        on_once: bool = False,
        correct_for: int = 0,
    ) -> None:
        if (within is None) != (left_time is None) or (within is None) != (right_time is None):
            raise InvalidInput(
                "streams are joined within a time that both have, or without any",
                hint="give within, left_time and right_time, or none of them",
            )
        self.sides = two_sides(
            on, left, right, left_time=left_time, right_time=right_time, on_once=on_once
        )
        self.on = [list(each) for each in on]
        self.within = None if within is None else Within(*within)
        self.null_safe = null_safe
        self.correct_for = correct_for
        self.keys = self.sides[LEFT].keys
        self.packed = self.sides[LEFT].packed
        self._pairs = Pairs(self.sides, "inner")
        self.output = self._pairs.output
        timed = within is not None
        self._chunks = RowChunks(timed=timed)
        keys = [self.packed.field(name) for name in (*self.keys, SIDE)]
        panes = [pa.field(PANE, pa.int64())] if timed else []
        dues = [pa.field(DUE, pa.int64())] if timed else []
        self.state = StateSchema(
            pa.schema([*keys, *panes, pa.field(_BATCH, pa.int64())]),
            pa.schema([*self._chunks.cells, pa.field(_BYTES, pa.int64()), *dues]),
            due=DUE if timed else None,
            spread=len(self.keys),
            grouped=len(keys) + len(panes),
        )

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        for side in (LEFT, RIGHT):
            rows = self._in_time(state, of_side(packed, side), before)
            if rows is not None:
                came = _Came(self.sides[side], rows, self.within)
                yield from self._met(state, came)
                self._keep(state, came)
        if self.within is not None and now > NEVER:
            state.remove(state.due(now))

    def _in_time(
        self, state: BucketState, rows: pa.RecordBatch | None, before: int
    ) -> pa.RecordBatch | None:
        if rows is not None and self.within is not None:
            late = fixed_width.numbers(rows.column(TIME)) < before - self.correct_for
            rows = without_late(state, rows, late, np.ones(rows.num_rows, np.int64))
        if rows is None or self.null_safe:
            return rows
        have = have_keys(rows, len(self.keys))
        return rows if have.all() else one_batch([rows.filter(pa.array(have))])

    def _met(self, state: BucketState, came: "_Came") -> Iterator[pa.RecordBatch]:
        """The rows with the partners that are there."""
        other = self.sides[1 - came.side.number]
        mine, theirs = np.empty(_PIECE, np.int64), np.empty(_PIECE, np.int64)
        for groups in came.partners():
            for which, places in _pieces(state, groups):
                found = self._chunks.unpack(state.take_values(places))
                partners = _Rows(other, found.rows)
                cursor = np.array([0, -1, 0])
                while cursor[0] < len(which):
                    count = pair_up(
                        frozen(which),
                        came.entries.starts,
                        found.starts,
                        self.within is not None,
                        *came.partner_times,
                        found.times,
                        cursor,
                        mine,
                        theirs,
                    )
                    if count:
                        own, others = mine[:count], theirs[:count]
                        times = np.empty(0, np.int64)
                        if self.within is not None:
                            times = np.maximum(came.entries.times[own], found.times[others])
                        yield self._together(came, own, partners.take(others), times)

    def _together(
        self, came: "_Came", rows: Numbers, partners: list[pa.Array], times: Numbers
    ) -> pa.RecordBatch:
        side = came.side.number
        keys = came.keys_of(rows)
        ours = came.side.shown(keys, came.rows.take(rows))
        theirs = self.sides[1 - side].shown(keys, partners)
        columns = [*ours, *theirs] if side == LEFT else [*theirs, *ours]
        if self.within is not None:
            columns.append(pa.array(times).cast(TIME_TYPE))
        return self._pairs.batch(columns, np.ones(len(rows), np.int64))

    def _keep(self, state: BucketState, came: "_Came") -> None:
        number, entries = came.side.number, came.entries
        count = len(entries.starts) - 1
        batch = np.full(count, state.version)
        keys = keys_and(came.keys.columns[: len(self.keys)], count, number, *came.panes, batch)
        places = state.find_or_add(keys.rename_columns(self.state.keys.names))
        values = [*self._chunks.pack(entries), pa.array(entries.bytes())]
        if self.within is not None:
            latest = np.maximum.reduceat(entries.times, entries.starts[:-1])
            ends = self.within.partner_times(latest, number)[1] + self.correct_for
            values.append(pa.array(ends + 1))
        state.put(places, pa.RecordBatch.from_arrays(values, schema=self.state.values))

    def spec(self) -> dict[str, Any]:
        left, right = self.sides
        return {
            "kernel": "stream_join",
            "on": self.on,
            "left": left.described(),
            "right": right.described(),
            "within": None if self.within is None else [self.within.lowest, self.within.highest],
            "null_safe": self.null_safe,
            "correct_for": self.correct_for,
            "times": [left.time, right.time],
        }


class _Came:
    """The rows that came for a side, those of a key and pane side by side."""

    def __init__(self, side: Side, rows: pa.RecordBatch, within: Within | None) -> None:
        self.side = side
        self._within = within
        self._width = len(side.keys)
        keys = rows.select(range(self._width))
        if within is not None:
            panes = within.pane(fixed_width.numbers(rows.column(TIME)))
            keys = keys.append_column(PANE, pa.array(panes))
        if keys.num_columns:
            groups = group_rows(keys)
            ids, self.keys = groups.ids, groups.keys
        else:  # every row meets every other
            ids, self.keys = frozen(np.zeros(rows.num_rows, np.int64)), rows.slice(0, 1).select([])
        counts = np.bincount(ids)
        starts = starts_of(counts)
        order = np.empty(len(ids), np.int64)
        sort_by_group(ids, starts[:-1].copy(), order)
        self._ids = np.repeat(np.arange(len(counts)), counts)
        times = NO_TIMES
        if within is not None:
            times = frozen(fixed_width.numbers(rows.column(TIME))[order])
        self.entries = Entries(starts, times, rows.column(ROW).take(pa.array(order)))
        self.rows = _Rows(side, self.entries.rows)

    @property
    def panes(self) -> list[Numbers]:
        return [] if self._within is None else [fixed_width.numbers(self.keys.column(PANE))]

    @cached_property
    def partner_times(self) -> tuple[Numbers, Numbers]:
        if self._within is None:
            return NO_TIMES, NO_TIMES
        first, last = self._within.partner_times(self.entries.times, self.side.number)
        return frozen(first), frozen(last)

    def partners(self) -> Iterator[pa.RecordBatch]:
        """The groups of state in which each group's partners are; several times, if need be."""
        number = self.side.number
        for pane in [0] if self._within is None else self._within.partner_panes(number):
            yield keys_and(
                self.keys.columns[: self._width],
                len(self.entries.starts) - 1,
                1 - number,
                *(each + pane for each in self.panes),
            )

    def keys_of(self, rows: Numbers) -> list[pa.Array]:
        groups = pa.array(self._ids[rows])
        return [column.take(groups) for column in self.keys.columns[: self._width]]


class _Rows:
    """Rows as bytes, of which columns are made where they are asked for."""

    def __init__(self, side: Side, values: pa.Array) -> None:
        self._side = side
        self._values = values
        self._columns: list[pa.Array] | None = None

    def take(self, places: Numbers) -> list[pa.Array]:
        indices = pa.array(places)
        if len(places) < len(self._values):
            return self._side.inside(self._values.take(indices))
        if self._columns is None:
            self._columns = self._side.inside(self._values)
        return [column.take(indices) for column in self._columns]


def _pieces(state: BucketState, groups: pa.RecordBatch) -> Iterator[tuple[Numbers, Numbers]]:
    """The chunks of these groups, not too much of them at a time."""
    for which, places in state.members(groups):
        reached = np.cumsum(state.fixed(_BYTES)[places]) // _MOST
        edges = np.flatnonzero(np.diff(reached)) + 1
        yield from zip(np.split(which, edges), np.split(places, edges), strict=True)


def are_streams(left: pa.Schema, right: pa.Schema) -> bool:
    """Whether the rows of both come to stay, and are not changes of a table."""
    return not any(WEIGHT in each.names for each in (left, right))
