"""What an expression can say: a column, a literal, or an operator and what it is about.

    ["column", name]    ["literal", value]    ["literal", value, type]    ["field", e, name]
    ["=" | "<>" | "<" | "<=" | ">" | ">=" | "<=>", e, e]    ["in", e, e, ...]
    ["and" | "or", e, ...]    ["not" | "is null" | "is nan", e]
    ["case", condition, e, ..., otherwise]    ["coalesce" | "greatest" | "least", e, ...]
    ["+" | "-" | "*" | "/" | "div" | "%" | "pmod", e, e]    ["negate" | "abs", e]
    ["cast", e, type]    ["struct", ["literal", name], e, ...]
    ["concat", e, ...]    ["upper" | "lower" | "length", e]    ["substring", e, from, length]
    ["trim" | "ltrim" | "rtrim", e, characters]
    ["starts with" | "ends with" | "contains" | "like", e, text]
    ["year" | "month" | "day" | "hour" | "minute" | "second", e]    ["truncate", e, unit]
    ["shift", e, microseconds]    ["micros" | "from micros", e]
    ["tumbling", e, microseconds]    ["tumbling", e, microseconds, offset]

Types have Spark's names. A literal without a type is what JSON says; a typed one is null, the days
or microseconds since 1970, the text of a decimal or of a float that JSON does not know, or itself.
"""

from collections.abc import Iterator
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

Expression = list[Any]
COLUMN, LITERAL, FIELD, STRUCT, TUMBLING = "column", "literal", "field", "struct", "tumbling"
BATCH_TIME = "batch time"  # at which the batch of the rows was planned

batch_time: ContextVar[int] = ContextVar("batch_time")
"""In microseconds, set by the task that evaluates."""

TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {kind: name for name, kind in TYPES.items()}
_INFIX = {
    *("=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or"),
    *("+", "-", "*", "/", "div", "%"),
}
# Of these only the first is an expression; the others are parameters.
_WITH_PARAMETERS = {
    *(FIELD, TUMBLING, "cast", "substring", "trim", "ltrim", "rtrim", "truncate", "shift"),
    *("starts with", "ends with", "contains", "like"),
}


def operands_of(expression: Expression) -> list[Expression]:
    operator, *about = expression
    if operator in (COLUMN, LITERAL):
        return []
    return about[:1] if operator in _WITH_PARAMETERS else about


def columns_of(expression: Expression) -> Iterator[str]:
    if expression[0] == COLUMN:
        yield expression[1]
    for each in operands_of(expression):
        yield from columns_of(each)


def type_named(name: str) -> pa.DataType:
    """Of Spark's name, which for a decimal holds its precision and scale."""
    if name.startswith("decimal"):
        precision, scale = name[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return TYPES[name]


def name_of(kind: pa.DataType) -> str:
    return _NAMES.get(kind, str(kind))


def literal(about: list[Any]) -> pa.Scalar:
    return _scalar(type(about[0]).__name__, *about)


@lru_cache(10_000)
def _scalar(_: str, value: Any, name: str | None = None) -> pa.Scalar:
    """By the type of the value too, as Python takes True for 1."""
    if name is None:
        return pa.scalar(value)
    kind = type_named(name)
    if isinstance(value, str) and pa.types.is_floating(kind):
        value = float(value)
    if isinstance(value, str) and pa.types.is_decimal(kind):
        value = Decimal(value)
    return pa.scalar(value, kind)


def text_of(expression: Expression) -> str:
    """As a person would write it in SQL, more or less."""
    operator, *about = expression
    if operator == COLUMN:
        return str(about[0])
    if operator == LITERAL:
        return _literal_text(about)
    if operator == FIELD:
        return f"{_inner(about[0])}.{about[1]}"
    if operator in _INFIX:
        return f" {operator} ".join(_inner(each) for each in about)
    if operator == "cast":
        return f"cast({text_of(about[0])} as {about[1]})"
    if operator == "negate":
        return f"-{_inner(about[0])}"
    inner = [text_of(each) for each in operands_of(expression)]
    more = about[1:] if operator in _WITH_PARAMETERS else []
    return f"{operator.replace(' ', '_')}({', '.join([*inner, *map(repr, more)])})"


def _inner(expression: Expression) -> str:
    text = text_of(expression)
    return f"({text})" if expression[0] in _INFIX else text


def _literal_text(about: list[Any]) -> str:
    value = about[0]
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and about[1:] in ([], ["string"]):
        return f"'{value}'"
    if about[1:] and about[1] in ("date", "timestamp", "timestamp_ntz"):
        return f"{about[1]} '{literal(about)}'"
    return str(value)
