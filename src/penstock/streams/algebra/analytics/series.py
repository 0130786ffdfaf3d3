"""A table of windows in which each row is set against earlier rows of the same key.

    kernel = SeriesKernel("page", window, schema, Comparison(windows_back(window, "1 week")))
    kernel = SeriesKernel("page", window, schema, Anomaly(history=60, threshold=3.5))

State has a row for each key and window, by its number, until no window that looks back at it can
change any more. What a changed row changes is itself and the rows that look back at it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.clock import Duration
from penstock.errors import InvalidDuration, InvalidInput
from penstock.events.compiled import Numbers
from penstock.streams.algebra.analytics.measures import Measure, is_number, measure_from_spec
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT, WEIGHT_FIELD, changes
from penstock.streams.algebra.folds.fold import spread
from penstock.streams.algebra.kernel import (
    NEVER,
    one_batch,
    passed,
    schema_from_spec,
    schema_to_spec,
    without_late,
)
from penstock.streams.algebra.rows.groups import each_once, group_rows
from penstock.streams.algebra.rows.own_columns import DUE
from penstock.streams.algebra.rows.shape import check_result_names, column_type, names_of
from penstock.streams.algebra.windows.panes import Calendar, Even, Panes
from penstock.streams.algebra.windows.window import (
    Hopping,
    Window,
    counted,
    in_words,
    tumbling,
    window_from_spec,
    window_spec,
)
from penstock.streams.algebra.windows.windowed import WINDOW, WINDOW_FIELD, spans_of
from penstock.streams.state import BucketState, StateSchema, fixed_width

_NUMBER = "(window)"
_LOOKUPS_AT_ONCE = 1 << 20
_CALENDARS = {"day": (1, "day"), "week": (7, "day"), "month": (1, "month"), "year": (12, "month")}


class SeriesKernel:
    """The schema is that of a table of windows: `window`, `by`, the results.

    What the measure says of each result that is a number comes behind the results. A window can
    change until `correct_for` microseconds after its end; what comes later is counted as late.
    """

    portable = True
    is_final = False  # corrections are counted where the windows are made

    def __init__(
        self,
        by: str | Sequence[str],
        window: Window,
        schema: pa.Schema,
        measure: Measure,
        *,
        correct_for: int = 0,
    ) -> None:
        self.keys = names_of(by)
        self.window = _in_a_row(window)
        self.schema = schema
        self.measure = measure
        self.correct_for = correct_for
        if WEIGHT not in schema.names:
            raise InvalidInput(
                "only the windows of a table have others before them",
                hint="the rows that ps.window gives, for example",
            )
        by_fields = [pa.field(name, column_type(schema, name)) for name in self.keys]
        results = [
            pa.field(each.name, each.type)
            for each in schema
            if each.name not in (WINDOW, *self.keys) and each.name[0] != "_"
        ]
        self._measured = [each for each in results if is_number(each.type)]
        if not self._measured:
            raise InvalidInput(
                "none of the results is a number, and only numbers are set against each other",
                hint="ask for one, such as n=ps.count()",
            )
        said = [field for each in self._measured for field in measure.fields(each.name, each.type)]
        check_result_names([WINDOW, *self.keys, *(each.name for each in (*results, *said))])
        keys = pa.schema([*by_fields, pa.field(_NUMBER, pa.int64())])
        values = pa.schema([pa.field(DUE, pa.int64()), *results])
        self.state = StateSchema(keys, values, due=DUE, spread=len(self.keys))
        self.packed = pa.schema([*keys, *results, WEIGHT_FIELD])
        self._results = [each.name for each in results]
        self.output = pa.schema(
            [WINDOW_FIELD, *by_fields, *results, *said, pa.field(TIME, TIME_TYPE), WEIGHT_FIELD]
        )
        self.needed = (WINDOW, *self.keys, *self._results, WEIGHT)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        starts = rows.column(WINDOW).field("start").cast(TIME_TYPE)
        numbers = self.window.panes.number(fixed_width.numbers(starts)) // self.window.hop
        columns = {name: rows.column(name) for name in (*self.keys, *self._results)}
        columns |= {_NUMBER: pa.array(numbers), WEIGHT: rows.column(WEIGHT).cast(pa.int32())}
        arrays = [columns[name] for name in self.packed.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.packed)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        rows = one_batch(packed)
        if rows is not None:
            # What they look back at may be gone once they cannot change any more.
            late = self.window.ends(_numbers_of(rows)) + self.correct_for <= before
            rows = without_late(state, rows, late, np.ones(rows.num_rows, np.int64))
        if rows is not None:
            yield from self._merge(state, rows)
        if now > NEVER:
            state.remove(state.due(now))

    def _merge(self, state: BucketState, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        came, gone = self._told_apart(rows)
        keys = self.state.keys.names
        put = state.find_or_add(came.select(keys))
        removed = state.find(gone.select(keys))
        gone, removed = gone.filter(pa.array(removed >= 0)), removed[removed >= 0]
        found = [put, removed]
        for each in (came, gone):
            found.extend(self._looking_back_at(state, each.select(keys)))
        affected = each_once(*found)
        was = ~state.is_new(affected)
        old = spread(self._rows(state, affected[was]), was)
        due = self.window.ends(_numbers_of(came) + self.measure.lags[-1]) + self.correct_for
        values = [pa.array(due), *(came.column(name) for name in self._results)]
        state.put(put, pa.RecordBatch.from_arrays(values, schema=self.state.values))
        now = ~np.isin(affected, removed)
        state.remove(removed)
        new = spread(self._rows(state, affected[now]), now)
        yield from changes(self.output, old, was, new, now)

    def _told_apart(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows that are there now, and those that are gone with nothing in their place.

        What came and went in any order, all of it in this step, is neither.
        """
        groups = group_rows(rows.select(self.state.keys.names))
        if not groups.are_single:
            rows = _net(rows)
            groups = group_rows(rows.select(self.state.keys.names))
        is_there = fixed_width.numbers(rows.column(WEIGHT)) > 0
        has_one = np.zeros(len(groups), np.bool_)
        has_one[groups.ids[is_there]] = True
        return rows.filter(pa.array(is_there)), rows.filter(pa.array(~has_one[groups.ids]))

    def _looking_back_at(self, state: BucketState, keys: pa.RecordBatch) -> Iterator[Numbers]:
        """The rows there are that look back at these."""
        for piece in self._pieces(keys.num_rows):
            places = self._find(state, keys.slice(piece.start, piece.stop - piece.start), 1)
            yield places[places >= 0]

    def _rows(self, state: BucketState, places: Numbers) -> list[pa.Array]:
        """What there is to say of these rows: the columns of the output, without the weight."""
        taken = state.take(places)
        keys = taken.select(self.state.keys.names)
        said: list[list[pa.Array]] = []
        for piece in self._pieces(len(places)):
            some = taken.slice(piece.start, piece.stop - piece.start)
            earlier = self._find(state, some.select(self.state.keys.names), -1)
            said.append(self._said(state, some, earlier))
        numbers = _numbers_of(keys)
        window, time = spans_of(self.window.starts(numbers), self.window.ends(numbers))
        return [
            window,
            *keys.columns[:-1],
            *(taken.column(name) for name in self._results),
            *(pa.concat_arrays(each) for each in zip(*said, strict=True)),
            time,
        ]

    def _said(self, state: BucketState, rows: pa.RecordBatch, earlier: Numbers) -> list[pa.Array]:
        is_there = earlier >= 0
        at = np.where(is_there, earlier, 0)
        said = []
        for name, kind in ((each.name, each.type) for each in self._measured):
            # In rows that were added in this step, and not put yet, nothing is valid.
            valid = state.valid(name)[at] & is_there
            values = fixed_width.from_numbers(kind, state.fixed(name)[at], valid)
            said.extend(self.measure.columns(rows.column(name), values))
        return said

    def _find(self, state: BucketState, keys: pa.RecordBatch, way: int) -> Numbers:
        """The rows that are each of the lags after (1) or before (-1) these, -1 for none."""
        lags = self.measure.lags
        numbers = _numbers_of(keys)[:, None] + way * lags
        rows = pa.array(np.repeat(np.arange(keys.num_rows), len(lags)))
        columns = [column.take(rows) for column in keys.columns[:-1]]
        looked_for = [*columns, pa.array(numbers.reshape(-1))]
        return state.find(pa.RecordBatch.from_arrays(looked_for, schema=self.state.keys))

    def _pieces(self, rows: int) -> Iterator[slice]:
        """So many rows, at least one piece, of which each has a bounded number of lags."""
        at_once = max(1, _LOOKUPS_AT_ONCE // len(self.measure.lags))
        for first in range(0, max(rows, 1), at_once):
            yield slice(first, min(first + at_once, rows))

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": "series",
            "by": list(self.keys),
            "window": window_spec(self.window),
            "schema": schema_to_spec(self.schema),
            "measure": self.measure.spec(),
            "correct_for": self.correct_for,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "SeriesKernel":
        return cls(
            spec["by"],
            window_from_spec(spec["window"]),
            schema_from_spec(spec["schema"]),
            measure_from_spec(spec["measure"]),
            correct_for=spec["correct_for"],
        )


def windows_back(window: Window, duration: Duration) -> int:
    """How many windows ago it was so long ago: 7 for "1 week" where windows are days.

    Raises InvalidInput when no window begins then.
    """
    hopping = _in_a_row(window)
    zone = hopping.panes.zone if isinstance(hopping.panes, Calendar) else None
    width, unit = _length(hopping.panes, hopping.hop)
    try:
        back = tumbling(duration, zone=zone)
    except InvalidDuration:
        raise
    except InvalidInput:
        length, other = 0, ""
    else:
        length, other = _length(back.panes, back.hop)
    if other != unit or length % width:
        step = in_words(width)
        if isinstance(hopping.panes, Calendar):
            step = counted(hopping.hop, hopping.panes.unit)
        raise InvalidInput(
            f"no window begins {duration!r} before another", hint=f"give a multiple of {step}"
        )
    return length // width


def _length(panes: Panes, count: int) -> tuple[int, str]:
    """How long so many panes are, and in what unit: of the calendar, or microseconds."""
    if isinstance(panes, Even):
        return panes.width * count, ""
    assert isinstance(panes, Calendar)
    each, unit = _CALENDARS[panes.unit]
    return each * count, unit


def _in_a_row(window: Window) -> Hopping:
    if not isinstance(window, Hopping):
        raise InvalidInput(
            f"{type(window).__name__.lower()} windows do not follow each other at one distance",
            hint="take tumbling or hopping ones",
        )
    return window


def _net(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without what comes and goes again, in any order."""
    groups = group_rows(rows.drop_columns([WEIGHT]))
    weights = np.zeros(len(groups), np.int64)
    np.add.at(weights, groups.ids, fixed_width.numbers(rows.column(WEIGHT)))
    left = weights != 0
    kept = rows.take(pa.array(groups.firsts[left]))
    signs = pa.array(np.sign(weights[left]).astype(np.int32))
    return kept.set_column(kept.num_columns - 1, WEIGHT_FIELD, signs)


def _numbers_of(rows: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(rows.column(_NUMBER))
