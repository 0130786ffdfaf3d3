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

from penstock.errors import InvalidInput, KernelError
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.aggregates.basic import Aggregate, Count
from penstock.streams.algebra.aggregates.summary import Summary
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT_FIELD
from penstock.streams.algebra.folds.fold import Parts
from penstock.streams.algebra.kernel import NEVER, one_batch, passed
from penstock.streams.algebra.rows.groups import Groups, group_rows
from penstock.streams.algebra.rows.shape import check_result_names, column_type, names_of
from penstock.streams.algebra.windows.window import Window, window_from_spec, window_spec
from penstock.streams.state import BucketState, StateSchema, fixed_width

PANE, DUE = "(pane)", "(due)"
WINDOW = "window"
WINDOW_FIELD = pa.field(WINDOW, pa.struct([("start", TIME_TYPE), ("end", TIME_TYPE)]))

_ROWS = "(rows)"
_EMISSIONS = ("final", "changes")


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
        self._summary = Summary(aggregates, schema, time, {_ROWS: Count()})
        by_fields = [pa.field(name, column_type(schema, name)) for name in self.keys]
        keys = pa.schema([*by_fields, pa.field(PANE, pa.int64())])
        own = [pa.field(name, pa.int64()) for name in (*self.times, DUE)]
        values = pa.schema([*own, *self._summary.parts])
        self.state = StateSchema(keys, values, due=DUE, spread=len(self.keys))
        packed = [pa.field(name, pa.int64()) for name in self.packed_times]
        self.packed = pa.schema([*keys, *packed, *self._summary.parts])
        kinds = {name: self._summary.kinds[name] for name in self.aggregates}
        self.output = pa.schema(
            [
                WINDOW_FIELD,
                *by_fields,
                *kinds.items(),
                pa.field(TIME, TIME_TYPE),
                WEIGHT_FIELD,
            ]
        )
        self.needed = tuple(dict.fromkeys([*self.keys, time, *self._summary.needed]))

    def _check(self) -> None:
        if self.emit not in _EMISSIONS:
            raise InvalidInput(
                f"windows cannot be given out as {self.emit!r}",
                hint=f"emit is one of {', '.join(_EMISSIONS)}",
            )
        kind = column_type(self.schema, self.time)
        if not pa.types.is_timestamp(kind):
            raise InvalidInput(
                f"the event time {self.time!r} is of type {kind}", hint="cast it to timestamp"
            )
        check_result_names([WINDOW, *self.keys, *self.aggregates])

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        before, now = passed(state, clock)
        rows = one_batch(packed)
        if rows is not None:
            rows = self._in_time(state, rows, before)
        if rows is not None:
            yield from self._merge(state, rows, before)
        if now > NEVER and len(due := state.due(now)):
            yield from self._close(state, due, before, now)

    def _in_time(
        self, state: BucketState, rows: pa.RecordBatch, before: int
    ) -> pa.RecordBatch | None:
        """Without those that come after what they belong to is gone, which are counted.

        A pane is taken or left as a whole, as what was packed together cannot be told apart.
        """
        late = self._is_late(panes_of(rows), before)
        if not late.any():
            return rows
        gone = rows.filter(pa.array(late)).column(_ROWS)
        state.count_late(int(np.abs(fixed_width.numbers(gone)).sum()))
        return one_batch([rows.filter(pa.array(~late))])

    @abstractmethod
    def _is_late(self, panes: Numbers, before: int) -> Mask:
        """Which panes are let go at this clock."""

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

    def _times(self, rows: pa.RecordBatch) -> Numbers:
        times = rows.column(self.time)
        if times.null_count:
            raise KernelError(
                f"{times.null_count} rows have no event time {self.time!r}, and belong to no "
                "window",
                hint="leave them out before, with a filter",
            )
        return fixed_width.numbers(times.cast(TIME_TYPE)).astype(np.int64, copy=False)

    def _results(self, parts: Parts, keys: pa.RecordBatch) -> tuple[list[pa.Array], Mask]:
        """The results of each window, and whether it has any rows."""
        found = self._summary.results(parts, keys)
        return [found[name] for name in self.aggregates], fixed_width.numbers(found[_ROWS]) > 0

    def _spans(self, starts: Numbers, ends: Numbers) -> tuple[pa.Array, pa.Array]:
        """Each window and its event time, as columns."""
        start, end, time = (
            pa.array(each, pa.int64()).cast(TIME_TYPE) for each in (starts, ends, ends - 1)
        )
        return pa.StructArray.from_arrays([start, end], fields=list(WINDOW_FIELD.type)), time

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


def panes_of(rows: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(rows.column(PANE))
