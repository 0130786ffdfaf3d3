"""The first rows of each group: how many there are, and taken where they are few."""

from dataclasses import replace

from sqlglot import exp

from penstock.streams.sql.joining import conjuncts, filtered
from penstock.streams.sql.plan import Col, Expr, Filter, Join, Order, Plan, Project, Top
from penstock.streams.sql.rewriting import rebuilt

_TURNED: dict[type[Expr], type[Expr]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ}


def bounded(plan: Plan) -> Plan:
    """Numbers of rows that are compared with a number are limits."""
    plan = rebuilt(plan, bounded)
    if not isinstance(plan, Filter):
        return plan
    rows, kept = plan.input, []
    for condition in conjuncts(plan.condition):
        bound = _bound(condition)
        limited = bound and _limited(rows, *bound)
        if limited:
            rows = limited
        if not limited or isinstance(condition, exp.EQ):
            kept.append(condition)
    return filtered(rows, kept)


def _bound(condition: Expr) -> tuple[Col, int] | None:
    """The column that is at most so much."""
    left, right = condition.args.get("this"), condition.args.get("expression")
    kind = type(condition)
    if isinstance(left, exp.Literal):
        left, right, turned = right, left, _TURNED.get(kind)
        if turned is None:
            return None
        kind = turned
    number = isinstance(right, exp.Literal) and right.name.isdigit()
    if not isinstance(left, exp.Column) or not number or kind not in (exp.LTE, exp.LT, exp.EQ):
        return None
    assert right is not None
    return Col(left.table, left.name), int(right.name) - (kind is exp.LT)


def _limited(plan: Plan, rank: Col, limit: int) -> Plan | None:
    if isinstance(plan, Top) and plan.rank == rank and limit > 0:
        return replace(plan, limit=limit if plan.limit is None else min(limit, plan.limit))
    if isinstance(plan, Filter):
        inner = _limited(plan.input, rank, limit)
    elif isinstance(plan, Project) and (below := _through(plan, rank)):
        inner = _limited(plan.input, below, limit)
    else:  # not through another Top: a limit before it would change what it numbers
        return None
    return inner and replace(plan, input=inner)


def _through(plan: Project, column: Col) -> Col | None:
    """The column that a projection passes on under this name."""
    value = dict(plan.outputs).get(column)
    return Col(value.table, value.name) if isinstance(value, exp.Column) else None


def early(plan: Plan) -> Plan:
    """The first rows of a join, ordered by one side alone, are among the first ones that each key
    has on that side: so that nobody follows all rows of a key that has millions."""
    plan = rebuilt(plan, early)
    if not isinstance(plan, Top) or plan.limit is None or not plan.order:
        return plan
    found = _pushed(plan.input, plan.by, plan.order, plan.skip + plan.limit)
    return plan if found is None else replace(plan, input=found)


def _pushed(plan: Plan, by: tuple[Col, ...], order: tuple[Order, ...], limit: int) -> Plan | None:
    if isinstance(plan, Project):
        below = {col: _through(plan, col) for col in (*by, *(each.column for each in order))}
        if None in below.values():
            return None
        inner = _pushed(
            plan.input,
            tuple(below[col] or col for col in by),
            tuple(each._replace(column=below[each.column] or each.column) for each in order),
            limit,
        )
        return inner and replace(plan, input=inner)
    if not isinstance(plan, Join) or plan.how != "inner" or not plan.on or plan.null_safe:
        return None
    for name in ("left", "right"):
        side, other = (plan.left, plan.right) if name == "left" else (plan.right, plan.left)
        keys = tuple(pair[name == "right"] for pair in plan.on)
        ordered = all(each.column in side.columns for each in order)
        if ordered and all(col in other.columns or col in keys for col in by):
            return replace(plan, **{name: Top(side, keys, order, limit)})  # type: ignore[arg-type]
    return None
