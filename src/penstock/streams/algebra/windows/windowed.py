"""What all kernels of windows have in common: what they are asked, and what they give.

What comes out is a table with a row for each window and key: `window`, with its start and its end,
the key, and the results. Its event time is the last moment of the window, so that a window of
minutes belongs to the hour that it lies in.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.aggregates.basic import Aggregate, Count
from penstock.streams.algebra.aggregates.summary import Summary
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT_FIELD
from penstock.streams.algebra.folds.fold import Parts
from penstock.streams.algebra.kernel import NEVER, check_emission, one_batch, passed, without_late
from penstock.streams.algebra.rows.groups import Groups, group_rows
from penstock.streams.algebra.rows.own_columns import DUE, PANE, ROWS
from penstock.streams.algebra.rows.shape import check_result_names, column_type, names_of
from penstock.streams.algebra.rows.times import check_time
from penstock.streams.algebra.windows.window import Window, window_from_spec, window_spec
from penstock.streams.state import BucketState, StateSchema, fixed_width

WINDOW = "window"
WINDOW_FIELD = pa.field(WINDOW, pa.struct([("start", TIME_TYPE), ("end", TIME_TYPE)]))


class Windowed(ABC):
    """Rows of state are panes of a key: some `times` of its own, when it is due, and its parts.

    `correct_for`, in microseconds, is how long a window that was given out is kept after. `emit` is
    "final", once the clock has passed, or "changes", as rows come.
    """

    name: ClassVar[str]
    times: ClassVar[tuple[str, ...]] = ()
    packed_times: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        by: str | Sequence[str],
        window: Window,
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        time: str,
        *,
        correct_for: int = 0,
        emit: str = "final",
    ) -> None:
        self.keys = names_of(by)
        self.window = window
        self.aggregates = dict(aggregates)
        self.schema = schema
        self.time = time
        self.correct_for = correct_for
        self.emit = emit
        self._check()
        # Whether there are rows at all: a pane may be there of which all were taken back.
        self._summary = Summary(aggregates, schema, time, {ROWS: Count()})
        self._lay_out()

    def _check(self) -> None:
        check_emission("windows", self.emit)
        check_time(self.schema, self.time)
        check_result_names(self._result_names)

    @property
    def _result_names(self) -> list[str]:
        return [WINDOW, *self.keys, *self.aggregates]

    def _lay_out(self) -> None:
        """Sets the schemas of what goes in, is kept and comes out."""
        keys = pa.schema([*self._by_fields, pa.field(PANE, pa.int64())])
        own, packed = (
            [pa.field(name, pa.int64()) for name in names]
            for names in ((*self.times, DUE), self.packed_times)
        )
        values = pa.schema([*own, *self._summary.parts])
        self.state = StateSchema(keys, values, due=DUE, spread=len(self.keys))
        self.packed = pa.schema([*keys, *packed, *self._summary.parts])
        self.output = pa.schema([WINDOW_FIELD, *self._by_fields, *self._given_fields])
        self.needed = tuple(dict.fromkeys([*self.keys, self.time, *self._summary.needed]))

    @property
    def _by_fields(self) -> list[pa.Field]:
        return [pa.field(name, column_type(self.schema, name)) for name in self.keys]

    @property
    def _given_fields(self) -> list[pa.Field]:
        """Those of the results, of the event time and of the weight."""
        kinds = self._summary.kinds
        results = [pa.field(name, kinds[name]) for name in self.aggregates]
        return [*results, pa.field(TIME, TIME_TYPE), WEIGHT_FIELD]

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        rows = one_batch(packed)
        if rows is not None:
            counts = np.abs(fixed_width.numbers(rows.column(ROWS)))
            rows = without_late(state, rows, self._is_late(rows, before), counts)
        if rows is not None:
            yield from self._merge(state, rows, before)
        if now > NEVER and len(due := state.due(now)):
            yield from self._close(state, due, before, now)

    @abstractmethod
    def _is_late(self, rows: pa.RecordBatch, before: int) -> Mask:
        """Which of what was packed comes after what it belongs to is gone, at this clock.

        What was packed together is taken or left as a whole, as it cannot be told apart.
        """

    @abstractmethod
    def _merge(
        self, state: BucketState, rows: pa.RecordBatch, before: int
    ) -> Iterator[pa.RecordBatch]:
        """Takes rows in, and gives what changes by them in windows that were given out before."""

    @abstractmethod
    def _close(
        self, state: BucketState, due: Numbers, before: int, now: int
    ) -> Iterator[pa.RecordBatch]:
        """Gives out the windows that end by now, and lets go of panes that nothing needs."""

    def _groups(self, rows: pa.RecordBatch, panes: Numbers) -> Groups:
        arrays = [*(rows.column(name) for name in self.keys), pa.array(panes)]
        return group_rows(pa.RecordBatch.from_arrays(arrays, schema=self.state.keys))

    def _parts_of(self, values: pa.RecordBatch) -> Parts:
        """Those among the values of some rows of state."""
        return list(values.columns[len(self.times) + 1 :])

    def _results(self, parts: Parts, keys: pa.RecordBatch) -> tuple[list[pa.Array], Mask]:
        """The results of each window, and whether it has any rows."""
        found = self._summary.results(parts, keys)
        return [found[name] for name in self.aggregates], fixed_width.numbers(found[ROWS]) > 0

    @property
    def is_final(self) -> bool:
        return self.emit == "final"

    @property
    def portable(self) -> bool:
        return self._summary.portable

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": self.name,
            "by": list(self.keys),
            "window": window_spec(self.window),
            **self._summary.spec(),
            "correct_for": self.correct_for,
            "emit": self.emit,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        return cls(
            spec["by"],
            window_from_spec(spec["window"]),
            **Summary.arguments(spec),
            correct_for=spec["correct_for"],
            emit=spec["emit"],
        )


def spans_of(starts: Numbers, ends: Numbers) -> tuple[pa.Array, pa.Array]:
    """Windows and the event time of each, as columns."""
    start, end, time = (
        pa.array(each, pa.int64()).cast(TIME_TYPE) for each in (starts, ends, ends - 1)
    )
    return pa.StructArray.from_arrays([start, end], fields=list(WINDOW_FIELD.type)), time
