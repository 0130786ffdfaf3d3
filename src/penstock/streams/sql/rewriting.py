"""A plan made anew: with other inputs, and without columns that nobody asks for."""

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from penstock.streams.sql.plan import (
    Aggregate,
    Col,
    Expr,
    Filter,
    Join,
    Order,
    Plan,
    Project,
    Scan,
    SetOperation,
    Top,
    Union,
    Windows,
    columns_in,
)


def rebuilt(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """The same operator over inputs that were changed."""
    if isinstance(plan, Scan):
        return plan
    if isinstance(plan, Join | Union | SetOperation):
        return replace(plan, left=change(plan.left), right=change(plan.right))
    return replace(plan, input=change(plan.input))


def pruned(plan: Plan, needed: set[Col]) -> Plan:
    """With the columns alone that are needed above or on the way; these stay in their order.

    Completes the order of each Top: rows that are equal in all that is left of them are the same.
    """
    match plan:
        case Scan():
            return replace(plan, names=tuple(col.name for col in plan.columns if col in needed))
        case Filter():
            below = needed | set(columns_in(plan.condition))
            return Filter(pruned(plan.input, below), plan.condition)
        case Project():
            outputs = tuple(each for each in plan.outputs if each[0] in needed)
            below = {col for _, value in outputs for col in columns_in(value)}
            return _projected(pruned(plan.input, below), outputs)
        case Join():
            keys = {col for pair in plan.on for col in pair}
            return replace(
                plan,
                left=pruned(plan.left, (needed | keys) & set(plan.left.columns)),
                right=pruned(plan.right, (needed | keys) & set(plan.right.columns)),
            )
        case Aggregate():
            return _aggregate(plan, needed)
        case Windows():
            below = (needed - {plan.span.column}) | {plan.span.time}
            return replace(plan, input=pruned(plan.input, below))
        case Union():
            return _union(plan, needed)
        case SetOperation():
            left, right = (pruned(side, set(side.columns)) for side in plan.inputs)
            return replace(plan, left=left, right=right)
        case Top():
            return _top(plan, needed)


def _projected(rows: Plan, outputs: tuple[tuple[Col, Expr], ...]) -> Plan:
    """A projection of another is one, if either only passes columns on."""
    if isinstance(rows, Project) and (_is_plain(rows.outputs) or _is_plain(outputs)):
        inner = dict(rows.outputs)

        def visit(each: Expr) -> Expr:
            if isinstance(each, exp.Column):
                return inner[Col(each.table, each.name)].copy()
            return each

        merged = tuple((column, value.copy().transform(visit)) for column, value in outputs)
        return _projected(rows.input, merged)
    same = all(value == column.ref() for column, value in outputs)
    if same and tuple(column for column, _ in outputs) == rows.columns:
        return rows
    return Project(rows, outputs)


def _is_plain(outputs: tuple[tuple[Col, Expr], ...]) -> bool:
    """Whether each is a column, none of them twice."""
    found = [Col(value.table, value.name) for _, value in outputs if isinstance(value, exp.Column)]
    return len(set(found)) == len(outputs)


def _aggregate(plan: Aggregate, needed: set[Col]) -> Plan:
    calls = tuple(each for each in plan.calls if each[0] in needed)
    below = {*plan.by, *(col for _, call in calls for col in call.columns)}
    if plan.span is not None:
        below.add(plan.span.time)
    return replace(plan, input=pruned(plan.input, below), calls=calls)


def _union(plan: Union, needed: set[Col]) -> Plan:
    places = [number for number, col in enumerate(plan.columns) if col in needed]
    sides = []
    for side in plan.inputs:
        columns = tuple(side.columns[number] for number in places)
        passed = tuple((col, col.ref()) for col in columns)
        sides.append(_projected(pruned(side, set(columns)), passed))
    return Union(sides[0], sides[1], tuple(plan.columns[number] for number in places))


def _top(plan: Top, needed: set[Col]) -> Plan:
    asked = {*plan.by, *(each.column for each in plan.order)}
    # Rows of no columns could not be counted.
    wanted = (needed | asked) & set(plan.input.columns) or set(plan.input.columns[:1])
    rows = pruned(plan.input, wanted)
    rest = tuple(Order(col, False, True) for col in rows.columns if col not in asked)
    by = set(plan.by)
    order = tuple(each for each in plan.order if each.column not in by)
    rank = plan.rank if plan.rank in needed else None
    return replace(plan, input=rows, order=(*order, *rest), rank=rank)
