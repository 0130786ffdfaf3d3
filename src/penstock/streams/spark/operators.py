"""Operators: plain functions from DataFrame to DataFrame, on streams and on batches alike."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import current_timestamp
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.clock import Duration
from penstock.errors import InvalidInput
from penstock.streams.algebra.aggregates.functions import Aggregate
from penstock.streams.algebra.kernel import Kernel
from penstock.streams.algebra.kernels import kernel_over
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.algebra.keyed.held import HeldKernel
from penstock.streams.algebra.keyed.upserts import UpsertKernel
from penstock.streams.algebra.windows.window import Window, micros
from penstock.streams.algebra.windows.windowed import END_COLUMN, START_COLUMN
from penstock.streams.source.event_time import TIMES
from penstock.streams.source.spec import EVENT_TIME
from penstock.streams.spark.exchange import run_kernel
from penstock.streams.spark.origin import (
    EventTimeColumn,
    mark_time,
    origin_of,
    time_column,
    with_origin,
)

PROCESSED = "_processed"
_ANY = len(TIMES)  # a change may leave a row with what happened long ago: none comes too late


def aggregate(
    df: DataFrame,
    by: str | Sequence[str] = (),
    *,
    window: Window | None = None,
    emit: str | None = None,
    every: Duration | None = None,
    correct_for: Duration | None = None,
    checkpoint: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """A table with a row for each `by`, of all rows so far, or for each `by` and window.

    `aggregate(orders, by="customer", total=sum("amount"), n=count())`. With a `window`, a row has
    `window_start` and `window_end` too, and is given out once, when the clock has passed its end:
    `emit="changes"` gives it as rows come. Rows that come after that correct it for as long as the
    stream's event time says, or `correct_for`. `every="10s"` gives what has changed whenever the
    clock has come so much further.

    On a stream outside an app `checkpoint` is the folder that the query is started with.
    """
    if not aggregates:
        raise InvalidInput(
            "nothing is asked of the rows", hint="aggregate(orders, by='customer', n=ps.count())"
        )
    _check_emission(window, emit, every, correct_for)
    time = time_column(df)
    if window is not None or every is not None:
        time = _needed(time)
    kernel: Kernel
    if window is None:
        kernel = AggregateKernel(by, aggregates, _schema(df), time=time and time.name)
        table = _run(df, kernel, checkpoint, _ANY)
        return _held(table, kernel.keys, every, None, checkpoint)
    assert time is not None
    lateness = time.correct_for
    if correct_for is not None:
        lateness = micros("correct_for", correct_for, least=0)
    emission = emit or ("final" if every is None else "changes")
    kernel = kernel_over(
        by, window, aggregates, _schema(df), time.name, correct_for=lateness, emit=emission
    )
    # The event time of a window is before its end, up to which the clock may be.
    table = _run(df, kernel, checkpoint, min(lateness + 1, _ANY))
    keys = (*kernel.keys, START_COLUMN)
    return _held(table, keys, every, (END_COLUMN, lateness), checkpoint)


def changes(df: DataFrame, key: str | Sequence[str], *, checkpoint: str | None = None) -> DataFrame:
    """Upserts as a table: each row replaces the one of its key that came before.

    A row whose `_deleted` is true deletes. What comes out has a `_weight`: -1 for the row that is
    gone, +1 for the one that is there now.
    """
    time = time_column(df)
    kernel = UpsertKernel(key, _schema(df), time=time and time.name)
    return _run(df, kernel, checkpoint, time.correct_for if time else 0)


def at_processing_time(df: DataFrame) -> DataFrame:
    """The same rows, with the moment at which they are processed, `_processed`, as event time.

    Windows over it say something about the processing, and little about what happened: when it
    stops and then catches up, everything seems to happen at once. A window is closed by the first
    batch after its end. A batch that is run again has the same time; a replay has not.
    """
    if PROCESSED in df.columns:
        raise InvalidInput(f"the rows have a column {PROCESSED} already", hint="drop it first")
    stamped = df.withColumn(PROCESSED, current_timestamp())
    return mark_time(stamped, PROCESSED, 0, by_wall_clock=True)


def _held(
    table: DataFrame,
    keys: tuple[str, ...],
    every: Duration | None,
    ends: tuple[str, int] | None,
    checkpoint: str | None,
) -> DataFrame:
    if every is None:
        return table
    time = time_column(table)
    assert time is not None
    kernel = HeldKernel(keys, _schema(table), micros("every", every), ends)
    # What is held back is told later by so much.
    later = min(time.correct_for + kernel.every, _ANY)
    return _run(table, kernel, checkpoint, later)


def _check_emission(
    window: Window | None, emit: str | None, every: Duration | None, correct_for: Duration | None
) -> None:
    if window is None and (emit is not None or correct_for is not None):
        raise InvalidInput(
            "emit and correct_for say something about windows, and there is none",
            hint='give one, window=ps.tumbling("1 minute"), or leave them out',
        )
    if emit is not None and every is not None:
        raise InvalidInput(
            f"results come either as emit={emit!r} says or every {every}", hint="leave one out"
        )


def _needed(time: EventTimeColumn | None) -> EventTimeColumn:
    if time is None:
        raise InvalidInput(
            "windows need to know when the rows happened",
            hint='app.stream(..., event_time=EventTime("at")), and keep that column',
        )
    return time


def _schema(df: DataFrame) -> pa.Schema:
    found = origin_of(df).schema
    return to_arrow_schema(df.schema, timezone="UTC") if found is None else found


def _run(df: DataFrame, kernel: Kernel, checkpoint: str | None, correct_for: int) -> DataFrame:
    """The table that the kernel makes of these rows; its time goes by the same clock as theirs."""
    time = time_column(df)
    by_wall_clock = time is not None and time.by_wall_clock
    changed = run_kernel(df, kernel, checkpoint=checkpoint, by_wall_clock=by_wall_clock)
    if EVENT_TIME.name not in changed.columns:
        return changed
    marked = mark_time(changed, EVENT_TIME.name, correct_for, by_wall_clock=by_wall_clock)
    return with_origin(marked, origin_of(changed))
