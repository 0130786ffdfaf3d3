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
from penstock.streams.algebra.changes import (
    OFFSET,
    PARTITION,
    TIME,
    TIME_TYPE,
    WEIGHT,
    WEIGHT_FIELD,
    changes,
)
from penstock.streams.algebra.folds.picks import beside, place_word
from penstock.streams.algebra.kernel import (
    NEVER,
    one_batch,
    passed,
    schema_from_spec,
    schema_to_spec,
)
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.algebra.rows.order import Picking
from penstock.streams.algebra.rows.shape import column_type, names_of
from penstock.streams.algebra.rows.times import check_time, event_times
from penstock.streams.state import BucketState, StateSchema, fixed_width

_PANE, _DUE, _LAST, _ROWS = "(pane)", "(due)", "(last)", "(rows)"
_EMISSIONS = ("changes", "final")


class DedupKernel:
    """What is kept has the columns of the schema but for those that begin with `_`, and `_time`.

    `within` and `correct_for` are in microseconds. Rows are in the order of event time, partition
    and offset. With `emit="changes"` a row is given at once, and taken back when one comes that is
    before it; with "final" it is given once, when the clock is past its time, and taken back only
    by a row that corrects.
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
        self.keys = names_of(key)
        self.schema = schema
        self.time = time
        self.within = within
        self.correct_for = correct_for
        self.emit = emit
        self._check()
        fields = [pa.field(each.name, each.type) for each in schema if each.name[0] != "_"]
        ids = [pa.field(name, column_type(schema, name)) for name in self.keys]
        self._places = [
            name for name in (PARTITION, OFFSET) if name in schema.names and name not in self.keys
        ]
        row = [
            *(field for field in fields if field.name not in self.keys),
            pa.field(TIME, TIME_TYPE),
            *(pa.field(name, schema.field(name).type) for name in self._places),
        ]
        pane, due, last, rows = (pa.field(name, pa.int64()) for name in (_PANE, _DUE, _LAST, _ROWS))
        self._first = pa.schema([last, *row])
        self.state = StateSchema(
            pa.schema([*ids, pane]), pa.schema([due, *self._first]), due=_DUE, spread=len(ids)
        )
        self.packed = pa.schema([*ids, pane, rows, *self._first])
        self.output = pa.schema([*fields, pa.field(TIME, TIME_TYPE), WEIGHT_FIELD])
        read = [each.name for each in (*ids, *row) if each.name != TIME]
        self.needed = tuple(dict.fromkeys([*read, time]))

    def _check(self) -> None:
        if not self.keys:
            raise InvalidInput("duplicates have the same id", hint='name its column, "id"')
        if WEIGHT in self.schema.names:
            raise InvalidInput(
                "duplicates are looked for among events, and the rows of a table can go",
                hint="a table has each row once: take the stream that it was made from",
            )
        check_time(self.schema, self.time)
        if self.within < 1:
            raise InvalidInput(f"within {self.within} microseconds is nothing", hint="1 ms")
        if self.emit not in _EMISSIONS:
            raise InvalidInput(
                f"rows cannot be given out as {self.emit!r}",
                hint=f"emit is one of {', '.join(_EMISSIONS)}",
            )

    @property
    def is_final(self) -> bool:
        return self.emit == "final"

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        times = event_times(rows, self.time)
        panes = pa.array(times // self.within)
        ids = [rows.column(name) for name in self.keys]
        groups = group_rows(pa.RecordBatch.from_arrays([*ids, panes], schema=self.state.keys))
        own = {TIME: pa.array(times).cast(TIME_TYPE), _LAST: pa.array(times)}
        columns = [own[n] if n in own else rows.column(n) for n in self._first.names]
        every = pa.RecordBatch.from_arrays(columns, schema=self._first)
        firsts = self._firsts(groups.ids, len(groups), every)
        counts = pa.array(np.bincount(groups.ids, minlength=len(groups)))
        packed = [*groups.keys.columns, counts, *firsts.columns]
        return pa.RecordBatch.from_arrays(packed, schema=self.packed)

    def _firsts(self, ids: Numbers, count: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The first row of each group, with the last time of all; groups are numbered in order."""
        if len(ids) == count:
            return rows
        names = [TIME, *self._places]
        order = beside([place_word(rows.column(name)) for name in names], len(ids))
        values = pa.StructArray.from_arrays(rows.columns[1:], fields=list(self._first)[1:])
        picked = Picking(ids, count, order, highest=False).rows(values)
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
        changing = _each_once(places, due)
        affected = _each_once(changing, after[after >= 0])
        keys = state.take_keys(affected)
        earlier = state.find(_panes_off(keys, -1))
        old, was = self._kept(state, affected, keys, earlier)
        self._merge(state, places, rows, groups.ids)
        new, is_there = self._kept(state, affected, keys, earlier)
        came = int(fixed_width.numbers(rows.column(_ROWS)).sum())
        state.count_dropped(came - int(is_there.sum()) + int(was.sum()))
        was, is_there = self._given(old, was, before), self._given(new, is_there, now)
        yield from changes(self.output, old, was, new, is_there)
        self._settle(state, changing, now)

    def _in_time(
        self, state: BucketState, rows: pa.RecordBatch | None, before: int
    ) -> pa.RecordBatch:
        """Without those that come after their pane is let go, which are counted.

        A pane is taken or left as a whole, as what was packed together cannot be told apart.
        """
        if rows is None:
            return pa.RecordBatch.from_pylist([], schema=self.packed)
        ends = (_panes_of(rows) + 1) * self.within
        late = ends + self.correct_for <= before
        if late.any():
            gone = rows.filter(pa.array(late)).column(_ROWS)
            state.count_late(int(fixed_width.numbers(gone).sum()))
            rows = rows.filter(pa.array(~late))
        return rows

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
        panes = _panes_of(state.take_keys(places))
        due = (panes + 2) * self.within + self.correct_for
        gone = due <= now
        if self.emit == "final":
            times = state.fixed(TIME)[places]
            due = np.where(times >= now, times + 1, due)
        state.put(places[~gone], pa.RecordBatch.from_arrays([pa.array(due[~gone])], names=[_DUE]))
        state.remove(places[gone])

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "dedup",
            "key": list(self.keys),
            "schema": schema_to_spec(self.schema),
            "time": self.time,
            "within": self.within,
            "correct_for": self.correct_for,
            "emit": self.emit,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "DedupKernel":
        return cls(
            spec["key"],
            schema_from_spec(spec["schema"]),
            spec["time"],
            spec["within"],
            correct_for=spec["correct_for"],
            emit=spec["emit"],
        )


def _panes_of(rows: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(rows.column(_PANE))


def _panes_off(keys: pa.RecordBatch, by: int) -> pa.RecordBatch:
    """The same ids, so many panes later."""
    panes = pa.array(_panes_of(keys) + by)
    return pa.RecordBatch.from_arrays([*keys.columns[:-1], panes], schema=keys.schema)


def _each_once(*places: Numbers) -> Numbers:
    found: Numbers = pa.array(np.concatenate(places)).unique().to_numpy()
    return found
