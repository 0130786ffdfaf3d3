"""GROUP BY: what is asked of groups, in terms of the few aggregates that follow every change."""

from collections.abc import Sequence

from sqlglot import exp

from penstock.errors import InvalidSql
from penstock.streams.sql.parse import WINDOWS
from penstock.streams.sql.plan import (
    Aggregate,
    Call,
    Col,
    Expr,
    Order,
    Plan,
    Project,
    Span,
)
from penstock.streams.sql.scope import Context

# Functions that the parser does not know, under the name of one that it knows.
_SYNONYMS: dict[str, type[exp.Func]] = {
    "mean": exp.Avg,
    "std": exp.Stddev,
    "every": exp.LogicalAnd,
    "some": exp.LogicalOr,
}
_SIMPLE: dict[type[Expr], str] = {
    exp.Sum: "sum",
    exp.Avg: "mean",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "min",
    exp.LogicalOr: "max",
    exp.AnyValue: "min",  # any will do, and this one does not depend on the order of rows
    exp.Stddev: "stddev",
    exp.StddevSamp: "stddev",
}
_DUPLICATES_DO_NOT_MATTER = ("min", "max")


def is_aggregate(node: Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _SYNONYMS
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup)


def has_aggregate(expression: Expr) -> bool:
    return any(
        is_aggregate(node)
        for node in expression.walk(prune=lambda each: isinstance(each, exp.Query | exp.Window))
        if not isinstance(node, exp.Query | exp.Window)
    )


