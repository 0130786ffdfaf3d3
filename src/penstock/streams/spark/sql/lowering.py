"""Operators of a plan as DataFrames."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr, lit
from pyspark.sql.types import DataType, IntegralType, StructType

from penstock.streams.algebra.aggregates.functions import count
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.algebra.keyed.distinct import DistinctKernel
from penstock.streams.algebra.rows.selection import Choice
from penstock.streams.spark.feeds import still_fed, without_weight
from penstock.streams.spark.joins import table_join
from penstock.streams.spark.operators import ANY_TIME, run, schema_of
from penstock.streams.spark.origin import quoted
from penstock.streams.spark.place import QueryPlace
from penstock.streams.spark.sql.aggregation import aggregated, with_windows
from penstock.streams.spark.sql.conditions import simple, simple_column
from penstock.streams.spark.sql.names import own_weight, physical, text_of, weight
from penstock.streams.spark.tops import top
from penstock.streams.sql.plan import (
    Aggregate,
    Expr,
    Filter,
    Join,
    Plan,
    Project,
    Scan,
    SetOperation,
    Top,
    Union,
    Windows,
)
from penstock.streams.sql.views import View

_LEFT, _RIGHT = "sides__left", "sides__right"


class Lowering:
    """Over these inputs; every operator is made anew wherever it stands in the plan, as a
    DataFrame that is used twice would take its steps twice. `operators` says what their state is
    called in the place of a stream."""

    def __init__(self, frames: Mapping[str, DataFrame], place: QueryPlace | None) -> None:
        self._frames = frames
        self._place = place
        self._before = set(place.operators) if place else set()
        self.operators: dict[Plan, tuple[str, ...]] = {}

    def view(self, view: View) -> DataFrame:
        frame = self.frame(view.plan)
        return frame.select(*(quoted(name) for name in view.names), weight(frame))

    def frame(self, plan: Plan, *, timed: bool = False) -> DataFrame:
        """Of columns named as `physical` says; with `timed`, event times are still marked."""
        frame = self._lowered(plan, timed)
        there = self._place.operators if self._place else ()
        made = [each for each in there if each not in self._before]
        if made:  # those of its inputs are known already
            self._before.update(made)
            self.operators[plan] = (*self.operators.get(plan, ()), *made)
        return frame

    def _lowered(self, plan: Plan, timed: bool) -> DataFrame:
        match plan:
            case Scan():
                return self._scan(plan, timed)
            case Filter():
                frame = self.frame(plan.input, timed=timed)
                return _filtered(frame, plan.condition)
            case Project():
                return self._project(plan, timed)
            case Join():
                return self._join(plan)
            case Aggregate() if not plan.calls and plan.span is None and plan.by:
                return _distinct(self.frame(plan.input), [physical(each) for each in plan.by])
            case Aggregate():
                return self._aggregate(plan)
            case Windows():
                return with_windows(self.frame(plan.input), plan.span, physical(plan.span.time))
            case Union():
                left, right = (self._side(side) for side in plan.inputs)
                return left.union(right).toDF(*map(physical, plan.columns), WEIGHT)
            case SetOperation():
                return self._set_operation(plan)
            case Top():
                return self._top(plan)

    def _scan(self, plan: Scan, timed: bool) -> DataFrame:
        frame = self._frames[plan.table]
        unmarked: dict[str, Any] = {} if timed else {"metadata": {}}
        columns = [
            col(quoted(name)).alias(physical(column), **unmarked)
            for name, column in zip(plan.names, plan.columns, strict=True)
        ]
        chosen = frame.select(*columns, *own_weight(frame))
        names = {physical(each): name for name, each in zip(plan.names, plan.columns, strict=True)}
        return still_fed(chosen, frame, _with_weight(names, frame))

    def _project(self, plan: Project, timed: bool) -> DataFrame:
        frame = self.frame(plan.input, timed=timed)
        columns = [expr(text_of(value)).alias(physical(column)) for column, value in plan.outputs]
        chosen = frame.select(*columns, *own_weight(frame))
        simple = {physical(new): simple_column(old) for new, old in plan.outputs}
        known = {new: old for new, old in simple.items() if old is not None}
        if len(known) < len(simple):  # only Spark can compute the others
            return chosen
        return still_fed(chosen, frame, _with_weight(known, frame))

    def _join(self, plan: Join) -> DataFrame:
        # A stream of which no column is needed would be rows of nothing, which Arrow cannot count.
        left, right = (
            self.frame(side) if side.columns else self._side(side) for side in plan.inputs
        )
        on = [(physical(one), physical(other)) for one, other in plan.on]
        joined = table_join(*_comparable(left, right, on), plan.how, null_safe=plan.null_safe)
        return still_fed(joined.select(*map(physical, plan.columns), *own_weight(joined)), joined)

    def _aggregate(self, plan: Aggregate) -> DataFrame:
        return aggregated(self.frame(plan.input, timed=plan.span is not None), plan)

    def _side(self, plan: Plan) -> DataFrame:
        frame = self.frame(plan)
        return frame.select(*map(physical, plan.columns), weight(frame))

    def _set_operation(self, plan: SetOperation) -> DataFrame:
        names = [physical(each) for each in plan.columns]
        here, nowhere = lit(1), lit(None).cast("int")
        sides = [self._side(side).toDF(*names, WEIGHT) for side in plan.inputs]
        left = sides[0].withColumns({_LEFT: here, _RIGHT: nowhere})
        right = sides[1].withColumns({_LEFT: nowhere, _RIGHT: here})
        both = left.union(right)
        counts = {side: count(side) for side in (_LEFT, _RIGHT)}
        counted = run(both, AggregateKernel(names, counts, schema_of(both)), None, ANY_TIME)
        if plan.every:
            times = {
                "except": f"greatest({_LEFT} - {_RIGHT}, 0)",
                "intersect": f"least({_LEFT}, {_RIGHT})",
            }[plan.kind]
            weighed = counted.withColumn(WEIGHT, expr(f"cast({WEIGHT} * {times} as int)"))
            return weighed.where(f"{WEIGHT} != 0").select(*names, WEIGHT)
        there = {"except": f"{_RIGHT} = 0", "intersect": f"{_RIGHT} > 0"}[plan.kind]
        return counted.where(f"{_LEFT} > 0 and {there}").select(*names, WEIGHT)

    def _top(self, plan: Top) -> DataFrame:
        assert plan.limit is not None
        order = [(physical(each.column), each.descending, each.nulls_first) for each in plan.order]
        by = [physical(each) for each in plan.by]
        rank = None if plan.rank is None else physical(plan.rank)
        first = top(self.frame(plan.input), by, order, plan.limit, skip=plan.skip, rank=rank)
        return still_fed(first.select(*map(physical, plan.columns), WEIGHT), first)


def _distinct(frame: DataFrame, by: list[str]) -> DataFrame:
    schema = schema_of(frame)
    if WEIGHT in schema.names:
        return run(frame, AggregateKernel(by, {}, schema), None, ANY_TIME)
    return without_weight(run(frame, DistinctKernel(by, schema), None, ANY_TIME))


def _filtered(frame: DataFrame, condition: Expr) -> DataFrame:
    rows = frame.where(text_of(condition))
    known = simple(condition, frame.schema)
    return rows if known is None else still_fed(rows, frame, where=known)


def _with_weight(columns: Choice, frame: DataFrame) -> Choice:
    return {**columns, **{name: name for name in own_weight(frame)}}


def _are_compared_as_they_are(one: DataType, other: DataType) -> bool:
    return one == other or all(isinstance(each, IntegralType) for each in (one, other))


def _comparable(
    left: DataFrame, right: DataFrame, on: Sequence[tuple[str, str]]
) -> tuple[DataFrame, DataFrame, list[tuple[str, str]]]:
    """Both with keys of the types that Spark would compare them in."""
    found: list[tuple[str, str]] = []
    for one, other in on:
        kinds = StructType().add("a", left.schema[one].dataType)
        kinds = kinds.add("b", right.schema[other].dataType)
        if not _are_compared_as_they_are(*(each.dataType for each in kinds)):
            sample = left.sparkSession.createDataFrame([], kinds)
            common = sample.select(expr("coalesce(a, b)").alias("c")).schema["c"].dataType
            pair = f"left_key__{len(found)}", f"right_key__{len(found)}"
            left = left.withColumn(pair[0], col(one).cast(common))
            right = right.withColumn(pair[1], col(other).cast(common))
            one, other = pair
        found.append((one, other))
    return left, right, found
