"""What is translated gives the rows, the nulls and the errors that Spark itself gives.

EXAMPLES says how many more tables and lists of expressions are tried.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody does
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.streams.algebra.rows.selection import Selection
from penstock.streams.spark.leaves import batch_frame, leaf_frame
from penstock.streams.spark.translation import translated
from tests.streams.spark.random_sql import ROWS, SCHEMA, expressions

EXAMPLES = int(os.environ.get("EXAMPLES", "1"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 60 * EXAMPLES)]

# The optimizer computes less than what is written, and other things than what is written, where
# only errors tell the difference: `x AND false` is false to it, whatever x is.
PLAIN = [
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in (
        "BooleanSimplification",
        "ConstantFolding",
        "ConvertToLocalRelation",
        "FoldablePropagation",
        "LikeSimplification",
        "NullPropagation",
        "OptimizeIn",
        "PushFoldableIntoBranches",
        "ReorderAssociativeOperator",
        "ReplaceNullWithFalseInPredicate",
        "SimplifyBinaryComparison",
        "SimplifyCasts",
        "SimplifyConditionals",
        "UnwrapCastInBinaryComparison",
    )
]


class Interpreter:
    """Spark's own evaluation of one row after the other, without a job for each."""

    def __init__(self, spark: SparkSession, plain: DataFrame) -> None:
        self._spark, self._plain = spark, plain

    def table(self, batch: pa.RecordBatch) -> DataFrame:
        return self._spark.createDataFrame(pa.Table.from_batches([batch]))

    def rows(self, batch: pa.RecordBatch) -> Any:
        return self.table(batch)._jdf.queryExecution().executedPlan().executeCollect()

    def computed(self, column: str, rows: Any) -> list[int]:
        """The places of the rows for which there is no error."""
        projections = self.projections(column)
        kept = []
        for place, row in enumerate(rows):
            try:
                reduce(lambda found, projection: projection.apply(found), projections, row)
                kept.append(place)
            except PySparkException as error:
                if error.getCondition() not in ERRORS:
                    raise
        return kept

    def projections(self, column: str) -> list[Any]:
        """From the leaf on: there are several where an expression is used twice."""
        assert self._spark._jvm is not None
        projection = self._spark._jvm.org.apache.spark.sql.catalyst.expressions
        plan = self._plain.selectExpr(column)._jdf.queryExecution().optimizedPlan()
        found = []
        while plan.children().size():
            below = plan.children().head()
            make = projection.InterpretedMutableProjection
            found.append(make(plan.projectList(), below.output()))
            plan = below
        return found[::-1]


@pytest.fixture(scope="module")
def leaf(spark: SparkSession) -> Iterator[DataFrame]:
    """Nobody reads it here; the same is done to it as to the table that Spark computes."""
    given = {
        "spark.sql.optimizer.excludedRules": ",".join(PLAIN),
        "spark.sql.subexpressionElimination.enabled": "false",
    }
    for name, value in given.items():
        spark.conf.set(name, value)
    yield leaf_frame(spark, 7, from_arrow_schema(SCHEMA))
    for name in given:
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def interpreter(spark: SparkSession, leaf: DataFrame) -> Interpreter:
    return Interpreter(spark, batch_frame(spark, leaf))


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n} | row for n, row in enumerate(rows)], SCHEMA)


def selected(frame: DataFrame) -> Selection:
    found = translated(frame)
    assert found is not None
    ((number, selection),) = found
    assert number == 7
    return Selection.from_spec(json.loads(json.dumps(selection.spec())))


def shown(values: list[Any]) -> list[str]:
    """NaN is itself here, and -0.0 is not 0.0."""
    return [repr(value) for value in values]


ERRORS = {
    "ARITHMETIC_OVERFLOW.WITHOUT_SUGGESTION",
    "ARITHMETIC_OVERFLOW.WITH_SUGGESTION",
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "DATETIME_OVERFLOW",
}


