"""Streams of rows that penstock reads by itself, as the leaves of Spark's plans.

    orders = leaf_frame(session, 0, schema)
    large = orders.filter("amount > 100")  # what a user writes
    check_stateless(large)
    reading = with_rows(large, lambda number, schema: leaf_rows(session, schema, read_orders, 2))
    run_fresh(session, reading).toRdd().count()  # once for every micro-batch

To Spark a leaf is a streaming DataFrame, so that a user's code meets the rules of streams; but what
it reads is not known to the plan, which can therefore run as a batch, as often as needed. A leaf is
made without rows, as Spark takes 50 ms to plan how they are read and most leaves are never read by
Spark.
"""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from py4j.java_gateway import JavaObject
from pyarrow import RecordBatch
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from penstock.errors import InvalidInput

Read = Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]
LEAF: Final = "penstock.leaf"  # in the metadata of a leaf's first field: its number

_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_planning = threading.Lock()  # the setting belongs to the session, not to a thread

_AGGREGATE = "use ps.aggregate, or ps.window for one result for every window"
_DEDUP = "use ps.dedup, or ps.aggregate by those columns"
_ORDER = (
    "an unbounded stream has no last row: aggregate with ps.top, or sort where the result is read"
)
_OVER = "use ps.rolling for what came before a row, ps.latest or an aggregate with ps.top"
_JOIN = "use ps.join, or ps.enrich for the row of a table"
_GROUPS = "use ps.aggregate or ps.window; ps.Aggregation takes functions of your own for each group"
_SETS = "use ps.join or ps.aggregate"
# What Spark would answer for the rows of one micro-batch alone.
_GLOBAL = {
    "Aggregate": ("an aggregation", _AGGREGATE),
    "Pivot": ("a pivot", _AGGREGATE),
    "Distinct": ("DISTINCT", _DEDUP),
    "Deduplicate": ("dropDuplicates", _DEDUP),
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", _DEDUP),
    "Sort": ("a sort", _ORDER),
    "GlobalLimit": ("LIMIT", _ORDER),
    "LocalLimit": ("LIMIT", _ORDER),
    "Offset": ("OFFSET", _ORDER),
    "Tail": ("the last rows", _ORDER),
    "Window": ("a window function", _OVER),
    "WindowGroupLimit": ("a window function", _OVER),
    "MapGroups": ("a function of groups", _GROUPS),
    "CoGroup": ("a function of two groups", _JOIN),
    "FlatMapGroupsInPandas": ("applyInPandas", _GROUPS),
    "FlatMapGroupsInArrow": ("applyInArrow", _GROUPS),
    "FlatMapCoGroupsInPandas": ("applyInPandas on two groups", _JOIN),
    "FlatMapCoGroupsInArrow": ("applyInArrow on two groups", _JOIN),
    "FlatMapGroupsWithState": ("state of Spark's own", _GROUPS),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState", _GROUPS),
    "TransformWithState": ("transformWithState", _GROUPS),
    "TransformWithStateInPySpark": ("transformWithState", _GROUPS),
    "Intersect": ("INTERSECT", _SETS),
    "Except": ("EXCEPT", _SETS),
}
_JOINS = ("Join", "AsOfJoin", "LateralJoin")
# What makes rows of each row by itself, wherever it stands among the others.
_ROW_BY_ROW = {
    "EventTimeWatermark",
    "Filter",
    "Generate",
    "Join",  # with what is static
    "LogicalRDD",
    "Project",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "SubqueryAlias",
    "Union",
    "View",
}


def leaf_frame(session: SparkSession, number: int, schema: StructType) -> DataFrame:
    """A streaming DataFrame that has no rows before `with_rows`. Nothing can be cached of it, or
    started as a query of Spark's own."""
    java = session._jsparkSession
    rows = session.sparkContext._jsc.emptyRDD().rdd()
    marked = java.parseDataType(_marked(schema, number).json())
    return DataFrame(java.internalCreateDataFrame(rows, marked, True), session)


def leaf_rows(session: SparkSession, schema: StructType, read: Read, partitions: int) -> JavaObject:
    """The rows that `read` yields, once in each of that many tasks.

    `read` is given one row, whose `id` is the number of its partition. It runs again for every job,
    and may then find other rows; within a job, Spark may run it again for the same partition, which
    must give the same rows.
    """
    numbers = session.range(0, partitions, 1, partitions)
    return numbers.mapInArrow(read, schema)._jdf.queryExecution().toRdd()


def with_rows(frame: DataFrame, rows: Callable[[int, StructType], JavaObject]) -> DataFrame:
    """The same DataFrame over leaves that have rows, by their number and schema."""
    session = frame.sparkSession
    assert session._jvm is not None
    plan = _with_rows(session, frame._jdf.queryExecution().analyzed(), rows)
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)


