"""Plans and queries answered by DuckDB: the one says what the other has to be."""

from typing import Any

import duckdb
import sqlglot
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
    Top,
    Union,
    Windows,
)

Rows = list[tuple[Any, ...]]


def translated(sql: str) -> str:
    """A query in Spark's dialect as DuckDB takes it."""
    tree = sqlglot.parse_one(sql, read=ViewDialect)
    for array in list(tree.find_all(exp.ArrayAgg)):  # without nulls, as Spark has it
        value = array.this
        while isinstance(value, exp.Order | exp.Distinct):
            value = value.expressions[0] if isinstance(value, exp.Distinct) else value.this
        star = isinstance(value, exp.Column) and value.is_star
        if star:
            value.replace(exp.column(value.table))  # a table's name is its row
        elif not isinstance(array.parent, exp.Filter):
            there = exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))
            filtered = exp.Filter(this=array.copy(), expression=exp.Where(this=there))
            array.replace(exp.Coalesce(this=filtered, expressions=[exp.Array(expressions=[])]))
    for array in list(tree.find_all(exp.ArrayAgg)):
        array.set("nulls_excluded", None)
    return tree.sql("duckdb", identify=True)


def rows_of(db: duckdb.DuckDBPyConnection, sql: str) -> Rows:
    return db.execute(sql).fetchall()


def plan_sql(plan: Plan) -> str:
    match plan:
        case Scan():
            columns = [f'"{n}" AS {_q(c)}' for n, c in zip(plan.names, plan.columns, strict=True)]
            return f'SELECT {", ".join(columns) or "1 AS nothing"} FROM "{plan.table}"'
        case Filter():
            return f"SELECT * FROM ({plan_sql(plan.input)}) WHERE {_text(plan.condition)}"
        case Project():
            outputs = ", ".join(f"{_text(value)} AS {_q(col)}" for col, value in plan.outputs)
            return f"SELECT {outputs or '1 AS nothing'} FROM ({plan_sql(plan.input)})"
        case Join():
            return _join(plan)
        case Aggregate():
            return _aggregate(plan)
        case Windows():
            size, step = (f"INTERVAL '{each}'" for each in (plan.span.size, plan.span.step))
            time = _q(plan.span.time)
            if plan.span.step is None:
                step = size
            starts = (
                f"generate_series(time_bucket({step}, {time} - {size}) + {step}, {time}, {step})"
            )
            rows = f"SELECT *, unnest({starts}) AS start FROM ({plan_sql(plan.input)})"
            window = f"{{'start': start, 'end': start + {size}}} AS {_q(plan.span.column)}"
            return f"SELECT * EXCLUDE (start), {window} FROM ({rows})"
        case Union():
            return _both(plan, "UNION ALL")
        case SetOperation():
            return _both(plan, f"{plan.kind}{' ALL' if plan.every else ''}")
        case Top():
            return _top(plan)


def _q(column: Col) -> str:
    return f'"{column}"'


def _text(expression: Expr) -> str:
    def visit(node: Expr) -> Expr:
        if isinstance(node, exp.Column):
            return exp.column(exp.to_identifier(str(Col(node.table, node.name)), quoted=True))
        return node

    return expression.copy().transform(visit).sql("duckdb")


def _join(plan: Join) -> str:
    left, right = (plan_sql(side) for side in plan.inputs)
    if not plan.on:
        assert plan.how == "inner"
        return f"SELECT {_names(plan)} FROM ({left}) AS l CROSS JOIN ({right}) AS r"
    sign = "IS NOT DISTINCT FROM" if plan.null_safe else "="
    on = " AND ".join(f"l.{_q(one)} {sign} r.{_q(other)}" for one, other in plan.on)
    return f"SELECT {_names(plan)} FROM ({left}) AS l {plan.how} JOIN ({right}) AS r ON {on}"


def _names(plan: Plan) -> str:
    return ", ".join(_q(each) for each in plan.columns) or "1 AS nothing"


def _aggregate(plan: Aggregate) -> str:
    rows, by = plan_sql(plan.input), [_q(each) for each in plan.by]
    if plan.span is not None:
        assert not plan.span.session
        size = f"INTERVAL '{plan.span.size}'"
        assert plan.span.step is None
        start = f"time_bucket({size}, {_q(plan.span.time)})"
        window = f"{{'start': {start}, 'end': {start} + {size}}} AS {_q(plan.span.column)}"
        there = f"{_q(plan.span.time)} IS NOT NULL"
        rows = f"SELECT {window}, * FROM ({rows}) WHERE {there}"
        by.insert(0, _q(plan.span.column))
    calls = [f"{_call(call)} AS {_q(column)}" for column, call in plan.calls]
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    return f"SELECT {', '.join([*by, *calls]) or '1 AS nothing'} FROM ({rows}){grouped}"


def _call(call: Call) -> str:
    if call.column is None:
        return "count(*)"
    column = _q(call.column)
    if call.function in ("collect", "collect_set"):
        which = "DISTINCT " if call.function == "collect_set" else ""
        order = ", ".join([*map(_order, call.order), *([] if which and call.order else [column])])
        return f"coalesce(list({which}{column} ORDER BY {order}) FILTER ({column} IS NOT NULL), [])"
    names = {"mean": "avg", "stddev": "stddev_samp"}
    if call.function == "distinct":
        return f"count(DISTINCT {column})"
    return f"{names.get(call.function, call.function)}({column})"


def _order(order: Order) -> str:
    way = "DESC" if order.descending else "ASC"
    return f"{_q(order.column)} {way} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def _both(plan: Union | SetOperation, word: str) -> str:
    left, right = (f"SELECT {_names(side)} FROM ({plan_sql(side)})" for side in plan.inputs)
    names = ", ".join(_q(each) for each in plan.columns) or "nothing"
    return f"SELECT * FROM ({left} {word} {right}) AS t({names})"


def _top(plan: Top) -> str:
    by = f"PARTITION BY {', '.join(map(_q, plan.by))} " if plan.by else ""
    over = f"OVER ({by}ORDER BY {', '.join(map(_order, plan.order))})"
    rank = '"(rank)"' if plan.rank is None else _q(plan.rank)
    rows = f"SELECT *, row_number() {over} AS {rank} FROM ({plan_sql(plan.input)})"
    last = plan.skip + (plan.limit or 0)
    return f"SELECT {_names(plan)} FROM ({rows}) WHERE {rank} > {plan.skip} AND {rank} <= {last}"