def differences(
    interpreter: Interpreter, leaf: DataFrame, batch: pa.RecordBatch, written: list[str]
) -> list[str]:
    """The expressions that are something else to Spark."""
    rows = interpreter.rows(batch)
    computed = [interpreter.computed(each, rows) for each in written]
    columns = [
        f"if(n in ({', '.join(map(str, [-1, *kept]))}), {each}, null) as c{place}"
        for place, (each, kept) in enumerate(zip(written, computed, strict=True))
    ]
    table = interpreter.table(batch).selectExpr(*columns).toArrow()
    wrong = []
    for each, kept, expected in zip(written, computed, table.columns, strict=True):
        found, refused = selected(leaf.selectExpr(f"{each} as c", "n")).checked(batch)
        values = expected.take(pa.array(kept, pa.int64())).to_pylist()
        same = (
            found.column("n").to_pylist() == kept
            and sorted([*kept, *(row for row, _ in refused)]) == list(range(batch.num_rows))
            and shown(found.column("c").to_pylist()) == shown(values)
            and str(found.column("c").type) == str(expected.type).replace(" not null", "")
        )
        if not same:
            wrong.append(f"{each}: {values} of {kept}, but {found.column('c')} and {refused}")
    return wrong


# What fails is not made smaller: with Spark that takes minutes, and the expression says enough.
@settings(
    max_examples=15 * EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(rows=ROWS, written=st.lists(expressions(), min_size=20, max_size=20))
def test_columns_are_those_of_spark(
    interpreter: Interpreter, leaf: DataFrame, rows: list[dict[str, Any]], written: list[str]
) -> None:
    assert differences(interpreter, leaf, batch_of(rows), written) == []


def doubled(name: str) -> Column:
    return F.col(name) * 2


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PIPELINES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as it is": lambda df: df,
    "filter": lambda df: df.filter("i > 0 and s is not null").filter(F.col("x") < 5),
    "columns": lambda df: df.select("s", "i", F.col("i").alias("k", metadata={"a": 1})),
    "swapped names": lambda df: df.select(F.col("s").alias("u"), F.col("u").alias("s")),
    "derived": lambda df: df.withColumn("z", F.length("s")).withColumn("z", doubled("z")),
    "used twice": lambda df: (
        df.withColumn("z", F.length("s"))
        .select(doubled("z").alias("two"), (F.col("z") + 1).alias("more"), "z", "b")
        .filter("two > 1 or b")
    ),
    "same name twice, on the way": lambda df: (
        df.select(F.length("s").alias("z"), F.length("u").alias("z2"))
        .toDF("z", "z2")
        .select(
            F.col("z").alias("k"), F.col("z2").alias("k2"), (F.col("z") + F.col("z")).alias("m")
        )
    ),
    "filter of a computed column": lambda df: (
        df.withColumn("z", F.upper("s")).filter("z like 'A%'").select("z", "n")
    ),
    "drop, rename, fill": lambda df: (
        df.drop("r", "e", "v").withColumnRenamed("i", "k").fillna({"k": 3, "s": "none", "x": 0.5})
    ),
    "dropna": lambda df: df.select("s", "x", "i").dropna(),
    "dropna of all": lambda df: df.select("s", "x", "f").dropna("all"),
    "alias": lambda df: df.alias("q").select("q.s", "q.r.p").filter("p > 0"),
    "hint": lambda df: df.hint("broadcast").select("n"),
    "window": lambda df: df.select(F.window("t", "10 minutes"), "n"),
    "bounds of a window": lambda df: df.select(
        F.window("t", "1 hour", "1 hour", "5 minutes").alias("w"), "n"
    ).select("w.*", "n"),
    "structs": lambda df: df.select(F.struct("i", "s").alias("k")).select("k.s", "k.i"),
    "literals": lambda df: df.select(F.lit(1).alias("a"), F.lit("x").alias("b"), F.lit(1.5), "n"),
    "when": lambda df: df.select(
        F.when(F.col("i") > 1, "more").when(F.col("i").isNull(), "none").otherwise(F.col("s"))
    ),
    "isin": lambda df: df.filter(F.col("s").isin("a", "ab") | ~F.col("j").isin(1, 2, 3)),
    "between": lambda df: df.filter(F.col("t").between(EPOCH, datetime(2030, 1, 1, tzinfo=UTC))),
    "union": lambda df: df.select("n", "s").union(df.select("n", "u")),
    "union of types": lambda df: df.select("n", "i").union(df.filter("n > 1").select("j", "n")),
    "above a union": lambda df: (
        df.select("n", "s").unionByName(df.select(F.col("u").alias("s"), "n")).filter("s > 'a'")
    ),
}
SAMPLE = batch_of(
    [
        {"i": 5, "j": 7, "s": "abc", "u": "x", "x": 1.5, "f": None, "b": True, "t": EPOCH},
        {"i": -5, "j": 1, "s": "ABC", "u": "a", "x": math.nan, "b": False, "t": None},
        {"i": None, "s": None, "u": "ß", "x": None, "f": 1.0, "r": {"p": 3, "q": "z"}},
        {"i": 2, "s": "a", "x": 7.0, "t": datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), "r": None},
    ]
)


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_give_the_rows_of_spark(
    interpreter: Interpreter, leaf: DataFrame, name: str
) -> None:
    pipeline = PIPELINES[name]
    parts = translated(pipeline(leaf))
    assert parts is not None
    found = pa.Table.from_batches([selection(SAMPLE) for _, selection in parts])
    expected = pipeline(interpreter.table(SAMPLE)).toArrow()
    assert found.schema.names == expected.schema.names
    assert shown(found.to_pylist()) == shown(expected.to_pylist())
    if name != "structs":
        kinds = [str(each).replace(" not null", "") for each in expected.schema.types]
        assert [str(each) for each in found.schema.types] == kinds


