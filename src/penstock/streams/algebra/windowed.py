"""What all kernels of windows have in common: what they are asked, and what they give.

What comes out is a table with a row for each key and window: the key, `window_start`, `window_end`,
and the results. Its event time is the last moment of the window, so that a window of minutes
belongs to the hour that it lies in.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput, KernelError
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.aggregate_specs import Aggregate, Count
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT_FIELD
from penstock.streams.algebra.folds import Parts
from penstock.streams.algebra.rows import column_type
from penstock.streams.algebra.summary import Summary
from penstock.streams.algebra.windows import Window, window_from_spec, window_spec
from penstock.streams.state import fixed_width

DUE = "(due)"
START_COLUMN, END_COLUMN = "window_start", "window_end"

_ROWS = "(rows)"
_EMISSIONS = ("final", "changes")


class Windowed:
    """`correct_for`, in microseconds, is how long a window that was given out is kept after."""

    name: ClassVar[str]

    def __init__(
        self,
        by: str | Sequence[str],
        window: Window,
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        time: str,
        correct_for: int,
        emit: str,
    ) -> None:
        self.keys = (by,) if isinstance(by, str) else tuple(by)
        self.window = window
        self.aggregates = dict(aggregates)
        self.schema = schema
        self.time = time
        self.correct_for = correct_for
        self.emit = emit
        self._check()
        # Whether there are rows at all: a pane may be there of which all were taken back.
        asked = {**self.aggregates, _ROWS: Count()}
        self._summary = Summary(asked, schema, time)
        self._key_fields = [pa.field(name, column_type(schema, name)) for name in self.keys]
        kinds = {name: self._summary.kinds[name] for name in self.aggregates}
        self.output = pa.schema(
            [
                *self._key_fields,
                pa.field(START_COLUMN, TIME_TYPE),
                pa.field(END_COLUMN, TIME_TYPE),
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
        names = [*self.keys, START_COLUMN, END_COLUMN, *self.aggregates]
        for name in names:
            if name.startswith("_") or names.count(name) > 1:
                raise InvalidInput(
                    f"{name!r} cannot be a column of the result",
                    hint="each needs a name of its own; those that begin with _ are taken",
                )

    def _times(self, rows: pa.RecordBatch) -> Numbers:
        times = rows.column(self.time)
        if times.null_count:
            raise KernelError(
                f"{times.null_count} rows have no event time {self.time!r}, and belong to no "
                "window",
                hint="leave them out before, with a filter",
            )
        return fixed_width.numbers(times.cast(TIME_TYPE)).astype(np.int64, copy=False)

    def _rows_in(self, packed: pa.RecordBatch) -> int:
        """How many rows these parts are of."""
        return int(np.abs(fixed_width.numbers(packed.column(_ROWS))).sum())

    def _results(self, parts: Parts, keys: pa.RecordBatch) -> tuple[list[pa.Array], Mask]:
        """The results of each window, and whether it has any rows."""
        found = self._summary.results(parts, keys)
        return [found[name] for name in self.aggregates], fixed_width.numbers(found[_ROWS]) > 0

    def _spans(self, starts: Numbers, ends: Numbers) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Start, end and event time of each window, as columns."""
        start, end, time = (
            pa.array(each, pa.int64()).cast(TIME_TYPE) for each in (starts, ends, ends - 1)
        )
        return start, end, time

    @property
    def portable(self) -> bool:
        return self._summary.portable

    def spec(self) -> dict[str, Any]:
        return {
            "kernel": self.name,
            "by": list(self.keys),
            "window": window_spec(self.window),
            **Summary(self.aggregates, self.schema, self.time).spec(),
            "correct_for": self.correct_for,
            "emit": self.emit,
        }

    @staticmethod
    def _arguments(spec: dict[str, Any]) -> dict[str, Any]:
        summary = Summary.from_spec(spec)
        return {
            "by": spec["by"],
            "window": window_from_spec(spec["window"]),
            "aggregates": summary.aggregates,
            "schema": summary.rows.schema,
            "time": summary.rows.time,
            "correct_for": spec["correct_for"],
            "emit": spec["emit"],
        }
