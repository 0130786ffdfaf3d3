"""Analytics over streams: rates, comparisons, what is unusual, doubled, latest, silent or new."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, unix_micros

from penstock.clock import Duration
from penstock.errors import InvalidInput
from penstock.streams.algebra.aggregates.functions import Aggregate, count
from penstock.streams.algebra.analytics.bloom import BloomKernel
from penstock.streams.algebra.analytics.dedup import DedupKernel
from penstock.streams.algebra.analytics.gaps import GapKernel
from penstock.streams.algebra.analytics.in_order import InOrderKernel
from penstock.streams.algebra.analytics.latest import LatestKernel
from penstock.streams.algebra.analytics.measures import Anomaly, Comparison, Measure
from penstock.streams.algebra.analytics.seen import SeenKernel
from penstock.streams.algebra.analytics.series import SeriesKernel, windows_back
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.rows.shape import check_result_names, names_of
from penstock.streams.algebra.windows.rolling import RollingKernel
from penstock.streams.algebra.windows.window import Window, micros, sliding
from penstock.streams.spark.operators import (
    ANY_TIME,
    check_asked,
    check_window,
    needed_time,
    run,
    schema_of,
    windowed,
)
from penstock.streams.spark.origin import (
    EventTimeColumn,
    mark_time,
    origin_of,
    time_column,
    with_origin,
)

_EXPECTED = 1_000_000


def rolling(
    df: DataFrame,
    over: Duration,
    by: str | Sequence[str] = (),
    *,
    emit: str = "final",
    checkpoint: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """Every row, and what the rows of its key come to that are less than `over` before it.

    `rolling(payments, "1 hour", by="card", usual=mean("amount"))`. The row itself is among them,
    and so are those of the same time. A row is given out once, when the clock has passed it:
    `emit="changes"` gives it at once, and again when it changes. Where nothing is corrected, as the
    stream's event time says, what comes out is a stream; otherwise it is a table.
    """
    check_asked(aggregates, "rolling(payments, '1 hour', by='card', n=ps.count())")
    time = needed_time(df)
    kernel = RollingKernel(
        by,
        sliding(over),
        aggregates,
        schema_of(df),
        time.name,
        correct_for=time.correct_for,
        emit=emit,
    )
    table = run(df, kernel, checkpoint, time.correct_for)
    return _as_stream(table, time) if _is_for_good(emit, time) else table


def rate(
    df: DataFrame,
    over: Window,
    by: str | Sequence[str] = (),
    *,
    per: Duration = "1s",
    emit: str | None = None,
    every: Duration | None = None,
    checkpoint: str | None = None,
) -> DataFrame:
    """How many `events` each window has, and the `rate`, which is how many `per` second or so.

    `rate(clicks, tumbling("1 minute"), by="page")`. Otherwise as `window`. A window without events
    has no row.
    """
    unit = micros("per", per)
    check_result_names([*names_of(by), "events", "rate"])
    table = windowed(
        df,
        over,
        by,
        {"events": count()},
        emit=emit,
        every=every,
        checkpoint=checkpoint,
    )
    length = unix_micros("window.end") - unix_micros("window.start")
    found = (col("events") * unit / length).alias("rate")
    return _beside(table, found, after="events")


def compare(
    df: DataFrame,
    over: Window,
    by: str | Sequence[str] = (),
    *,
    to: Duration | None = None,
    emit: str | None = None,
    checkpoint: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """Windows, each beside an earlier one: the one before it, or that of so long ago.

    `compare(orders, tumbling("1 day", zone="Europe/Berlin"), to="1 week", sold=sum("amount"))`
    gives `sold_before`, `sold_difference` and `sold_ratio` too; they are null where the earlier
    window had no rows. Otherwise as `window`.
    """
    check_asked(aggregates, "compare(orders, ps.tumbling('1 day'), to='1 week', n=ps.count())")
    check_window(over)
    measure = Comparison() if to is None else Comparison(windows_back(over, to))
    return _series(df, over, by, measure, emit, checkpoint, aggregates)


def anomaly(
    df: DataFrame,
    over: Window,
    by: str | Sequence[str] = (),
    *,
    history: int = 60,
    threshold: float = 3.5,
    emit: str | None = None,
    checkpoint: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """Windows, each measured against its own `history`, which is so many windows before it.

    `anomaly(clicks, tumbling("1 minute"), by="page", n=count())` gives `n_expected`, the median of
    those, `n_score`, how far off it is (a robust z-score), and `n_unusual`: "high" or "low" when
    that is more than `threshold`, and null otherwise. Otherwise as `window`.
    """
    check_asked(aggregates, "anomaly(clicks, ps.tumbling('1 minute'), n=ps.count())")
    measure = Anomaly(history, threshold)
    return _series(df, over, by, measure, emit, checkpoint, aggregates)


def dedup(
    df: DataFrame,
    key: str | Sequence[str],
    *,
    within: Duration,
    emit: str = "changes",
    checkpoint: str | None = None,
) -> DataFrame:
    """The rows without duplicates: those whose key came less than `within` before, by event time.

    `dedup(orders, "id", within="1 day")`. A row is given at once, and taken back if its twin turns
    out to be the earlier one: a table. With `emit="final"` it is given when the clock has passed
    it, and where nothing is corrected, as the stream's event time says, what comes out is a stream.
    """
    time = needed_time(df)
    length = micros("within", within)
    kernel = DedupKernel(
        key, schema_of(df), time.name, length, correct_for=time.correct_for, emit=emit
    )
    # A row may be taken back for as long as one can come that is just before it.
    table = run(df, kernel, checkpoint, time.correct_for + length)
    return _as_stream(table, time) if _is_for_good(emit, time) else table


def latest(df: DataFrame, key: str | Sequence[str], *, checkpoint: str | None = None) -> DataFrame:
    """A table with the last row of each key, by event time, whenever it comes."""
    time = needed_time(df)
    return run(df, LatestKernel(key, schema_of(df), time.name), checkpoint, ANY_TIME)


def gaps(
    df: DataFrame,
    by: str | Sequence[str] = (),
    *,
    after: Duration,
    forget: Duration | None = None,
    checkpoint: str | None = None,
) -> DataFrame:
    """When a key was silent for longer than `after`: `since` its last row, `until` its next one.

    `gaps(readings, by="sensor", after="5 minutes")`. A row is given when the clock has passed its
    first `after`; `until` is null as long as the silence lasts. A key is known forever, or as long
    as `forget` says after its last row.
    """
    time = needed_time(df)
    kernel = GapKernel(
        by,
        micros("after", after),
        schema_of(df),
        time.name,
        correct_for=time.correct_for,
        forget=None if forget is None else micros("forget", forget),
    )
    return run(df, kernel, checkpoint, ANY_TIME)  # a silence may end long after it began


def seen_before(
    df: DataFrame,
    key: str | Sequence[str],
    *,
    error: float | None = None,
    expected: int | None = None,
    checkpoint: str | None = None,
) -> DataFrame:
    """Every row, and whether its key came before, by event time, as `seen_before`.

    It is exact, and keeps a row for every key; a row that turns out to be earlier corrects. With
    an `error` of 0.01, one new key in a hundred is taken for a known one at most, as long as there
    are no more than `expected` keys, a million unless given: a Bloom filter, of about ten bits a
    key. Rows are given then when the clock has passed them, and never corrected: a stream.
    """
    time = needed_time(df)
    if error is None:
        if expected is not None:
            raise InvalidInput(
                f"expected={expected:,} says something about a Bloom filter, and this is exact",
                hint="give error= too, such as 0.01, or leave it out",
            )
        return run(df, SeenKernel(key, schema_of(df), time.name), checkpoint, time.correct_for)
    held = run(df, InOrderKernel(key, schema_of(df), time.name), checkpoint, time.correct_for)
    marked = time_column(held)
    assert marked is not None
    kernel = BloomKernel(
        key, schema_of(held), marked.name, error=error, expected=expected or _EXPECTED
    )
    return _as_stream(run(held, kernel, checkpoint, time.correct_for), time)


def _series(
    df: DataFrame,
    over: Window,
    by: str | Sequence[str],
    measure: Measure,
    emit: str | None,
    checkpoint: str | None,
    aggregates: dict[str, Aggregate],
) -> DataFrame:
    correct_for = needed_time(df).correct_for
    table = windowed(df, over, by, aggregates, emit=emit, checkpoint=checkpoint)
    kernel = SeriesKernel(by, over, schema_of(table), measure, correct_for=correct_for)
    return run(table, kernel, checkpoint, correct_for)


def _as_stream(table: DataFrame, time: EventTimeColumn) -> DataFrame:
    """Rows of which none is ever taken back, with the clock of the stream that they were in."""
    marked = time_column(table)
    assert marked is not None
    rows = mark_time(
        table.drop(WEIGHT), marked.name, time.correct_for, by_wall_clock=time.by_wall_clock
    )
    return with_origin(rows, origin_of(table))


def _is_for_good(emit: str, time: EventTimeColumn) -> bool:
    return emit == "final" and not time.correct_for


def _beside(table: DataFrame, more: Column, *, after: str) -> DataFrame:
    """The table with one more column, which stands after another."""
    columns: list[Column] = []
    for name in table.columns:
        columns += [col(name), more] if name == after else [col(name)]
    return with_origin(table.select(columns), origin_of(table))
