"""Events with what a table says about them, as of their time or as of their processing."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.joins.lookup import LookupKernel
from penstock.streams.algebra.joins.temporal import TemporalKernel
from penstock.streams.spark.joins import pairs_of, run_join
from penstock.streams.spark.operators import needed_time, schema_of
from penstock.streams.spark.origin import mark_time, origin_of, time_column


def enrich(
    stream: DataFrame,
    table: DataFrame,
    on: str | Sequence[str],
    *,
    as_of: str = "event",
    how: str = "left",
    checkpoint: str | None = None,
) -> DataFrame:
    """Every event with the row of a table, which is named by its key.

    `enrich(orders, customers, on="customer = id")` gives the customer as of the order's time: on a
    replay old orders meet what the table said then. It is given out when the clock has passed the
    order, and corrected for as long as the stream's event time says when a change of the table
    comes late. The table needs an event time for it; `as_of="latest"` takes what the table says as
    the order is processed, and stays with it.

    Events without a row have nulls; `how="inner"` leaves them out.
    """
    pairs = pairs_of(on)
    _check_key(table, [right for _, right in pairs])
    if as_of == "latest":
        return _looked_up(stream, table, pairs, how, checkpoint)
    if as_of != "event":
        raise InvalidInput(f"there is no row as of {as_of!r}", hint='as_of is "event" or "latest"')
    time = needed_time(stream)
    upserts = origin_of(table).upserts
    since = None if upserts is None else time_column(upserts)
    if upserts is None or since is None:
        raise InvalidInput(
            "nobody said from when the rows of the table are valid",
            hint='app.table(..., event_time=ps.EventTime("since")), of a topic or of ps.changes; '
            'or take them as they are now, enrich(..., as_of="latest")',
        )
    kernel = TemporalKernel(
        pairs,
        schema_of(stream),
        schema_of(upserts),
        how,
        event_time=time.name,
        table_time=since.name,
        correct_for=time.correct_for,
    )
    found = run_join(stream, upserts, kernel, kernel.sides, checkpoint, time.correct_for)
    return found if kernel.takes_back else found.drop(WEIGHT)


def _looked_up(
    stream: DataFrame,
    table: DataFrame,
    pairs: Sequence[tuple[str, str]],
    how: str,
    checkpoint: str | None,
) -> DataFrame:
    rows = origin_of(table).upserts
    time = time_column(stream)
    if rows is None:
        rows = table
    kernel = LookupKernel(
        pairs, schema_of(stream), schema_of(rows), how, event_time=time and time.name
    )
    found = run_join(stream, rows, kernel, kernel.sides, checkpoint, 0)
    if time is None:
        return found
    return mark_time(found, "_time", time.correct_for, by_wall_clock=time.by_wall_clock)


def _check_key(table: DataFrame, columns: list[str]) -> None:
    if WEIGHT not in table.columns:
        raise InvalidInput(
            "events are enriched with the rows of a table, and this is a stream",
            hint='ps.changes(df, key="id") makes a table of it; ps.join joins two streams',
        )
    keys = origin_of(table).keys
    if keys and set(keys) != set(columns):
        raise InvalidInput(
            f"the table has one row for each {', '.join(keys)}, and not for each "
            f"{', '.join(columns)}",
            hint="enrich by the key of the table; ps.join finds all rows that are equal in others",
        )