def is_window(node: Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in WINDOWS


class Grouping:
    """Rows of `plan` by `keys`: `rewritten` says what an expression is of the groups, and `plan`
    is there when all have been rewritten."""

    def __init__(self, context: Context, rows: Plan, keys: Sequence[Expr]) -> None:
        self._context = context
        self._rows = rows
        self._alias = context.alias("groups")
        self._computed: dict[Col, Expr] = {}
        self._calls: dict[Col, Call] = {}
        self._span: Span | None = None
        self._by: list[Col] = []
        self._keys: list[tuple[Expr, Col]] = []
        for key in keys:
            if is_window(key):
                self._windowed(key)
            elif all(key != known for known, _ in self._keys):
                column = self._column(key)
                self._by.append(column)
                self._keys.append((key, column))

    @property
    def plan(self) -> Aggregate:
        time = () if self._span is None else (self._span.time,)
        used = [col for call in self._calls.values() for col in call.columns]
        inputs = tuple(
            (col, self._computed.get(col, col.ref()))
            for col in dict.fromkeys([*time, *self._by, *used])
        )
        calls = tuple(self._calls.items())
        return Aggregate(Project(self._rows, inputs), tuple(self._by), calls, self._span)

    @property
    def counts(self) -> set[Col]:
        """Columns that are 0, and not null, of no rows."""
        return {col for col, call in self._calls.items() if call.function in ("count", "distinct")}

    def rewritten(self, expression: Expr) -> Expr:
        """Raises InvalidSql for a column that is neither a key nor asked about."""

        def visit(node: Expr) -> Expr:
            if isinstance(node, exp.Query):
                return node.copy()
            for key, column in self._keys:
                if node == key:
                    return column.ref()
            if isinstance(node, exp.Window):
                return node
            return self._answer(node, None) if is_aggregate(node) else node

        found = expression.copy().transform(visit, copy=False)
        known = {*self._by, *self._calls, *([self._span.column] if self._span else ())}
        for column in found.find_all(exp.Column):
            if Col(column.table, column.name) not in known and not column.find_ancestor(exp.Query):
                raise self._context.source.refusal(
                    f"{column.name!r} has several values in a group",
                    column,
                    "name it in GROUP BY, or say which one: min, max, max_by, array_agg",
                )
        return found

    def _windowed(self, call: Expr) -> None:
        time, *rest = call.expressions
        sizes = [duration(each) for each in rest]
        session = call.name.lower() == "session_window"
        if None in sizes or not 1 <= len(sizes) <= (1 if session else 2) or self._span:
            raise self._context.source.refusal(
                "this is no window over time",
                call,
                "window(at, '10 minutes'), window(at, '10 minutes', '5 minutes') with the step, "
                "or session_window(at, '5 minutes'), once",
                *WINDOWS,
            )
        column = Col(self._alias, "window")
        size, step = (*sizes, None)[:2]
        assert size is not None
        self._span = Span(column, self._column(time), size, step, session)
        self._keys.append((call, column))

    def _column(self, value: Expr) -> Col:
        if isinstance(value, exp.Column):
            return Col(value.table, value.name)
        for column, known in self._computed.items():
            if known == value:
                return column
        column = Col(self._alias, f"c{len(self._computed) + 1}")
        self._computed[column] = value
        return column

    def _call(self, function: str, value: Expr | None, order: tuple[Order, ...] = ()) -> Expr:
        call = Call(function, None if value is None else self._column(value), order)
        for column, known in self._calls.items():
            if known == call:
                return column.ref()
        column = Col(self._alias, f"{function}{len(self._calls) + 1}")
        self._calls[column] = call
        return column.ref()

    def _answer(self, node: Expr, condition: Expr | None) -> Expr:
        if isinstance(node, exp.Filter):
            return self._answer(node.this, node.expression.this)
        if isinstance(node, exp.Anonymous):
            node = _SYNONYMS[node.name.lower()](this=node.expressions[0])
        argument = node.this
        if isinstance(node, exp.Count):
            return self._count(node, condition)
        if isinstance(node, exp.CountIf):
            return self._call("count", _only_if(exp.Literal.number(1), argument, condition))
        if isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg):
            return self._collected(node, condition)
        if isinstance(node, exp.ArgMax | exp.ArgMin):
            return self._at_extreme(node, condition)
        if isinstance(node, exp.StddevPop | exp.Variance | exp.VariancePop):
            return self._spread(node, condition)
        function = _SIMPLE.get(type(node))
        if function is None:
            raise self._unknown(node)
        if isinstance(argument, exp.Distinct):
            if function not in _DUPLICATES_DO_NOT_MATTER:
                raise self._context.source.refusal(
                    f"{function} of different values is not known",
                    node,
                    f"{function} over (SELECT DISTINCT ...)",
                    "DISTINCT",
                )
            argument = argument.expressions[0]
        return self._call(function, _only_if(argument, condition))

    def _count(self, node: exp.Count, condition: Expr | None) -> Expr:
        argument = node.this
        if isinstance(argument, exp.Distinct):
            values = argument.expressions
            value = values[0]
            if len(values) > 1:
                value = _only_if(_struct(values), *map(_there, values))
            return self._call("distinct", _only_if(value, condition))
        values = [argument, *node.expressions]
        if all(isinstance(each, exp.Star | exp.Literal) for each in values):
            if condition is None:
                return self._call("count", None)
            return self._call("count", _only_if(exp.Literal.number(1), condition))
        if len(values) > 1:
            return self._call(
                "count", _only_if(exp.Literal.number(1), condition, *map(_there, values))
            )
        return self._call("count", _only_if(argument, condition))

    def _collected(self, node: Expr, condition: Expr | None) -> Expr:
        argument, order = node.this, []
        function = "collect_set" if isinstance(node, exp.ArrayUniqueAgg) else "collect"
        if isinstance(argument, exp.Order):
            order = argument.expressions
            argument = argument.this
        if isinstance(argument, exp.Distinct):
            function = "collect_set"
            argument = argument.expressions[0]
            if any(each.this != argument for each in order):
                raise self._context.source.refusal(
                    "different values are ordered by themselves", node, "ORDER BY the same"
                )
        by = tuple(
            Order(self._column(each.this), bool(each.args.get("desc")), nulls_first(each))
            for each in order
        )
        return self._call(function, _only_if(argument, condition), by)

    def _at_extreme(self, node: Expr, condition: Expr | None) -> Expr:
        pair = _struct([node.expression, node.this])
        value = _only_if(pair, condition, _there(node.expression))
        found = self._call("max" if isinstance(node, exp.ArgMax) else "min", value)
        return exp.Dot(this=found, expression=exp.to_identifier("f2"))

    def _spread(self, node: Expr, condition: Expr | None) -> Expr:
        value = _only_if(node.this, condition)
        sample = self._call("stddev", value)
        square = exp.Mul(this=sample, expression=sample.copy())
        if isinstance(node, exp.Variance):
            return exp.paren(square)
        count = self._call("count", value)
        share = exp.Div(
            this=exp.paren(exp.Sub(this=count, expression=exp.Literal.number(1))),
            expression=count.copy(),
        )
        of_all = exp.Case().when(
            exp.EQ(this=count.copy(), expression=exp.Literal.number(1)),
            exp.cast(exp.Literal.number(0), "double"),
        )
        of_all = of_all.else_(exp.Mul(this=square, expression=exp.paren(share)))
        return of_all if isinstance(node, exp.VariancePop) else exp.Sqrt(this=of_all)

    def _unknown(self, node: Expr) -> InvalidSql:
        name = node.sql_name().lower() if isinstance(node, exp.Func) else node.key
        if isinstance(node, exp.First | exp.Last | exp.FirstValue | exp.LastValue):
            return self._context.source.refusal(
                f"which row comes {name} is not said by what the table has",
                node,
                "min_by(value, at) or max_by(value, at)",
                rf"{name}(_value)?",
            )
        return self._context.source.refusal(
            f"{name} does not follow rows that go",
            node,
            "count, sum, avg, min, max, min_by, max_by, count_if, bool_and, bool_or, stddev, "
            "variance, array_agg and count(DISTINCT ...) do; so does ps.aggregate(...) with "
            "ps.quantile, in a node that the view reads",
            name,
        )


def _there(value: Expr) -> Expr:
    return exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))


def _only_if(value: Expr, *conditions: Expr | None) -> Expr:
    asked = [each.copy() for each in conditions if each is not None]
    return exp.Case().when(exp.and_(*asked), value.copy()) if asked else value


def _struct(values: Sequence[Expr]) -> Expr:
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(f"f{number}"), expression=value.copy())
        for number, value in enumerate(values, 1)
    ]
    return exp.Struct(expressions=fields)


def nulls_first(ordered: Expr) -> bool:
    """The parser fills in Spark's rule: nulls are the lowest."""
    return bool(ordered.args.get("nulls_first"))


def duration(value: Expr) -> str | None:
    if isinstance(value, exp.Literal) and value.is_string:
        return value.name.lower().removeprefix("interval ")
    if isinstance(value, exp.Interval) and value.unit is not None:
        return f"{value.this.name} {value.unit.name.lower()}"
    return None
