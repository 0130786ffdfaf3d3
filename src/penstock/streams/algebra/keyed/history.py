"""The history of a table: every version of its rows, with the time from when to when it was valid.

    kernel = HistoryKernel("id", customers, time="since", keep=90 * DAY)

The table comes as upserts, in any order. Each is valid from its time to that of the next one of its
key; of two at the same time the last counts, one that changes nothing goes on with the version
before it, and one that deletes ends that. State has every upsert, since one that comes late may
fall between any two. What was given out follows from the upserts and the clock of the step before.

With `keep`, in microseconds, a version leaves the table when the clock is so much after its end. Of
the upserts, those of the last version that left stay: whatever comes to lie before them has left
too. Should one of the same time make them equal to the version after, that begins with them,
whatever was before. A key whose row was deleted so long ago is forgotten.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.changes import (
    DELETED,
    OFFSET,
    TIME,
    TIME_TYPE,
    WEIGHT,
    WEIGHT_FIELD,
    changes,
    differs,
)
from penstock.streams.algebra.kernel import (
    END,
    NEVER,
    one_batch,
    passed,
    schema_from_spec,
    schema_to_spec,
    without_late,
)
from penstock.streams.algebra.rows.groups import distinct_keys, group_rows
from penstock.streams.algebra.rows.own_columns import DUE
from penstock.streams.algebra.rows.shape import check_result_names, column_type, names_of
from penstock.streams.algebra.rows.times import check_time, event_times
from penstock.streams.state import BucketState, StateSchema, fixed_width

VERSION, VALID_FROM, VALID_TO = "version", "valid_from", "valid_to"
FOREVER = np.iinfo(np.int64).max
_NAMES = (VERSION, VALID_FROM, VALID_TO)
_BEFORE = "(before)"  # of the first upsert of a key: how many versions there were before it


class HistoryKernel:
    """Columns of the key, the others but for `time`, then `version`, which counts from 1,
    `valid_from`, `valid_to`, and `_time`, which is `valid_from`."""

    portable = True
    is_final = False

    def __init__(
        self, key: str | Sequence[str], schema: pa.Schema, time: str, keep: int | None = None
    ) -> None:
        self.keys = names_of(key)
        self.schema = schema
        self.time = time
        self.keep = keep
        if WEIGHT in schema.names:
            raise InvalidInput(
                "a history is made of upserts, and not of changes with a weight",
                hint="take the table as it comes from its topic, or ps.changes of a stream",
            )
        check_time(schema, time)
        keys = [pa.field(name, column_type(schema, name)) for name in self.keys]
        hidden = (*self.keys, time)
        others = [
            pa.field(each.name, each.type)
            for each in schema
            if each.name[0] != "_" and each.name not in hidden
        ]
        check_result_names([*self.keys, *(each.name for each in others), *_NAMES])
        self._others = [each.name for each in others]
        told = [
            pa.field(VERSION, pa.int64()),
            *(pa.field(name, TIME_TYPE) for name in (VALID_FROM, VALID_TO, TIME)),
        ]
        self.output = pa.schema([*keys, *others, *told, WEIGHT_FIELD])
        element = pa.schema([*keys, pa.field(TIME, pa.int64())])
        deleted = pa.field(DELETED, pa.bool_())
        self.packed = pa.schema([*element, *others, deleted, pa.field(OFFSET, pa.int64())])
        marks = [pa.field(name, pa.int64()) for name in (_BEFORE, DUE)]
        self.state = StateSchema(
            element,
            pa.schema([*others, deleted, *marks]),
            due=DUE,
            spread=len(keys),
            grouped=len(keys),
        )

    @cached_property
    def needed(self) -> tuple[str, ...]:
        hidden = [name for name in (DELETED, OFFSET) if name in self.schema.names]
        return tuple(dict.fromkeys([*self.keys, *self._others, self.time, *hidden]))

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        length = rows.num_rows
        columns = {name: rows.column(name) for name in (*self.keys, *self._others)}
        columns[TIME] = pa.array(event_times(rows, self.time))
        columns[DELETED] = pa.array(np.zeros(length, np.bool_))
        if DELETED in self.schema.names:
            columns[DELETED] = rows.column(DELETED).fill_null(False)
        columns[OFFSET] = pa.array(np.zeros(length, np.int64))
        if OFFSET in self.schema.names:
            columns[OFFSET] = rows.column(OFFSET)
        arrays = [columns[name] for name in self.packed.names]
        return self._last(pa.RecordBatch.from_arrays(arrays, schema=self.packed))

    def _last(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The last upsert of each key and time."""
        groups = group_rows(rows.select(self.state.keys.names))
        if groups.are_single:
            return rows
        order = np.argsort(fixed_width.numbers(rows.column(OFFSET)), kind="stable")
        last = np.empty(len(groups), np.int64)
        last[groups.ids[order]] = order
        return rows.take(pa.array(last))

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        horizon = self._horizon(now)
        rows = one_batch(packed)
        looked_at = [] if rows is None else [rows.select(self.keys)]
        if horizon > NEVER:
            looked_at.append(state.take_keys(state.due(now)).select(self.keys))
        asked = one_batch(looked_at)
        if asked is None:
            return
        columns, ids = distinct_keys(asked, len(self.keys))
        keys = pa.RecordBatch.from_arrays(columns, names=list(self.keys))
        known = after = self._upserts(state, keys)
        if rows is not None:
            from_when = known.from_when(keys.num_rows)[ids[: rows.num_rows]]
            late = fixed_width.numbers(rows.column(TIME)) < from_when
            rows = without_late(state, rows, late, np.ones(len(late), np.int64))
        if rows is not None:
            last = self._last(rows)
            places = state.find_or_add(last.select(self.state.keys.names))
            state.put(places, last.select([*self._others, DELETED]))
            after = self._upserts(state, keys)
        old, new = Runs.of(known, self._horizon(before)), Runs.of(after, horizon)
        yield from self._changed(known, old, after, new)
        self._settle(state, after, new, horizon)

    def _horizon(self, clock: int) -> int:
        """What ends by then has left. A clock at the end of all time, as a batch has, does not say
        how late it is."""
        return NEVER if self.keep is None or clock in (NEVER, END) else clock - self.keep

    def _upserts(self, state: BucketState, keys: pa.RecordBatch) -> "Upserts":
        found = [(np.empty(0, np.int64), np.empty(0, np.int64)), *state.members(keys)]
        ids, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        rows = state.take(places)
        order = np.lexsort((fixed_width.numbers(rows.column(TIME)), ids))
        return Upserts(ids[order], places[order], rows.take(pa.array(order)), len(self.keys) + 1)

    def _changed(
        self, known: "Upserts", old: "Runs", after: "Upserts", new: "Runs"
    ) -> Iterator[pa.RecordBatch]:
        """What is no longer shown of the upserts that were known, and what is now."""
        order = np.argsort(after.places)
        spots = order[np.searchsorted(after.places, known.places, sorter=order)]
        was_at = np.full(len(after.places), -1)
        was_at[spots] = np.arange(len(spots))
        was = np.zeros(len(was_at), np.bool_)
        was[spots] = old.are_shown
        some = np.flatnonzero(was | new.are_shown)
        before = self._told(after, some, known, old, was_at[some])
        now = self._told(after, some, after, new, some)
        yield from changes(self.output, before, was[some], now, new.are_shown[some])

    def _told(
        self, after: "Upserts", some: Numbers, upserts: "Upserts", runs: "Runs", at: Numbers
    ) -> list[pa.Array]:
        """Columns of the output for some of the upserts after the step, from what was known of
        them before it or is after it, `at` these places; anything where they are not there, -1."""
        indices, taken = pa.array(some), pa.array(at, mask=at < 0)
        ends, numbers = np.append(runs.ends, FOREVER)[at], np.append(runs.numbers, 0)[at]
        times = after.rows.column(TIME).take(indices).cast(TIME_TYPE)
        return [
            *(after.rows.column(name).take(indices) for name in self.keys),
            *(upserts.rows.column(name).take(taken) for name in self._others),
            pa.array(numbers),
            times,
            pa.array(ends, mask=ends == FOREVER).cast(TIME_TYPE),
            times,
        ]

    def _settle(self, state: BucketState, upserts: "Upserts", runs: "Runs", horizon: int) -> None:
        """Lets go of what is needed no more, and notes when there is more of that."""
        gone = runs.are_over
        kept = upserts.ids[~gone]
        first = np.zeros(len(gone), np.bool_)
        first[~gone] = np.diff(kept, prepend=-1) != 0
        before = np.where(first, runs.numbers - upserts.are_there, 0)
        is_due = runs.begin & (runs.leaves > horizon) & (runs.leaves < FOREVER)
        is_due &= self.keep is not None
        dues = np.where(is_due, runs.leaves, 0) + (self.keep or 0)
        marks = pa.record_batch(
            {_BEFORE: pa.array(before, mask=before == 0), DUE: pa.array(dues, mask=~is_due)}
        )
        other = np.zeros(len(gone), np.bool_)
        for name in marks.schema.names:
            other |= differs(upserts.rows.column(name), marks.column(name))
        other &= ~gone
        state.put(upserts.places[other], marks.filter(pa.array(other)))
        state.remove(upserts.places[gone])

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "history",
            "key": list(self.keys),
            "schema": schema_to_spec(self.schema),
            "time": self.time,
            "keep": self.keep,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "HistoryKernel":
        return cls(spec["key"], schema_from_spec(spec["schema"]), spec["time"], spec["keep"])


