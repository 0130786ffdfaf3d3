"""Joins: two DataFrames become one, on streams and on batches alike."""

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.errors import InvalidInput
from penstock.streams.algebra.joins.tables import TableJoinKernel
from penstock.streams.algebra.kernel import Packing, Stepping
from penstock.streams.source.spec import EVENT_TIME
from penstock.streams.spark.exchange import run_step
from penstock.streams.spark.operators import ANY_TIME, schema_of
from penstock.streams.spark.origin import mark_time, time_column

Pairs = Sequence[tuple[str, str]]
_EQUALITY = re.compile(r"\s*`?([\w ]+?)`?\s*(?:==?\s*`?([\w ]+?)`?\s*)?", re.ASCII)


def table_join(
    left: DataFrame,
    right: DataFrame,
    on: Pairs,
    how: str = "inner",
    *,
    null_safe: bool = False,
    checkpoint: str | None = None,
) -> DataFrame:
    """The changes of the join of two tables, of which no column has the same name.

    Rows without a `_weight` are those of a table that only grows.
    """
    times = [time_column(each) for each in (left, right)]
    kernel = TableJoinKernel(
        on,
        schema_of(left),
        schema_of(right),
        how,
        null_safe=null_safe,
        left_time=times[0] and times[0].name,
        right_time=times[1] and times[1].name,
    )
    return _run(left, right, kernel, kernel.sides, checkpoint, ANY_TIME)


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


def _run(
    left: DataFrame,
    right: DataFrame,
    kernel: Stepping,
    sides: Sequence[Packing],
    checkpoint: str | None,
    correct_for: int,
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
        list(zip((left, right), sides, strict=True)),
        checkpoint=checkpoint,
        by_wall_clock=by_wall_clock,
    )
    if EVENT_TIME.name not in joined.columns:
        return joined
    lateness = min(correct_for + 1, ANY_TIME)
    return mark_time(joined, EVENT_TIME.name, lateness, by_wall_clock=by_wall_clock)
