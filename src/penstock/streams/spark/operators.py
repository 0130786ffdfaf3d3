"""Operators: plain functions from DataFrame to DataFrame, on streams and on batches alike."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import InvalidInput
from penstock.streams.algebra.aggregate import AggregateKernel
from penstock.streams.algebra.aggregates import Aggregate
from penstock.streams.algebra.upserts import UpsertKernel
from penstock.streams.source.spec import EVENT_TIME
from penstock.streams.spark.exchange import run_kernel
from penstock.streams.spark.origin import mark_time, origin_of, time_column, with_origin


def aggregate(
    df: DataFrame,
    by: str | Sequence[str],
    *,
    checkpoint: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """A table with a row for each `by`, of all rows so far.

    `aggregate(orders, by="customer", total=sum("amount"), n=count())`. On a stream outside an app
    `checkpoint` is the folder that the query is started with.
    """
    if not aggregates:
        raise InvalidInput(
            "nothing is asked of the rows", hint="aggregate(orders, by='customer', n=ps.count())"
        )
    kernel = AggregateKernel(by, aggregates, _schema(df), time=time_column(df))
    return _as_table(run_kernel(df, kernel, checkpoint=checkpoint))


def changes(df: DataFrame, key: str | Sequence[str], *, checkpoint: str | None = None) -> DataFrame:
    """Upserts as a table: each row replaces the one of its key that came before.

    A row whose `_deleted` is true deletes. What comes out has a `_weight`: -1 for the row that is
    gone, +1 for the one that is there now.
    """
    kernel = UpsertKernel(key, _schema(df), time=time_column(df))
    return _as_table(run_kernel(df, kernel, checkpoint=checkpoint))


def _schema(df: DataFrame) -> pa.Schema:
    found = origin_of(df).schema
    return to_arrow_schema(df.schema, timezone="UTC") if found is None else found


def _as_table(changed: DataFrame) -> DataFrame:
    if EVENT_TIME.name not in changed.columns:
        return changed
    origin = origin_of(changed)
    return with_origin(mark_time(changed, EVENT_TIME.name), replace(origin, source=None))
