"""Joins: two DataFrames become one, on streams and on batches alike."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from penstock.clock import Duration
from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.joins.intervals import IntervalJoinKernel
from penstock.streams.algebra.joins.streams import StreamJoinKernel, are_streams
from penstock.streams.algebra.joins.tables import TableJoinKernel
from penstock.streams.algebra.kernel import Packing, Stepping
from penstock.streams.algebra.spreading import BOTH_BY_KEY, Spread
from penstock.streams.algebra.windows.window import micros
from penstock.streams.source.spec import EVENT_TIME
from penstock.streams.spark.exchange import run_step
from penstock.streams.spark.feeds import still_fed, without_weight
from penstock.streams.spark.operators import ANY_TIME, needed_time, schema_of
from penstock.streams.spark.origin import mark_time, time_column
from penstock.streams.spark.query.graph import Input

Pairs = Sequence[tuple[str, str]]
_EQUALITY = re.compile(r"\s*`?([\w ]+?)`?\s*(?:==?\s*`?([\w ]+?)`?\s*)?", re.ASCII)


def join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    within: Duration | tuple[Duration, Duration] | None = None,
    how: str = "inner",
    checkpoint: str | None = None,
) -> DataFrame:
    """Rows of both sides that belong together.

    `join(searches, clicks, on="user = who", within=("0s", "5m"), how="left")`. Two streams are
    joined `within` a time: the right row that much before the left one at most, or after it, or
    from one bound to the other, both included. What finds no partner comes out, in a left, right,
    full or anti join, when the clock says that none can come any more. Two tables are joined
    without it; what comes out is a table that changes as they do.

    `on` names columns that are equal, left = right, or a column that both have; they come out
    under the left's name. `how` is inner, left, right, full, semi or anti.
    """
    pairs = pairs_of(on)
    if within is not None:
        return interval_join(left, right, pairs, bounds(within), how, checkpoint=checkpoint)
    if not any(WEIGHT in each.columns for each in (left, right)):
        raise InvalidInput(
            "two streams are joined without a limit, so that all of both would be kept for ever",
            hint='join(..., within="5 minutes"); ps.changes(df, key=...) makes a table of a stream',
        )
    return table_join(left, right, pairs, how, on_once=True, checkpoint=checkpoint)


def interval_join(
    left: DataFrame,
    right: DataFrame,
    on: Pairs,
    within: tuple[int, int],
    how: str = "inner",
    *,
    checkpoint: str | None = None,
) -> DataFrame:
    """The join of two streams within microseconds."""
    times = [needed_time(each) for each in (left, right)]
    correct_for = max(each.correct_for for each in times)
    schemas = schema_of(left), schema_of(right)
    named: dict[str, Any] = {
        "left_time": times[0].name,
        "right_time": times[1].name,
        "on_once": True,
        "correct_for": correct_for,
    }
    kernel: StreamJoinKernel | IntervalJoinKernel
    if how == "inner" and are_streams(*schemas):
        kernel = StreamJoinKernel(on, *schemas, within=within, **named)
    else:
        kernel = IntervalJoinKernel(on, *schemas, *within, how, **named)
    # Pairs are complete with a row that is in time; what comes out alone is so before the clock.
    lateness = correct_for if isinstance(kernel, StreamJoinKernel) else correct_for + 1
    joined = run_join(left, right, kernel, kernel.sides, checkpoint, lateness)
    return joined if kernel.takes_back else without_weight(joined)


def bounds(within: Duration | tuple[Duration, Duration]) -> tuple[int, int]:
    """From when to when a right row may be, in microseconds after the left one."""
    if isinstance(within, tuple):
        if len(within) != 2:
            raise InvalidInput(f"within={within!r} has not two bounds", hint='within=("-1h", "5s")')
        return _signed(within[0]), _signed(within[1])
    most = micros("within", within, least=0)
    return -most, most


def _signed(bound: Duration) -> int:
    if isinstance(bound, timedelta) and bound < timedelta():
        return -micros("within", -bound, least=0)
    if isinstance(bound, str) and bound.lstrip().startswith("-"):
        return -micros("within", bound.lstrip()[1:], least=0)
    return micros("within", bound, least=0)


def table_join(
    left: DataFrame,
    right: DataFrame,
    on: Pairs,
    how: str = "inner",
    *,
    null_safe: bool = False,
    on_once: bool = False,
    checkpoint: str | None = None,
) -> DataFrame:
    """The changes of the join of two tables; rows without a `_weight` are those of one that grows,
    and so are those that come out when both sides only grow and so does their join.

    No column of one has the name of one of the other; with `on_once`, but for those of the right
    that are compared, which do not come out.
    """
    times = [time_column(each) for each in (left, right)]
    schemas = schema_of(left), schema_of(right)
    named: dict[str, Any] = {"null_safe": null_safe, "on_once": on_once}
    kernel: StreamJoinKernel | TableJoinKernel
    if how == "inner" and are_streams(*schemas):
        kernel = StreamJoinKernel(on, *schemas, **named)
    else:
        left_time, right_time = (each and each.name for each in times)
        kernel = TableJoinKernel(
            on, *schemas, how, left_time=left_time, right_time=right_time, **named
        )
    joined = run_join(left, right, kernel, kernel.sides, checkpoint, ANY_TIME)
    return joined if kernel.takes_back else without_weight(joined)


def pairs_of(on: str | Sequence[str]) -> list[tuple[str, str]]:
    """The columns that are compared: `"customer = id"`, `"id"`, several with `and` or in a list."""
    parts = [on] if isinstance(on, str) else list(on)
    found = []
    for part in parts:
        for each in re.split(r"\band\b", part, flags=re.IGNORECASE):
            match = _EQUALITY.fullmatch(each)
            if match is None:
                raise InvalidInput(
                    f"{each.strip()!r} compares no two columns",
                    hint='on="customer = id", left = right; what else has to hold is a filter '
                    "after the join",
                )
            found.append((match[1], match[2] or match[1]))
    return found


def run_join(
    left: DataFrame,
    right: DataFrame,
    kernel: Stepping,
    sides: Sequence[Packing],
    checkpoint: str | None,
    lateness: int,
    spreads: tuple[Spread, Spread] = BOTH_BY_KEY,
) -> DataFrame:
    if left.isStreaming != right.isStreaming:
        raise InvalidInput(
            "one side of the join is a stream and the other is not",
            hint="read both from the log; rows that never change are joined by Spark itself: "
            "stream.join(rows, ...)",
        )
    times = [time_column(each) for each in (left, right)]
    by_wall_clock = any(each.by_wall_clock for each in times if each is not None)
    joined = run_step(
        kernel,
        list(map(Input, (left, right), sides, spreads)),
        checkpoint=checkpoint,
        by_wall_clock=by_wall_clock,
    )
    if EVENT_TIME.name not in joined.columns:
        return joined
    lateness = min(lateness, ANY_TIME)
    marked = mark_time(joined, EVENT_TIME.name, lateness, by_wall_clock=by_wall_clock)
    return still_fed(marked, joined)