@pytest.mark.parametrize(
    "condition",
    [
        "i > 1 and 10 div (i - 5) > 0",
        "10 div (i - 5) > 0 and i > 1",
        "i > 1 and 10 div (n - 2) > 0",  # null, where the other is an error
        "not (i <= 1 or 10 div (n - 2) <= 0)",
        "10 div (n - 2) > 0 or i > 1",
        "i > 1 or 10 div (n - 2) > 0",
    ],
)
def test_filters_come_to_errors_as_in_spark(
    interpreter: Interpreter, leaf: DataFrame, condition: str
) -> None:
    kept, refused = [], []
    for row in range(SAMPLE.num_rows):
        table = interpreter.table(SAMPLE.slice(row, 1))
        try:
            kept += [row] if table.filter(condition).toArrow().num_rows else []
        except PySparkException:
            refused.append(row)
    found = selected(leaf.filter(condition)).checked(SAMPLE)
    assert found.rows.column("n").to_pylist() == kept
    assert [row for row, _ in found.refused] == refused


def test_steps_are_as_few_as_can_be(leaf: DataFrame) -> None:
    assert selected(leaf) == selected(leaf.select("*")) == Selection()
    assert selected(leaf.filter("i > 1")).steps == ([">", ["column", "i"], ["literal", 1, "int"]],)
    renamed = leaf.select(F.col("i").alias("k"), "s").filter("k > 1").select("s")
    assert selected(renamed).steps == (
        [">", ["column", "i"], ["literal", 1, "int"]],
        {"s": "s"},
    )
    window = leaf.select(F.window("t", "1 minute").alias("w"))
    assert selected(window).steps[-1] == {"w": ["tumbling", ["column", "t"], 60_000_000]}


def test_the_columns_of_a_view_are_those_of_the_leaf(spark: SparkSession, leaf: DataFrame) -> None:
    leaf.createOrReplaceTempView("given")
    frame = spark.sql("SELECT upper(g.s) AS name, i + 1 AS k FROM given g WHERE i BETWEEN 1 AND 4")
    assert selected(frame)(SAMPLE).to_pylist() == [{"name": "A", "k": 3}]


def test_rows_are_refused_where_spark_computes_them(leaf: DataFrame) -> None:
    """It computes no columns that nobody needs, and filters first."""
    inverse = leaf.withColumn("z", F.expr("10 div (i - 5)"))
    assert [row for row, _ in selected(inverse).checked(SAMPLE).refused] == [0]
    assert selected(inverse.select("n")).checked(SAMPLE).refused == []
    assert selected(inverse.filter("i < 5")).checked(SAMPLE).refused == []
    assert [row for row, _ in selected(inverse.filter("z < 5")).checked(SAMPLE).refused] == [0]


