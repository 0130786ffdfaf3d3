"""Tables joined on conditions of any kind, by operators that know equality alone."""

from collections.abc import Iterable, Sequence
from functools import reduce

from sqlglot import exp

from penstock.streams.sql.plan import (
    Col,
    Expr,
    Filter,
    Join,
    Plan,
    Project,
    Union,
    columns_in,
    distinct,
    narrowed,
    widened,
)
from penstock.streams.sql.scope import Context

Pair = tuple[Expr, Expr]


def conjuncts(condition: Expr | None) -> list[Expr]:
    """The conditions that all have to hold; what every branch of an OR demands is one of them."""
    if condition is None:
        return []
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return [each for side in (condition.left, condition.right) for each in conjuncts(side)]
    if isinstance(condition, exp.Or):
        return _of_either(condition)
    return [condition]


def _of_either(condition: exp.Or) -> list[Expr]:
    branches = [conjuncts(each) for each in condition.flatten()]
    common = [each for each in branches[0] if all(each in branch for branch in branches[1:])]
    if not common:
        return [condition]
    rest = [[each for each in branch if each not in common] for branch in branches]
    if not all(rest):  # one branch demands nothing more
        return common
    return [*common, either(all_of(branch) for branch in rest)]


def all_of(conditions: Iterable[Expr]) -> Expr:
    return reduce(lambda one, other: exp.and_(one, other, copy=False), conditions)


def either(conditions: Iterable[Expr]) -> Expr:
    return reduce(lambda one, other: exp.or_(one, other, copy=False), conditions)


def filtered(plan: Plan, conditions: Sequence[Expr]) -> Plan:
    return Filter(plan, all_of(conditions)) if conditions else plan


def covers(plan: Plan, condition: Expr) -> bool:
    return set(columns_in(condition)) <= set(plan.columns)


def pair_of(
    left: Plan, right: Plan, condition: Expr, kind: type[exp.Binary] = exp.EQ
) -> Pair | None:
    """The sides of an equality, that of `left` first, if each is of one table."""
    if not isinstance(condition, kind):
        return None
    sides = condition.left.unnest(), condition.right.unnest()
    if not all(any(True for _ in columns_in(side)) for side in sides):
        return None
    for one, other in (sides, sides[::-1]):
        if covers(left, one) and covers(right, other):
            return one, other
    return None


def inner_joined(context: Context, parts: Sequence[Plan], conditions: Sequence[Expr]) -> Plan:
    """All parts joined, in an order in which each has something to be found by, if there is one."""
    waiting = list(conditions)

    def ready(plan: Plan) -> Plan:
        now = [each for each in waiting if covers(plan, each) and any(columns_in(each))]
        waiting[:] = [each for each in waiting if each not in now]
        return filtered(plan, now)

    first, *rest = (ready(part) for part in parts)
    while rest:
        found = (part for part in rest if _pairs(first, part, waiting)[0])
        part = next(found, rest[0])
        rest.remove(part)
        pairs, others = _pairs(first, part, waiting)
        null_safe = not pairs
        if null_safe:
            pairs, others = _pairs(first, part, waiting, exp.NullSafeEQ)
        waiting[:] = others
        left, right, on = keyed(context, first, part, pairs)
        first = ready(Join(left, right, "inner", on, null_safe and bool(on)))
    return filtered(first, waiting)


def _pairs(
    left: Plan, right: Plan, conditions: Sequence[Expr], kind: type[exp.Binary] = exp.EQ
) -> tuple[list[Pair], list[Expr]]:
    pairs, others = [], []
    for condition in conditions:
        pair = pair_of(left, right, condition, kind)
        if pair is None:
            others.append(condition)
        else:
            pairs.append(pair)
    return pairs, others


def keyed(
    context: Context, left: Plan, right: Plan, pairs: Sequence[Pair]
) -> tuple[Plan, Plan, tuple[tuple[Col, Col], ...]]:
    """Both with a column for each side of each pair."""
    left, ours = _with_keys(context, left, [one for one, _ in pairs])
    right, theirs = _with_keys(context, right, [other for _, other in pairs])
    return left, right, tuple(zip(ours, theirs, strict=True))


def _with_keys(context: Context, plan: Plan, keys: Sequence[Expr]) -> tuple[Plan, list[Col]]:
    columns: list[Col] = []
    more: list[tuple[Col, Expr]] = []
    for key in keys:
        if isinstance(key, exp.Column):
            columns.append(Col(key.table, key.name))
        else:
            columns.append(Col(context.alias("key"), "value"))
            more.append((columns[-1], key))
    return widened(plan, *more), columns


def outer_joined(
    context: Context, left: Plan, right: Plan, how: str, conditions: Sequence[Expr]
) -> Plan:
    """`how` is left, right, full, semi or anti.

    A condition of one side alone decides whether that row can be found at all: it filters the
    side that is looked up, and makes the key of the side that stays null, which nothing equals.
    What compares the sides otherwise is asked of the inner join, and rows without a match are those
    that do not come out of it.
    """
    if how == "right":
        return outer_joined(context, right, left, "left", conditions)
    pairs, others = _pairs(left, right, conditions)
    of_left = [each for each in others if covers(left, each)]
    of_right = [each for each in others if covers(right, each) and each not in of_left]
    both = [each for each in others if each not in of_left and each not in of_right]
    if both:
        return _by_matches(context, left, right, how, conditions)
    if how != "full":
        right, of_right = filtered(right, of_right), []
    if how == "semi":
        left, of_left = filtered(left, of_left), []
    if not pairs:
        pairs = [(exp.Literal.number(1), exp.Literal.number(1))]
    (one, other), *more = pairs
    first = (_unless(one, of_left), _unless(other, of_right))
    left_columns, right_columns = left.columns, right.columns
    left, right, on = keyed(context, left, right, [first, *more])
    joined = Join(left, right, how, on)
    return narrowed(
        joined, left_columns if how in ("semi", "anti") else (*left_columns, *right_columns)
    )


def _unless(key: Expr, conditions: Sequence[Expr]) -> Expr:
    if not conditions:
        return key
    return exp.Case().when(all_of(each.copy() for each in conditions), key.copy())


def _by_matches(
    context: Context, left: Plan, right: Plan, how: str, conditions: Sequence[Expr]
) -> Plan:
    """Whether a row finds a match is said by the columns of it that are compared: those of all
    rows that found one are kept, and looked up."""
    matched = narrowed(
        inner_joined(context, [left, right], conditions), (*left.columns, *right.columns)
    )
    compared = {col for condition in conditions for col in columns_in(condition)}

    def among(kept: Plan, how: str) -> Plan:
        alias = context.alias("matched")
        columns = [col for col in kept.columns if col in compared]
        pairs = tuple((col, Col(alias, f"c{number}")) for number, col in enumerate(columns, 1))
        found = distinct(Project(matched, tuple((new, col.ref()) for col, new in pairs)))
        return Join(kept, found, how, pairs, null_safe=True)

    def alone(kept: Plan) -> Plan:
        outputs = ((col, col.ref() if col in kept.columns else exp.null()) for col in plan.columns)
        return Project(among(kept, "anti"), tuple(outputs))

    if how in ("semi", "anti"):
        return among(left, how)
    plan = matched
    for kept in (left, right) if how == "full" else (left,):
        plan = Union(plan, alone(kept), plan.columns)
    return plan
