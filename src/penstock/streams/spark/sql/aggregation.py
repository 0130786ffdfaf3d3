"""GROUP BY on Spark: each call as an aggregate that follows changes, and its answer as Spark's."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, expr, lit
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StringType

from penstock.streams.algebra.aggregates import functions as ps
from penstock.streams.algebra.aggregates.functions import Aggregate as Asked
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.algebra.keyed.total import TotalKernel
from penstock.streams.algebra.rows.selection import COLUMN, TUMBLING
from penstock.streams.algebra.windows.window import hopping, micros, session, tumbling
from penstock.streams.algebra.windows.windowed import WINDOW
from penstock.streams.spark.exchange import run_kernel
from penstock.streams.spark.feeds import still_fed
from penstock.streams.spark.operators import ANY_TIME, run, schema_of, windowed
from penstock.streams.spark.origin import time_column
from penstock.streams.spark.sql.names import own_weight, physical
from penstock.streams.sql.plan import Aggregate, Call, Col, Order, Span

_ALL = 2**31 - 1  # rows of an array: as many as there are
_ONE = "all__rows"  # the key of all rows
_SEEN = "all__seen"  # set in every row but the one that is there before any other
_SPARK_NAMES = {"sum": "sum", "mean": "avg"}
_ANSWERS: dict[tuple[str, DataType], DataType] = {}  # asked of Spark once in a process
_ARRAYS = ("collect", "collect_set")
_COMPUTED = (*_SPARK_NAMES, *_ARRAYS)  # whose answers Spark makes of ours


def aggregated(frame: DataFrame, plan: Aggregate) -> DataFrame:
    """Columns as the plan has them, of the types that Spark SQL gives."""
    prepared, read = _prepared(frame, plan)
    by = [physical(each) for each in plan.by]
    asked = {physical(column): _asked(call, read[column]) for column, call in plan.calls}
    results = [
        _as_spark(frame, physical(column), call).alias(physical(column))
        for column, call in plan.calls
    ]
    if plan.span is not None:
        table = _by_window(prepared, plan.span, physical(plan.span.time), by, asked)
        return table.select(physical(plan.span.column), *by, *results, WEIGHT)
    if not by:
        return _total(prepared, asked).select(*results, WEIGHT)
    kernel = AggregateKernel(by, asked, schema_of(prepared))
    table = run(prepared, kernel, None, ANY_TIME)
    chosen = table.select(*by, *results, WEIGHT)
    if any(call.function in _COMPUTED for _, call in plan.calls):
        return chosen
    return still_fed(chosen, table)


def _asked(call: Call, column: str | None) -> Asked:
    if column is None:
        return ps.count()
    if call.function in _ARRAYS:
        return ps.collect(column, limit=_ALL)
    simple = {
        "count": ps.count,
        "distinct": ps.distinct,
        "max": ps.max,
        "mean": ps.mean,
        "min": ps.min,
        "stddev": ps.stddev,
        "sum": ps.sum,
    }
    return simple[call.function](column)


def _prepared(frame: DataFrame, plan: Aggregate) -> tuple[DataFrame, dict[Col, str | None]]:
    """With what is computed first, and the column that each call reads then."""
    more: dict[str, Column] = {}
    read: dict[Col, str | None] = {}
    for column, call in plan.calls:
        read[column] = None if call.column is None else physical(call.column)
        if call.column is None:
            continue
        value, own = physical(call.column), f"{physical(column)}__value"
        if call.function in _ARRAYS:
            parts = [f"`{physical(each.column)}` as o{n}" for n, each in enumerate(call.order)]
            parts.append(f"`{value}` as v")
            more[own] = expr(f"case when `{value}` is not null then struct({', '.join(parts)}) end")
            read[column] = own
        elif call.function in _SPARK_NAMES and frame.schema[value].dataType == StringType():
            more[own] = col(value).cast("double")  # Spark takes texts for numbers here
            read[column] = own
    return frame.withColumns(more) if more else frame, read


def _as_spark(frame: DataFrame, name: str, call: Call) -> Column:
    if call.function in _ARRAYS:
        return expr(_array(name, call))
    if call.function in _SPARK_NAMES and call.column is not None:
        return col(name).cast(_answer(frame, _SPARK_NAMES[call.function], physical(call.column)))
    return col(name)


def _answer(frame: DataFrame, function: str, column: str) -> DataType:
    """The type of an aggregate of Spark's, which depends on nothing but that of its column."""
    about = function, frame.schema[column].dataType
    if about not in _ANSWERS:
        answer = frame.select(expr(f"{function}(`{column}`)").alias("c"))
        _ANSWERS[about] = answer.schema["c"].dataType
    return _ANSWERS[about]