ONLY_SPARK: dict[str, Callable[[DataFrame], DataFrame]] = {
    "rand": lambda df: df.withColumn("z", F.rand()),
    "uuid": lambda df: df.withColumn("z", F.expr("uuid()")),
    "now": lambda df: df.filter(F.col("t") < F.current_timestamp()),
    "ids": lambda df: df.withColumn("z", F.monotonically_increasing_id()),
    "udf": lambda df: df.select(F.udf(lambda s: s)("s")),
    "map": lambda df: df.mapInArrow(lambda batches: batches, df.schema),
    "explode": lambda df: df.select(F.explode(F.array("i", "i2"))),
    "distinct": lambda df: df.distinct(),
    "aggregate": lambda df: df.groupBy("s").count(),
    "join": lambda df: df.join(df.sparkSession.range(3), F.col("id") == F.col("n")),
    "two columns of one name": lambda df: df.select("i", F.col("j").alias("i")),
    "sliding windows": lambda df: df.select(F.window("t", "10 minutes", "5 minutes")),
    "try_cast": lambda df: df.selectExpr("try_cast(s as int)"),
    "try_add": lambda df: df.selectExpr("try_add(i, i)"),
    "try_divide": lambda df: df.selectExpr("try_divide(i, i)"),
    "collation": lambda df: df.filter("s collate utf8_lcase = 'a'"),
    "escape": lambda df: df.filter("s like 'a!%' escape '!'"),
    "backslash": lambda df: df.filter(F.col("s").like("a\\%")),
    "pattern in a column": lambda df: df.filter("s like u"),
    "regular expression": lambda df: df.filter("s rlike 'a'"),
    "text of a double": lambda df: df.selectExpr("cast(x as string)"),
    "double of a text": lambda df: df.selectExpr("cast(s as double)"),
    "time of a text": lambda df: df.selectExpr("cast(s as timestamp)"),
    "decimal division": lambda df: df.selectExpr("e / e"),
    "decimal that may not fit": lambda df: df.selectExpr("cast(j as decimal(10, 2))"),
    "months": lambda df: df.selectExpr("t + interval 1 month"),
    "rounding": lambda df: df.selectExpr("round(x, 2)"),
    "arrays": lambda df: df.selectExpr("array(i, i2)[0]"),
    "no type": lambda df: df.select(F.lit(None)),
    "static": lambda df: df.sparkSession.range(3).toDF("k"),
}


@pytest.mark.parametrize("name", ONLY_SPARK)
def test_only_spark_knows_the_others(leaf: DataFrame, name: str) -> None:
    assert translated(ONLY_SPARK[name](leaf)) is None


def test_other_settings_are_for_spark(spark: SparkSession, leaf: DataFrame) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    legacy = leaf.selectExpr("i + 1")
    spark.conf.unset("spark.sql.ansi.enabled")
    assert translated(legacy) is None
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert translated(leaf.selectExpr("hour(t)")) is None
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_every_letter_has_the_case_that_spark_gives_it(interpreter: Interpreter) -> None:
    letters = [chr(each) for each in range(1, 0x110000) if not 0xD800 <= each < 0xE000]
    words = ["ΑΣ", "ΑΣ b", "ΑΣΑ", "a\u0301Σ", "Σ", "İSTANBUL", "Straße", "ΑΣ\u00adΩ", "i\u0307"]
    lines = [" ".join(letters[place : place + 256]) for place in range(0, len(letters), 256)]
    batch = pa.record_batch({"s": [*lines, *words]})
    expected = interpreter.table(batch).selectExpr("upper(s) as u", "lower(s) as l").toArrow()
    ours = Selection().chosen({"u": ["upper", ["column", "s"]], "l": ["lower", ["column", "s"]]})
    for found, spark in zip(ours(batch).columns, expected.columns, strict=True):
        assert found.to_pylist() == spark.to_pylist()
