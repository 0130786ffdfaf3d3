"""Events with what a table says about them, as of their time or as of their processing; and all
that it ever said."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from penstock.clock import Duration
from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.joins.lookup import LookupKernel
from penstock.streams.algebra.joins.temporal import TemporalKernel
from penstock.streams.algebra.joins.waiting import WaitingKernel
from penstock.streams.algebra.keyed.history import VALID_FROM, HistoryKernel
from penstock.streams.algebra.windows.window import micros
from penstock.streams.source.spec import EVENT_TIME
from penstock.streams.spark.exchange import run_kernel
from penstock.streams.spark.feeds import without_weight
from penstock.streams.spark.joins import pairs_of, run_join
from penstock.streams.spark.operators import ANY_TIME, needed_time, schema_of
from penstock.streams.spark.origin import (
    EventTimeColumn,
    Origin,
    mark_time,
    origin_of,
    time_column,
    with_origin,
)


def enrich(
    stream: DataFrame,
    table: DataFrame,
    on: str | Sequence[str],
    *,
    as_of: str = "event",
    how: str = "left",
    broadcast: bool = False,
    checkpoint: str | None = None,
) -> DataFrame:
    """Every event with the row of a table, which is named by its key.

    `enrich(orders, customers, on="customer = id")` gives the customer as of the order's time: on a
    replay old orders meet what the table said then. It is given out when the clock has passed the
    order, and corrected for as long as the stream's event time says when a change of the table
    comes late. The table needs an event time for it; `as_of="latest"` takes what the table says as
    the order is processed, and stays with it.

    Events without a row have nulls; `how="inner"` leaves them out.

    Events go to the bucket of their key, so a key that most of them have leaves the work to one
    core. With `broadcast=True` they are spread evenly, whatever their keys are, and every bucket
    has all of the table: it is sent, kept and written once for each of them, which is meant for
    small tables. What comes out is the same, but that events of one key come in no order.
    """
    pairs = pairs_of(on)
    _check_key(table, [right for _, right in pairs])
    if as_of == "latest":
        return _looked_up(stream, table, pairs, how, broadcast, checkpoint)
    if as_of != "event":
        raise InvalidInput(f"there is no row as of {as_of!r}", hint='as_of is "event" or "latest"')
    time = needed_time(stream)
    upserts, since = _timed_upserts(
        table, 'or take them as they are now, enrich(..., as_of="latest")'
    )
    schemas = schema_of(stream), schema_of(upserts)
    named: dict[str, Any] = {
        "event_time": time.name,
        "table_time": since.name,
        "broadcast": broadcast,
    }
    kernel: TemporalKernel | WaitingKernel
    if time.correct_for == 0 and WEIGHT not in schemas[0].names:
        kernel = WaitingKernel(pairs, *schemas, how, **named)
    else:
        kernel = TemporalKernel(pairs, *schemas, how, correct_for=time.correct_for, **named)
    found = run_join(
        stream, upserts, kernel, kernel.sides, checkpoint, time.correct_for + 1, kernel.spreads
    )
    return found if kernel.takes_back else without_weight(found)


def versions(
    table: DataFrame, *, keep: Duration | None = None, checkpoint: str | None = None
) -> DataFrame:
    """Every version that a table had of its rows, by its key and `valid_from`.

    `versions(customers)` has `version`, which counts from 1 for each key, `valid_from` and
    `valid_to`, which is null for what is valid still; the column of the table's event time is not
    there beside `valid_from`. An upsert that changes nothing makes no version. One that comes late
    is put where it belongs, and the versions after it are numbered anew: what refers to a version
    names its key and `valid_from`.

    All versions are kept, unless `keep="90 days"` lets those leave that ended so long ago: by the
    clock of the stream that the table was made of, and by the wall clock when it is read from a
    topic, as a table has no clock of its own. In a batch none leave.
    """
    upserts, since = _timed_upserts(table, "which also says when they end")
    source = origin_of(upserts).source
    rule = None if source is None else source.rule
    is_table = rule is not None and rule.until_read
    kernel = HistoryKernel(
        origin_of(table).keys,
        schema_of(upserts),
        since.name,
        None if keep is None else micros("keep", keep),
    )
    told = run_kernel(
        upserts, kernel, checkpoint=checkpoint, by_wall_clock=since.by_wall_clock or is_table
    )
    told = mark_time(told, EVENT_TIME.name, ANY_TIME, by_wall_clock=since.by_wall_clock)
    return with_origin(told, Origin(keys=(*kernel.keys, VALID_FROM)))


def _timed_upserts(table: DataFrame, otherwise: str) -> tuple[DataFrame, EventTimeColumn]:
    """The rows that the table was made of, and from when each is valid."""
    origin = origin_of(table)
    if origin.reread is not None:
        origin = origin_of(origin.reread())
    upserts = origin.upserts
    since = None if upserts is None else time_column(upserts)
    if upserts is None or since is None:
        raise InvalidInput(
            "nobody said from when the rows of the table are valid",
            hint='app.table(..., event_time=ps.EventTime("since")), of a topic or of ps.changes; '
            + otherwise,
        )
    return upserts, since


def _looked_up(
    stream: DataFrame,
    table: DataFrame,
    pairs: Sequence[tuple[str, str]],
    how: str,
    broadcast: bool,
    checkpoint: str | None,
) -> DataFrame:
    rows = origin_of(table).upserts
    time = time_column(stream)
    if rows is None:
        rows = table
    kernel = LookupKernel(
        pairs,
        schema_of(stream),
        schema_of(rows),
        how,
        event_time=time and time.name,
        broadcast=broadcast,
    )
    found = run_join(stream, rows, kernel, kernel.sides, checkpoint, 0, kernel.spreads)
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
