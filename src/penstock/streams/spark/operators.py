"""Operators: plain functions from DataFrame to DataFrame, on streams and on batches alike."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import current_timestamp
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import TimestampType

from penstock.clock import Duration
from penstock.errors import InvalidInput
from penstock.streams.algebra.aggregates.functions import Aggregate
from penstock.streams.algebra.kernel import Kernel
from penstock.streams.algebra.kernels import kernel_over
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.algebra.keyed.held import HeldKernel
from penstock.streams.algebra.keyed.upserts import UpsertKernel
from penstock.streams.algebra.rows.selection import ALL
from penstock.streams.algebra.windows.window import Window, micros
from penstock.streams.algebra.windows.windowed import WINDOW
from penstock.streams.source.event_time import TIMES
from penstock.streams.source.spec import EVENT_TIME
from penstock.streams.spark.exchange import run_kernel
from penstock.streams.spark.feeds import fed_by, still_fed, with_feed
from penstock.streams.spark.origin import (
    EventTimeColumn,
    Origin,
    mark_time,
    origin_of,
    time_column,
    with_origin,
)
from penstock.streams.spark.place import present_graph

PROCESSED = "_processed"
ANY_TIME = len(TIMES)  # a change may leave a row with what happened long ago: none comes too late


def aggregate(
    df: DataFrame,
    by: str | Sequence[str] = (),
    *,
    every: Duration | None = None,
    checkpoint: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """A table with a row for each `by`, of all rows so far.

    `aggregate(orders, by="customer", total=sum("amount"), n=count())`. `every="10s"` gives what has
    changed whenever the clock has come so much further.

    On a stream outside an app `checkpoint` is the folder that the query is started with.
    """
    check_asked(aggregates, "aggregate(orders, by='customer', n=ps.count())")
    time = time_column(df) if every is None else needed_time(df)
    kernel = AggregateKernel(by, aggregates, schema_of(df), time=time and time.name)
    table = run(df, kernel, checkpoint, ANY_TIME)
    return _held(table, kernel.keys, every, None, checkpoint)


def window(
    df: DataFrame,
    over: Window,
    by: str | Sequence[str] = (),
    *,
    emit: str | None = None,
    every: Duration | None = None,
    checkpoint: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """A table with a row for each window and `by`: `window`, with `start` and `end`, and results.

    `window(orders, tumbling("1 minute"), by="customer", total=sum("amount"))`. A row is given out
    once, when the clock has passed the end of its window: `emit="changes"` gives it as rows come,
    and `every="10s"` gives what has changed whenever the clock has come so much further. Rows that
    come after the end correct it for as long as the stream's event time says.

    On a stream outside an app `checkpoint` is the folder that the query is started with.
    """
    check_asked(aggregates, "window(orders, ps.tumbling('1 minute'), n=ps.count())")
    return windowed(
        df,
        over,
        by,
        aggregates,
        emit=emit,
        every=every,
        checkpoint=checkpoint,
    )


def windowed(
    df: DataFrame,
    over: Window,
    by: str | Sequence[str],
    aggregates: Mapping[str, Aggregate],
    *,
    emit: str | None = None,
    every: Duration | None = None,
    checkpoint: str | None = None,
) -> DataFrame:
    """The table of windows, for operators that make something of it."""
    check_window(over)
    if emit is not None and every is not None:
        raise InvalidInput(
            f"results come either as emit={emit!r} says or every {every}", hint="leave one out"
        )
    time = needed_time(df)
    emission = emit or ("final" if every is None else "changes")
    kernel = kernel_over(
        by, over, aggregates, schema_of(df), time.name, correct_for=time.correct_for, emit=emission
    )
    table = run(df, kernel, checkpoint, time.correct_for)
    return _held(table, (WINDOW, *kernel.keys), every, time.correct_for, checkpoint)


def changes(df: DataFrame, key: str | Sequence[str], *, checkpoint: str | None = None) -> DataFrame:
    """Upserts as a table: each row replaces the one of its key that came before.

    A row whose `_deleted` is true deletes. What comes out has a `_weight`: -1 for the row that is
    gone, +1 for the one that is there now.
    """
    time = time_column(df)
    kernel = UpsertKernel(key, schema_of(df), time=time and time.name)
    table = run(df, kernel, checkpoint, time.correct_for if time else 0)
    return with_origin(table, Origin(keys=kernel.keys, upserts=df))


def timed(
    df: DataFrame, column: str, *, wait: Duration = "0s", correct_for: Duration = "0s"
) -> DataFrame:
    """The same rows, with a column of theirs as event time.

    For what does not come from a stream of an app: a batch, or a stream of another source, whose
    clock is Spark's watermark then, `wait` behind the latest row. Spark does not move it without
    new rows, so the windows of the last ones stay open.
    """
    before = time_column(df)
    if before is not None:
        raise InvalidInput(
            f"the rows have an event time already, {before.name!r}, and a clock that goes by it",
            hint="name the other column where the stream is declared: EventTime(...)",
        )
    if present_graph() is not None and df.isStreaming:
        raise InvalidInput(
            "in an app, the event time is named where the stream is declared, so that its clock "
            "goes by it",
            hint=f'app.stream(..., event_time=ps.EventTime("{column}"))',
        )
    kind = {field.name: field.dataType for field in df.schema.fields}.get(column)
    if not isinstance(kind, TimestampType):
        raise InvalidInput(
            f"{column!r} is no column of timestamps",
            hint=f"cast it to timestamp; there are {', '.join(df.columns)}",
        )
    waited, lateness = (
        micros(name, each, least=0) for name, each in (("wait", wait), ("correct_for", correct_for))
    )
    wait_ms = waited // 1_000
    behind = df.withWatermark(column, f"{wait_ms} milliseconds") if df.isStreaming else df
    marked = mark_time(behind, column, lateness)
    fed = fed_by(df)
    feed = None if fed is None or fed.selection != ALL else fed.feed.timed(column, wait_ms)
    return marked if feed is None else with_feed(marked, feed)


def at_processing_time(df: DataFrame) -> DataFrame:
    """The same rows, with the moment at which they are processed, `_processed`, as event time.

    Windows over it say something about the processing, and little about what happened: when it
    stops and then catches up, everything seems to happen at once. A window is closed by the first
    batch after its end. A batch that is run again has the same time; a replay has not.
    """
    if PROCESSED in df.columns:
        raise InvalidInput(f"the rows have a column {PROCESSED} already", hint="drop it first")
    graph = present_graph()
    if graph is not None and df.isStreaming:
        stamped = graph.stamped(df, PROCESSED)
    else:
        stamped = df.withColumn(PROCESSED, current_timestamp())
    return mark_time(stamped, PROCESSED, 0, by_wall_clock=True)


def _held(
    table: DataFrame,
    keys: tuple[str, ...],
    every: Duration | None,
    correct_for: int | None,
    checkpoint: str | None,
) -> DataFrame:
    if every is None:
        return table
    time = time_column(table)
    assert time is not None
    kernel = HeldKernel(keys, schema_of(table), micros("every", every), correct_for)
    # What is held back is told later by so much.
    return run(table, kernel, checkpoint, time.correct_for + kernel.every)


def check_asked(aggregates: Mapping[str, Aggregate], example: str) -> None:
    if not aggregates:
        raise InvalidInput("nothing is asked of the rows", hint=f"ps.{example}")
    for name, asked in aggregates.items():
        if not hasattr(type(asked), "fold"):  # a Column of Spark has whatever it is asked for
            raise InvalidInput(f"{name}={asked!r} asks for nothing", hint=f"ps.{example}")


def check_window(over: Window) -> None:
    if not isinstance(over, Window):
        raise InvalidInput(
            f"{over!r} is no window",
            hint='ps.tumbling("1 minute"), or ps.hopping, ps.sliding, ps.session',
        )


def needed_time(df: DataFrame) -> EventTimeColumn:
    time = time_column(df)
    if time is None:
        raise InvalidInput(
            "nobody said when the rows happened",
            hint='app.stream(..., event_time=EventTime("at")), and keep that column; for rows from '
            'elsewhere ps.timed(df, "at", wait="10s")',
        )
    return time


def schema_of(df: DataFrame) -> pa.Schema:
    found = origin_of(df).schema
    return to_arrow_schema(df.schema, timezone="UTC") if found is None else found


def run(df: DataFrame, kernel: Kernel, checkpoint: str | None, correct_for: int) -> DataFrame:
    """The table that the kernel makes of these rows; its time goes by the same clock as theirs."""
    time = time_column(df)
    by_wall_clock = time is not None and time.by_wall_clock
    changed = run_kernel(df, kernel, checkpoint=checkpoint, by_wall_clock=by_wall_clock)
    if EVENT_TIME.name not in changed.columns:
        return changed
    # The event time of what ends now is before the clock.
    lateness = min(correct_for + 1, ANY_TIME)
    marked = mark_time(changed, EVENT_TIME.name, lateness, by_wall_clock=by_wall_clock)
    return still_fed(with_origin(marked, origin_of(changed)), changed)