class Upserts:
    """All that state has of some keys, by number, in the order of keys and times.

    Behind the key and the time, so many columns, are those that a version is told by.
    """

    def __init__(self, ids: Numbers, places: Numbers, rows: pa.RecordBatch, width: int) -> None:
        self.ids = ids
        self.places = places  # rows of state
        self.rows = rows
        self.times = fixed_width.numbers(rows.column(TIME))
        self.are_there = ~fixed_width.numbers(rows.column(DELETED))
        self.before = fixed_width.numbers(rows.column(_BEFORE))
        self.are_first: Mask = np.diff(ids, prepend=-1) != 0
        self._others = rows.columns[width:-3]

    def from_when(self, count: int) -> Numbers:
        """The time from which the history of each of so many keys can be told: where versions have
        been let go nobody knows what lay between them."""
        times = np.full(count, NEVER)
        first = np.flatnonzero(self.are_first & (self.before > 0))
        times[self.ids[first]] = self.times[first]
        return times

    def begin_runs(self) -> Mask:
        """Which are not as the one before: the first of its key, or another row, or none."""
        begin = self.are_first.copy()
        earlier, later = slice(None, -1), slice(1, None)
        begin[later] |= self.are_there[earlier] != self.are_there[later]
        for column in self._others if len(begin) else ():
            another = differs(column.slice(0, len(begin) - 1), column.slice(1))
            begin[later] |= another & self.are_there[later]
        return begin