def _with_rows(
    session: SparkSession, plan: JavaObject, rows: Callable[[int, StructType], JavaObject]
) -> JavaObject:
    if not plan.isStreaming():
        return plan
    children = [
        _with_rows(session, plan.children().apply(n), rows) for n in range(plan.children().size())
    ]
    assert session._jvm is not None
    if children:
        return plan.withNewChildren(session._jvm.PythonUtils.toSeq(children))
    number = _number(plan)
    if number is None:
        return plan
    schema = StructType.fromJson(json.loads(plan.schema().json()))
    gateway = session.sparkContext._gateway
    assert gateway is not None
    # As Catalyst copies a node itself: with the fields of its class, one of them another.
    fields = gateway.new_array(session._jvm.java.lang.Object, plan.productArity())
    for place in range(plan.productArity()):
        is_rows = plan.productElementName(place) == "rdd"
        fields[place] = rows(number, schema) if is_rows else plan.productElement(place)
    return plan.makeCopy(fields)


def _marked(schema: StructType, number: int) -> StructType:
    first, *others = schema.fields
    metadata = (first.metadata or {}) | {LEAF: number}
    field = StructField(first.name, first.dataType, first.nullable, metadata)
    return StructType([field, *others])


def leaves_in(frame: DataFrame) -> list[int]:
    """The leaves that a DataFrame is made of. Raises InvalidInput for a stream of Spark's own."""
    plan = frame._jdf.queryExecution().analyzed()
    found: dict[int, None] = {}
    leaves = plan.collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if not leaf.isStreaming():
            continue
        number = _number(leaf)
        if number is None:
            raise InvalidInput(
                "a node reads a stream that is not the app's",
                hint="declare it with app.stream or app.table, or write it into a topic first",
            )
        found[number] = None
    return list(found)


def _number(leaf: JavaObject) -> int | None:
    metadata = leaf.output().head().metadata()
    return int(metadata.getLong(LEAF)) if metadata.contains(LEAF) else None


def run_fresh(session: SparkSession, df: DataFrame) -> JavaObject:
    """A batch QueryExecution of a DataFrame over leaves, with a physical plan of its own.

    Every job of its `toRdd()` reads the leaves again. What is broadcast, as a small static side of
    a join, is read once in a plan: hence one plan for every micro-batch.
    """
    assert session._jvm is not None
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset
    with _planning:  # Spark refuses streams as batches, unless a setting of the session allows it
        before = session.conf.get(_CHECK) or "true"
        session.conf.set(_CHECK, "false")
        try:
            batch = dataset.ofRows(session._jsparkSession, df._jdf.logicalPlan())
            execution = batch.queryExecution()
            execution.executedPlan()  # which is when it is checked
        finally:
            session.conf.set(_CHECK, before)
    return execution


def batch_frame(session: SparkSession, df: DataFrame) -> DataFrame:
    """A batch DataFrame of the same rows, planned anew, to collect, to write or to go on with."""
    rows = run_fresh(session, df).toRdd()
    frame = session._jsparkSession.internalCreateDataFrame(rows, df._jdf.schema(), False)
    return DataFrame(frame, session)


def check_stateless(df: DataFrame) -> None:
    """Raises InvalidInput where Spark would answer for the rows of each micro-batch alone.

    Static DataFrames, and what is joined to a stream of them, may be computed in any way.
    """
    plan = df._jdf.queryExecution().analyzed()
    _check_nodes(plan)
    assert df.sparkSession._jvm is not None
    sql = df.sparkSession._jvm.org.apache.spark.sql
    try:
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            plan, sql.streaming.OutputMode.Append()
        )
    except AnalysisException as refused:
        reason = str(refused).split(";")[0].strip()
        raise InvalidInput(
            f"Spark cannot do this with a stream: {reason}",
            hint="use penstock's operators, as ps.aggregate, or join a static DataFrame instead",
        ) from None


def _check_nodes(plan: JavaObject) -> None:
    if not plan.isStreaming():
        return
    name = plan.getClass().getSimpleName()
    children = [plan.children().apply(n) for n in range(plan.children().size())]
    if name in _GLOBAL:
        _refuse(*_GLOBAL[name])
    if name in _JOINS and all(child.isStreaming() for child in children):
        _refuse("a join of two streams", _JOIN)
    for child in children:
        _check_nodes(child)


def is_row_by_row(df: DataFrame) -> bool:
    """Whether the rows of a stream can be computed in any parts, with the same result: not where
    a function gets whole batches, or a value depends on chance or on a row's place."""
    plan = df._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and _are_row_by_row(plan)


def _are_row_by_row(plan: JavaObject) -> bool:
    if not plan.isStreaming():
        return True
    children = [plan.children().apply(n) for n in range(plan.children().size())]
    known = plan.getClass().getSimpleName() in _ROW_BY_ROW
    return known and all(map(_are_row_by_row, children))


def has_functions(df: DataFrame) -> bool:
    """Whether functions of a user are part of it, of which Spark knows only the names."""
    assert df.sparkSession._jvm is not None
    patterns = df.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    plan = df._jdf.queryExecution().analyzed()
    kinds = (patterns.PYTHON_UDF(), patterns.SCALA_UDF())
    return any(plan.containsPattern(each) for each in kinds)


def _refuse(what: str, hint: str) -> NoReturn:
    raise InvalidInput(f"{what} by Spark would see the rows of one micro-batch alone", hint=hint)
