"""Expressions that need no Spark: comparisons of columns and literals of one simple kind, and parts
of columns."""

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)
from sqlglot import exp

from penstock.streams.algebra.rows.selection import COLUMN, FIELD, LITERAL, Expression
from penstock.streams.spark.sql.names import physical
from penstock.streams.sql.plan import Col, Expr

_COMPARED: dict[type[Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_JOINED: dict[type[Expr], str] = {exp.And: "and", exp.Or: "or"}
_INTEGERS = (ByteType(), ShortType(), IntegerType(), LongType())
_LONG = range(-(2**63), 2**63)
_TEXT, _NUMBER, _FLAG = "text", "number", "flag"


class _NotSimple(Exception):
    """Spark has to say."""


def simple_column(node: Expr) -> Expression | None:
    """A column, or a field of one; None if only Spark knows it."""
    if isinstance(node, exp.Column):
        return [COLUMN, physical(Col(node.table, node.name))]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        inner = simple_column(node.this)
        return inner and [FIELD, inner, node.expression.name]
    return None


def simple(expression: Expr, schema: StructType) -> Expression | None:
    """The condition over columns named as `physical` says, or None if only Spark knows it."""
    try:
        return _condition(expression, schema)
    except (_NotSimple, RecursionError):
        return None


def _condition(node: Expr, schema: StructType) -> Expression:
    kind = type(node)
    if isinstance(node, exp.Paren):
        return _condition(node.this, schema)
    if isinstance(node, exp.Connector) and kind in _JOINED:
        return [_JOINED[kind], *(_condition(each, schema) for each in node.flatten())]
    if isinstance(node, exp.Not):
        return ["not", _condition(node.this, schema)]
    if kind in _COMPARED:
        return _compared(_COMPARED[kind], node.this, node.expression, schema)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = _compared(">=", node.this, node.args["low"], schema)
        return ["and", low, _compared("<=", node.this, node.args["high"], schema)]
    if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        return ["or", *(_compared("=", node.this, each, schema) for each in node.expressions)]
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return ["is null", _value(node.this, schema)[0]]
    value, of = _value(node, schema)
    if of != _FLAG:
        raise _NotSimple
    return value


def _compared(operator: str, one: Expr, other: Expr, schema: StructType) -> Expression:
    (left, kind), (right, same) = _value(one, schema), _value(other, schema)
    if kind != same:
        raise _NotSimple
    return [operator, left, right]


def _value(node: Expr, schema: StructType) -> tuple[Expression, object]:
    """A column or a literal, and what kind of values it is."""
    if isinstance(node, exp.Paren):
        return _value(node.this, schema)
    if isinstance(node, exp.Column):
        name = physical(Col(node.table, node.name))
        return [COLUMN, name], _kind(schema[name].dataType)
    if isinstance(node, exp.Boolean):
        return [LITERAL, bool(node.this)], _FLAG
    if isinstance(node, exp.Literal) and node.is_string:
        return [LITERAL, node.this], _TEXT
    number = node.this if isinstance(node, exp.Neg) else node
    if isinstance(number, exp.Literal) and number.this.isdecimal():
        value = int(number.this) * (-1 if isinstance(node, exp.Neg) else 1)
        if value in _LONG:
            return [LITERAL, value], _NUMBER
    raise _NotSimple


def _kind(of: DataType) -> object:
    if of in _INTEGERS:
        return _NUMBER
    if of == StringType():  # others are compared by the rules of a language
        return _TEXT
    if of == BooleanType():
        return _FLAG
    if of in (TimestampType(), DateType()):
        return of
    raise _NotSimple
