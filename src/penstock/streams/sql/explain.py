"""A plan as a picture in text."""

from collections.abc import Callable, Iterator

from sqlglot import exp

from penstock.streams.sql.parse import ViewDialect
from penstock.streams.sql.plan import (
    Aggregate,
    Call,
    Col,
    Expr,
    Filter,
    Join,
    Order,
    Plan,
    Project,
    Scan,
    SetOperation,
    Span,
    Top,
    Union,
    Windows,
)


def picture(plan: Plan, about: Callable[[Plan], str] = lambda plan: "") -> str:
    """A line for each operator, its inputs below it; `about` adds to a line what else is known."""
    return "\n".join(_lines(plan, about))


def _lines(plan: Plan, about: Callable[[Plan], str]) -> Iterator[str]:
    more = about(plan)
    yield f"{_line(plan)}  [{more}]" if more else _line(plan)
    *before, last = plan.inputs or (None,)
    for each in before:
        if each is not None:
            yield from _indented(_lines(each, about), "├─ ", "│  ")
    if last is not None:
        yield from _indented(_lines(last, about), "└─ ", "   ")


def _indented(lines: Iterator[str], first: str, rest: str) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{rest if number else first}{line}"


def _line(plan: Plan) -> str:
    match plan:
        case Scan():
            name = (
                plan.table if plan.table.lower() == plan.alias else f"{plan.table} as {plan.alias}"
            )
            return f"scan {name}: {', '.join(plan.names) or 'no columns'}"
        case Filter():
            return f"filter {written(plan.condition)}"
        case Project():
            return f"project {', '.join(_output(*each) for each in plan.outputs) or 'nothing'}"
        case Join():
            sign = "<=>" if plan.null_safe else "="
            on = " and ".join(f"{one} {sign} {other}" for one, other in plan.on)
            return f"{plan.how} join on {on}" if on else f"{plan.how} join of all with all"
        case Aggregate():
            return _aggregate(plan)
        case Windows():
            return f"{_windows(plan.span)}"
        case Union():
            return f"union all: {_names(plan.columns)}"
        case SetOperation():
            return f"{plan.kind}{' all' if plan.every else ''}: {_names(plan.columns)}"
        case Top():
            by = f" of each {_names(plan.by)}" if plan.by else ""
            rank = f", numbered {plan.rank}" if plan.rank else ""
            after = f" after {plan.skip}" if plan.skip else ""
            return f"first {plan.limit}{after}{by} by {', '.join(map(_order, plan.order))}{rank}"


def _aggregate(plan: Aggregate) -> str:
    if not plan.calls and plan.span is None and plan.by:
        return f"distinct {_names(plan.by)}"
    calls = ", ".join(f"{column} = {_call(call)}" for column, call in plan.calls)
    by = list(map(str, plan.by))
    if plan.span is not None:
        by.insert(0, _windows(plan.span))
    return f"aggregate{' by ' + ', '.join(by) if by else ' all'}{': ' + calls if calls else ''}"


def _windows(span: Span) -> str:
    kind = "sessions" if span.session else "windows"
    step = f" every {span.step}" if span.step else ""
    return f"{kind} of {span.size}{step} of {span.time} as {span.column}"


def _call(call: Call) -> str:
    order = f" by {', '.join(map(_order, call.order))}" if call.order else ""
    return f"{call.function}({'*' if call.column is None else call.column}{order})"


def _order(order: Order) -> str:
    nulls = ""
    if order.nulls_first == order.descending:  # else nulls are the lowest, as always
        nulls = " nulls first" if order.nulls_first else " nulls last"
    return f"{order.column}{' desc' if order.descending else ''}{nulls}"


def _output(column: Col, value: Expr) -> str:
    text = written(value)
    return text if text == str(column) else f"{column} = {text}"


def _names(columns: tuple[Col, ...]) -> str:
    return ", ".join(map(str, columns))


def written(expression: Expr) -> str:
    """As text, without quotes around plain names."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, exp.Identifier) and node.name.isidentifier():
            return exp.to_identifier(node.name, quoted=False)
        return node

    return expression.copy().transform(visit).sql(ViewDialect)
