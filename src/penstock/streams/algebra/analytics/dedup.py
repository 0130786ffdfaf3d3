"""The stream without its duplicates: of rows with the same id that follow each other closely, one.

    kernel = DedupKernel("id", schema, "at", within=86_400_000_000)

A row is a duplicate when one of the same id is before it by less than `within`, itself a duplicate
or not. Time is cut into panes as wide as that. All rows of an id in one pane are duplicates of the
first, and that one is a duplicate only of what the pane before has last. So state has, for each id
and pane, the first row and the last time; and a row that comes late changes nothing but its own
pane and the one after.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import TIME, WEIGHT_FIELD, changes
from penstock.streams.algebra.kernel import NEVER, check_emission, one_batch, passed, without_late
from penstock.streams.algebra.rows.groups import each_once, group_rows
from penstock.streams.algebra.rows.order import Picking
from penstock.streams.algebra.rows.own_columns import DUE, PANE, ROWS, panes_of
from penstock.streams.algebra.rows.whole import WholeRows
from penstock.streams.state import BucketState, StateSchema, fixed_width

_LAST = "(last)"


class DedupKernel:
    """What is kept has the columns of the schema but for those that begin with `_`, and `_time`.

    `within` and `correct_for` are in microseconds. Rows are in the order of event time, partition
    and offset. With `emit="changes"` a row is given at once, and taken back when one comes that is
    before it; with "final" it is given once, when the clock is past its time, and taken back only
    by a row that corrects: one that is behind the clock, by no more than `correct_for`. What is
    further behind is late, so that without corrections nothing is ever taken back.
    """

    portable = True

    def __init__(
        self,
        key: str | Sequence[str],
        schema: pa.Schema,
        time: str,
        within: int,
        *,
        correct_for: int = 0,
        emit: str = "changes",
    ) -> None:
        self._rows = WholeRows(key, schema, time)
        self._rows.refuse_tables("duplicates are looked for among events")
        check_emission("rows", emit)
        if within < 1:
            raise InvalidInput(f"within {within} microseconds is nothing", hint="1 ms")
        self.keys = self._rows.keys
        self.within = within
        self.correct_for = correct_for
        self.emit = emit
        pane, due, last, rows = (pa.field(name, pa.int64()) for name in (PANE, DUE, _LAST, ROWS))
        keys = [*self._rows.key_fields, pane]
        self._first = pa.schema([last, *list(self._rows.packed)[len(self.keys) :]])
        self.state = StateSchema(
            pa.schema(keys), pa.schema([due, *self._first]), due=DUE, spread=len(self.keys)
        )
        self.packed = pa.schema([*keys, rows, *self._first])
        self.output = pa.schema([*self._rows.columns, *self._rows.times, WEIGHT_FIELD])
        self.needed = self._rows.needed

    @property
    def is_final(self) -> bool:
        return self.emit == "final"

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        whole = self._rows.pack(rows)
        times = fixed_width.numbers(whole.column(TIME))
        ids, others = whole.columns[: len(self.keys)], whole.columns[len(self.keys) :]
        panes = pa.array(times // self.within)
        keys = pa.RecordBatch.from_arrays([*ids, panes], schema=self.state.keys)
        firsts = pa.RecordBatch.from_arrays([pa.array(times), *others], schema=self._first)
        counts = np.ones(rows.num_rows, np.int64)
        if not self.is_final:  # else each row is late or not by itself
            groups = group_rows(keys)
            keys, counts = groups.keys, np.bincount(groups.ids, minlength=len(groups))
            firsts = self._firsts(groups.ids, len(groups), firsts)
        packed = [*keys.columns, pa.array(counts), *firsts.columns]
        return pa.RecordBatch.from_arrays(packed, schema=self.packed)

    def _firsts(self, ids: Numbers, count: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The first row of each group, with the last time of all; groups are numbered in order."""
        if len(ids) == count:
            return rows
        values = pa.StructArray.from_arrays(rows.columns[1:], fields=list(self._first)[1:])
        picked = Picking(ids, count, self._rows.order(rows), highest=False).rows(values)
        last = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(last, ids, fixed_width.numbers(rows.column(_LAST)))
        return rows.take(pa.array(picked)).set_column(0, self._first.field(0), pa.array(last))

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        due = state.due(now) if now > NEVER else np.empty(0, np.int64)
        rows = self._in_time(state, one_batch(packed), before)
        if rows.num_rows == 0 and len(due) == 0:
            return
        groups = group_rows(rows.select(self.state.keys.names))
        places = state.find_or_add(groups.keys)
        after = state.find(_panes_off(groups.keys, 1))
        changing = each_once(places, due)
        affected = each_once(changing, after[after >= 0])
        keys = state.take_keys(affected)
        earlier = state.find(_panes_off(keys, -1))
        old, was = self._kept(state, affected, keys, earlier)
        self._merge(state, places, rows, groups.ids)
        new, is_there = self._kept(state, affected, keys, earlier)
        came = int(fixed_width.numbers(rows.column(ROWS)).sum())
        state.count(dropped=came - int(is_there.sum()) + int(was.sum()))
        was, is_there = self._given(old, was, before), self._given(new, is_there, now)
        yield from changes(self.output, old, was, new, is_there)
        self._settle(state, changing, now)

    def _in_time(
        self, state: BucketState, rows: pa.RecordBatch | None, before: int
    ) -> pa.RecordBatch:
        """Without those that come too late, which are counted.

        With "changes" these are the ones whose pane is let go, all that were packed together.
        """
        if rows is not None:
            ends = (panes_of(rows) + 1) * self.within
            if self.is_final:
                ends = fixed_width.numbers(rows.column(TIME)) + 1
            late = ends + self.correct_for <= before
            rows = without_late(state, rows, late, fixed_width.numbers(rows.column(ROWS)))
        return pa.RecordBatch.from_pylist([], schema=self.packed) if rows is None else rows

    def _given(self, rows: list[pa.Array], kept: Mask, clock: int) -> Mask:
        """Which of these rows are given out at this clock."""
        if self.emit == "changes":
            return kept
        times = rows[self.output.get_field_index(TIME)]
        return kept & (fixed_width.numbers(times) < clock)

    def _kept(
        self, state: BucketState, places: Numbers, keys: pa.RecordBatch, earlier: Numbers
    ) -> tuple[list[pa.Array], Mask]:
        """The first rows of these panes, and whether they are no duplicates.

        `earlier` are the panes before, -1 for none. A pane that was added in this step, and not
        merged yet, has no row.
        """
        values = state.take_values(places)
        times = values.column(TIME)
        at = np.where(earlier >= 0, earlier, 0)
        follows = (earlier >= 0) & state.valid(_LAST)[at]
        since = fixed_width.numbers(times) - state.fixed(_LAST)[at]
        kept = fixed_width.validity(times) & ~(follows & (since < self.within))
        columns = [
            (keys if name in self.keys else values).column(name) for name in self.output.names[:-1]
        ]
        return columns, kept

    def _merge(
        self, state: BucketState, places: Numbers, rows: pa.RecordBatch, ids: Numbers
    ) -> None:
        """Merges the rows into the panes at these places; `ids` says which of them each is of."""
        held = np.flatnonzero(~state.is_new(places))
        names = self._first.names
        both = pa.concat_batches(
            [state.take_values(places[held]).select(names), rows.select(names)]
        )
        firsts = self._firsts(np.concatenate([held, ids]), len(places), both)
        state.put(places, firsts)

    def _settle(self, state: BucketState, places: Numbers, now: int) -> None:
        """Lets go of panes that neither change nor are looked back at; others are due again."""
        panes = panes_of(state.take_keys(places))
        due = (panes + 2) * self.within + self.correct_for
        gone = due <= now
        if self.emit == "final":
            times = state.fixed(TIME)[places]
            due = np.where(times >= now, times + 1, due)
        state.put(places[~gone], pa.RecordBatch.from_arrays([pa.array(due[~gone])], names=[DUE]))
        state.remove(places[gone])

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "dedup",
            **self._rows.spec(),
            "within": self.within,
            "correct_for": self.correct_for,
            "emit": self.emit,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "DedupKernel":
        options = {name: spec[name] for name in ("within", "correct_for", "emit")}
        return cls(**WholeRows.arguments(spec), **options)


def _panes_off(keys: pa.RecordBatch, by: int) -> pa.RecordBatch:
    """The same ids, so many panes later."""
    panes = pa.array(panes_of(keys) + by)
    return pa.RecordBatch.from_arrays([*keys.columns[:-1], panes], schema=keys.schema)
