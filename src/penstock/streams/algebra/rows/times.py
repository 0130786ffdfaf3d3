"""The event times of rows, for kernels that cannot do without."""

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput, KernelError
from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import TIME_TYPE
from penstock.streams.algebra.rows.shape import column_type
from penstock.streams.state import fixed_width


def check_time(schema: pa.Schema, time: str) -> None:
    """Raises InvalidInput unless the column is one of timestamps."""
    kind = column_type(schema, time)
    if not pa.types.is_timestamp(kind):
        raise InvalidInput(
            f"the event time {time!r} is of type {kind}", hint="cast it to timestamp"
        )


def event_times(rows: pa.RecordBatch, time: str) -> Numbers:
    """In microseconds since 1970. Raises KernelError for rows that have none."""
    times = rows.column(time)
    if times.null_count:
        raise KernelError(
            f"{times.null_count} rows have no event time {time!r}",
            hint="leave them out before, with a filter",
        )
    return fixed_width.numbers(times.cast(TIME_TYPE)).astype(np.int64, copy=False)