class Runs(NamedTuple):
    """Upserts that follow each other and say the same, at a horizon; of each upsert, of its run."""

    begin: Mask
    numbers: Numbers  # of the version, or of the one before where there is no row
    ends: Numbers  # FOREVER for the last one
    leaves: Numbers  # the horizon at which the table shows it no more
    are_shown: Mask  # of those that begin one
    are_over: Mask  # and so is the one after it

    @classmethod
    def of(cls, upserts: Upserts, horizon: int) -> "Runs":
        begin = upserts.begin_runs()
        starts = np.flatnonzero(begin)
        which = np.cumsum(begin) - 1
        times, there = upserts.times[starts], upserts.are_there[starts]
        first = upserts.are_first[starts]
        followed = np.append(~first[1:], False)[: len(starts)]
        ends = np.where(followed, np.append(times[1:], FOREVER)[: len(starts)], FOREVER)
        # That there is no row need not be told for ever.
        leaves = np.where(followed | there, ends, times)
        after = np.where(followed, np.append(leaves[1:], FOREVER)[: len(starts)], leaves)
        counted = np.cumsum(there)
        begun = np.maximum.accumulate(np.where(first, np.arange(len(starts)), 0))
        numbers = counted - (counted - there)[begun] + upserts.before[starts][begun]
        are_shown = begin & (there & (ends > horizon))[which]
        return cls(
            begin, numbers[which], ends[which], leaves[which], are_shown, (after <= horizon)[which]
        )