def _array(name: str, call: Call) -> str:
    """Rows of equal places stay in the order of their values."""
    array = f"coalesce(`{name}`.values, array())"
    if call.order:
        array = f"array_sort({array}, (a, b) -> {_compared(call.order)})"
    values = f"transform({array}, each -> each.v)"
    return f"array_distinct({values})" if call.function == "collect_set" else values


def _compared(order: tuple[Order, ...]) -> str:
    text = "0"
    for number, each in reversed(list(enumerate(order))):
        a, b = f"a.o{number}", f"b.o{number}"
        null, low = (-1 if each.nulls_first else 1), (1 if each.descending else -1)
        text = (
            f"case when {a} is null and {b} is null then {text} when {a} is null then {null} "
            f"when {b} is null then {-null} when {a} < {b} then {low} when {a} > {b} then {-low} "
            f"else {text} end"
        )
    return text


def _by_window(
    frame: DataFrame, span: Span, time: str, by: list[str], asked: Mapping[str, Asked]
) -> DataFrame:
    """By the clock if it goes by this time, and then of bounded state; else for all times."""
    name = physical(span.column)
    marked = time_column(frame)
    if span.session or (marked is not None and marked.name == time):
        over = session(span.size) if span.session else tumbling(span.size)
        if span.step is not None:
            over = hopping(span.size, span.step)
        table = windowed(frame, over, by, asked, emit="changes")
        return table.withColumnRenamed(WINDOW, name)
    rows = with_windows(frame, span, time)
    kernel = AggregateKernel([name, *by], asked, schema_of(rows))
    return run(rows, kernel, None, ANY_TIME)


def with_windows(frame: DataFrame, span: Span, time: str) -> DataFrame:
    """Each row with each window that it is in; no event time is marked any more."""
    name, step = physical(span.column), "" if span.step is None else f", '{span.step}'"
    window = expr(f"window(`{time}`, '{span.size}'{step})").alias(name)
    names = [each for each in frame.columns if each != WEIGHT]
    rows = frame.select(*names, window, *own_weight(frame))
    columns = [col(each).alias(each, metadata={}) for each in (*names, name)]
    unmarked = rows.select(*columns, *own_weight(frame))
    if span.step is not None:  # a row may be in several
        return unmarked
    there = ["not", ["is null", [COLUMN, time]]]
    columns_then = {each: each for each in frame.columns}
    of_time = [TUMBLING, [COLUMN, time], micros("size", span.size)]
    return still_fed(unmarked, frame, {**columns_then, name: of_time}, where=there)


def _total(frame: DataFrame, asked: Mapping[str, Asked]) -> DataFrame:
    counts_rows = {
        name: ps.count(_SEEN) if each == ps.count() else each for name, each in asked.items()
    }
    rows = frame.withColumns({_ONE: lit(1), _SEEN: lit(1)})
    schema = to_arrow_schema(rows.schema, timezone="UTC").remove_metadata()
    # One row without any values, which nothing counts.
    values = {_ONE: 1, WEIGHT: 0}
    columns = [pa.array([values.get(each.name)], each.type) for each in schema]
    opening = pa.RecordBatch.from_arrays(columns, names=schema.names)
    kernel = TotalKernel(_ONE, counts_rows, schema_of(rows))
    return run_kernel(rows, kernel, opening=opening)
