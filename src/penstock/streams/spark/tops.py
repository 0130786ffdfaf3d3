"""Rows by their place: the first ones in an order, and those that are there more than once."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.streams.algebra.keyed.copies import CopiesKernel
from penstock.streams.algebra.keyed.top import TopKernel
from penstock.streams.algebra.rows.sort_key import OrderBy
from penstock.streams.spark.operators import ANY_TIME, run, schema_of
from penstock.streams.spark.origin import time_column

COPY = "copy"


def top(
    df: DataFrame,
    by: str | Sequence[str],
    order: Sequence[tuple[str, bool, bool]],
    n: int,
    *,
    skip: int = 0,
    rank: str | None = None,
) -> DataFrame:
    """A table of `n` rows of each group after the first `skip`, in an order of columns, which are
    descending or not, with nulls first or not; `rank` names a column for the place of each."""
    time = time_column(df)
    kernel = TopKernel(
        by,
        [OrderBy(*each) for each in order],
        n,
        schema_of(df),
        skip=skip,
        rank=rank,
        time=time and time.name,
    )
    return run(df, kernel, None, ANY_TIME)


def copies(df: DataFrame) -> DataFrame:
    """The same table, in which rows that are there more than once are numbered: `copy`."""
    return run(df, CopiesKernel(schema_of(df), COPY), None, ANY_TIME)
