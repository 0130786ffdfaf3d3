"""Queries inside of conditions and values, as joins."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlglot import exp

from penstock.streams.sql.joining import conjuncts, covers, filtered, inner_joined, outer_joined
from penstock.streams.sql.joining import pair_of as pair
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
)
from penstock.streams.sql.scope import Scope

# Null wherever a part of them is.
_STRICT = (exp.Paren, exp.Neg, exp.Mul, exp.Add, exp.Sub, exp.Div)


class Selected(NamedTuple):
    """The rows that a query has, before its outputs are all that is left of them.

    `outer` are conditions that compare them with a row of the query around, `counts` columns that
    are 0 where there is no row, and `single` says that there is one row at most for each such row.
    """

    plan: Plan
    outputs: list[tuple[str, Expr]]
    outer: list[Expr]
    counts: frozenset[Col] = frozenset()
    single: bool = False
    always: bool = False


SelectRows = Callable[[exp.Query, Scope], Selected]


class Asking:
    """Conditions and values of a query in `scope`, of which parts are queries themselves."""

    def __init__(self, scope: Scope, select_rows: SelectRows) -> None:
        self._scope = scope
        self._context = scope.context
        self._select_rows = select_rows

    def where(self, plan: Plan, condition: Expr) -> Plan:
        """The rows of which it is true."""
        asked, negated = condition, False
        while isinstance(asked, exp.Not | exp.Paren):
            negated ^= isinstance(asked, exp.Not)
            asked = asked.this
        if isinstance(asked, exp.Exists):
            found = self._found(asked.this, plan)
            if found.single and found.outer:
                raise self._always_true(asked)
            how = "anti" if negated else "semi"
            return outer_joined(self._context, plan, found.plan, how, found.outer)
        if isinstance(asked, exp.In) and asked.args.get("query"):
            found = self._found(asked.args["query"], plan)
            if negated:
                return self._not_in(plan, asked, found)
            equal = [exp.EQ(this=one, expression=other) for one, other in _sides(asked, found)]
            return outer_joined(self._context, plan, found.plan, "semi", [*found.outer, *equal])
        plan, condition = self._answered(plan, condition, dropping=True)
        return filtered(plan, conjuncts(condition))

    def value(self, plan: Plan, expression: Expr) -> tuple[Plan, Expr]:
        """The plan with what it takes, and the expression over that; of all rows."""
        return self._answered(plan, expression, dropping=False)

    def _answered(self, plan: Plan, expression: Expr, *, dropping: bool) -> tuple[Plan, Expr]:
        """When `dropping`, without some rows of which it is not true."""
        inner = _topmost(expression)
        for node in inner:
            if isinstance(node, exp.Exists):
                plan, value = self._exists(plan, node)
            elif isinstance(node, exp.In):
                plan, value = self._is_in(plan, node)
            else:
                comparing = dropping and _is_compared(node, expression)
                plan, value = self._scalar(plan, node, comparing=comparing)
            if node is expression:
                return plan, value
            node.replace(value)
        return plan, expression

    def _found(self, query: Expr, plan: Plan) -> Selected:
        query = query.unnest()
        assert isinstance(query, exp.Query)
        inner = Scope(self._context, parent=self._scope, common=self._scope.common)
        found = self._select_rows(query, inner)
        for condition in found.outer:
            known = {*plan.columns, *found.plan.columns}
            if not set(columns_in(condition)) <= known:
                raise self._context.source.refusal(
                    "a query can use columns of the one right around it alone",
                    condition,
                    "join the tables there, so that the column is in between",
                )
        return found

    def _not_in(self, plan: Plan, node: exp.In, found: Selected) -> Plan:
        """Nothing is in what has a null, and null is not in what is empty alone."""
        sides = _sides(node, found)
        if len(sides) > 1 or (found.single and found.outer):
            raise self._context.source.refusal(
                "NOT IN is known of one column, of rows",
                node,
                "write NOT EXISTS with equalities",
                r"NOT\s+IN",
                "IN",
            )
        ((one, other),) = sides
        equal = exp.EQ(this=one, expression=other)
        known = filtered(plan, [] if _never_null(plan, one) else [exp.Not(this=_is_null(one))])
        known = outer_joined(self._context, known, found.plan, "anti", [*found.outer, equal])
        if not _never_null(found.plan, other):
            nulls = filtered(found.plan, [_is_null(other)])
            known = outer_joined(self._context, known, nulls, "anti", found.outer)
        if _never_null(plan, one):
            return known
        unknown = outer_joined(
            self._context, Filter(plan, _is_null(one)), found.plan, "anti", found.outer
        )
        return Union(known, unknown, plan.columns)

    def _exists(self, plan: Plan, node: exp.Exists) -> tuple[Plan, Expr]:
        found = self._found(node.this, plan)
        if found.single and found.outer:
            raise self._always_true(node)
        return self._marked(plan, found.plan, found.outer, node)

    def _is_in(self, plan: Plan, node: exp.In) -> tuple[Plan, Expr]:
        found = self._found(node.args["query"], plan)
        sides = _sides(node, found)
        if len(sides) > 1 or found.single:
            raise self._context.source.refusal(
                "IN as a part of a condition is known of one column, of rows",
                node,
                "write EXISTS with equalities",
                "IN",
            )
        ((one, other),) = sides
        equal = exp.EQ(this=one, expression=other)
        plan, hit = self._marked(plan, found.plan, [*found.outer, equal], node)
        plan, any_row = self._marked(plan, found.plan, found.outer, node)
        nulls = filtered(found.plan, [_is_null(other)])
        plan, any_null = self._marked(plan, nulls, found.outer, node)
        unknown = exp.or_(any_null, exp.and_(_is_null(one), any_row))
        answer = exp.Case().when(hit, exp.true()).when(unknown, exp.null())
        return plan, answer.else_(exp.false())

    def _marked(
        self, plan: Plan, rows: Plan, conditions: Sequence[Expr], node: Expr
    ) -> tuple[Plan, Expr]:
        """Whether any of the rows fits: the plan with a column for it, and what to ask of that."""
        pairs = [pair(plan, rows, condition) for condition in conditions]
        if not all(pairs):
            raise self._context.source.refusal(
                "as a part of a condition or a value, a query is found by equality alone",
                node,
                "let it be a condition of its own in WHERE, with AND",
                "EXISTS",
                "IN",
            )
        alias = self._context.alias("mark")
        known = [(each[1], each[0]) for each in pairs if each is not None]
        if not known:
            known = [(exp.Literal.number(1), exp.Literal.number(1))]
        columns = [Col(alias, f"c{number}") for number in range(1, len(known) + 1)]
        keys = tuple(zip(columns, (inner for inner, _ in known), strict=True))
        marks = distinct(Project(rows, keys))
        equal = [
            exp.EQ(this=outer, expression=column.ref())
            for column, (_, outer) in zip(columns, known, strict=True)
        ]
        if not conditions:
            joined = outer_joined(self._context, plan, marks, "left", [])
        else:
            joined = outer_joined(self._context, plan, marks, "left", equal)
        return joined, exp.Not(this=_is_null(columns[0].ref()))

    def _scalar(self, plan: Plan, node: Expr, *, comparing: bool) -> tuple[Plan, Expr]:
        found = self._found(node, plan)
        if len(found.outputs) != 1 or not found.single:
            raise self._context.source.refusal(
                "a value has to be one, and this query can have several rows or columns",
                node,
                "ask for one: SELECT max(...) FROM ..., or ORDER BY ... LIMIT 1; or write a JOIN",
            )
        ((_, value),) = found.outputs
        if not found.outer:
            column = Col(self._context.alias("value"), "value")
            one = Project(found.plan, ((column, value),))
            if found.always:
                return Join(plan, one, "inner", ()), column.ref()
            return outer_joined(self._context, plan, one, "left", []), column.ref()
        pairs = [pair(plan, found.plan, condition) for condition in found.outer]
        assert all(pairs)  # as the rows are grouped by what they are compared in
        counts = found.counts & set(columns_in(value))
        # Null is neither less nor more than anything, and of no rows this is null.
        if comparing and not counts and _is_strict(value):
            joined = inner_joined(self._context, [plan, found.plan], found.outer)
            return joined, exp.paren(value) if isinstance(node.parent, _STRICT) else value
        joined = outer_joined(self._context, plan, found.plan, "left", found.outer)

        def counted(each: Expr) -> Expr:
            if isinstance(each, exp.Column) and Col(each.table, each.name) in counts:
                return exp.Coalesce(this=each.copy(), expressions=[exp.Literal.number(0)])
            return each

        return joined, exp.paren(value.copy().transform(counted))

    def _always_true(self, node: Expr) -> Exception:
        return self._context.source.refusal(
            "an aggregate of no rows is a row as well, so this is always true",
            node,
            "leave the aggregate out, or compare its value",
            "EXISTS",
        )


def _topmost(expression: Expr) -> list[Expr]:
    """EXISTS, IN and values, where there is no other around."""

    def is_asking(node: Expr) -> bool:
        in_query = isinstance(node, exp.In) and bool(node.args.get("query"))
        return in_query or isinstance(node, exp.Exists | exp.Query)

    return [node for node in expression.walk(prune=is_asking) if is_asking(node)]


def _is_compared(node: Expr, expression: Expr) -> bool:
    """Whether the whole expression is a comparison with this value, which null never passes."""
    if not isinstance(expression, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return False
    parent = node.parent
    while parent is not None and parent is not expression:
        if not isinstance(parent, _STRICT):
            return False
        parent = parent.parent
    return parent is expression


def _is_strict(value: Expr) -> bool:
    """Whether it is null if its columns are."""
    if isinstance(value, exp.Cast):
        return _is_strict(value.this)
    if isinstance(value, _STRICT):
        return all(_is_strict(each) for each in value.iter_expressions())
    return isinstance(value, exp.Column | exp.Literal)


def _sides(node: exp.In, found: Selected) -> list[tuple[Expr, Expr]]:
    mine = node.this.unnest()
    values = mine.expressions if isinstance(mine, exp.Tuple) else [mine]
    return list(zip(values, (value for _, value in found.outputs), strict=True))


def _is_null(value: Expr) -> Expr:
    return exp.Is(this=value.copy(), expression=exp.null())


def _never_null(plan: Plan, value: Expr) -> bool:
    """Whether a condition on the way says so."""
    while isinstance(plan, Filter | Project):
        if isinstance(plan, Filter):
            there = exp.Not(this=_is_null(value))
            if any(each == there for each in conjuncts(plan.condition)):
                return True
        elif not covers(plan.input, value):
            return False
        plan = plan.input
    return False
