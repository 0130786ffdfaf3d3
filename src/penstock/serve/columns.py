"""The columns of a view in SQLite: how each type is kept there, and how it is read again.

Numbers are numbers and text is text. What SQLite has no type for is kept as text that sorts as it
should: times as 2026-01-31T10:00:00.000000Z, dates as 2026-01-31; decimals are their digits, and
arrays, maps and structs are JSON. SQLite has no NaN: it is the text "NaN" among the numbers, which
comes after all of them, as in Spark's order.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

Form = Literal[
    "integer", "real", "text", "bytes", "boolean", "time", "local time", "date", "decimal", "json"
]

_NAN = "NaN"
_SQL_TYPES: dict[Form, str] = {
    "integer": "INTEGER",
    "real": "REAL",
    "bytes": "BLOB",
    "boolean": "INTEGER",
}
_WRITTEN: dict[Form, str] = {
    "integer": ", from -2^63 up to 2^63 - 1",
    "boolean": ": true or false",
    "time": ", as 2026-01-31T10:00:00Z",
    "local time": ", as 2026-01-31T10:00:00",
    "date": ", as 2026-01-31",
    "bytes": ", in base64",
}


class Column(NamedTuple):
    """`type` is Spark's name of its type, `form` how it is kept."""

    name: str
    type: str
    form: Form

    @property
    def sql_type(self) -> str:
        return _SQL_TYPES.get(self.form, "TEXT")


def columns_of(schema: "pa.Schema") -> tuple[Column, ...]:
    from penstock.events.schema import type_text

    return tuple(Column(each.name, type_text(each.type), _form(each.type)) for each in schema)


def _form(kind: "pa.DataType") -> Form:
    import pyarrow as pa

    checks: list[tuple[Callable[[pa.DataType], bool], Form]] = [
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "real"),
        (pa.types.is_string, "text"),
        (pa.types.is_binary, "bytes"),
        (pa.types.is_date, "date"),
        (pa.types.is_decimal, "decimal"),
    ]
    if pa.types.is_timestamp(kind):
        return "local time" if kind.tz is None else "time"
    return next((form for check, form in checks if check(kind)), "json")


def sql_values(column: "pa.Array", form: Form) -> list[Any]:
    """The values as SQLite takes them, made by the whole column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match form:
        case "boolean":
            column = column.cast(pa.int8())
        case "time":
            column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
        case "local time":
            column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%S")
        case "date" | "decimal":
            column = column.cast(pa.string())
        case "json":
            column = _json_texts(column)
        case "real" if pc.any(pc.is_nan(column)).as_py():
            nans = pc.fill_null(pc.is_nan(column), False).to_pylist()
            numbers = column.to_pylist()
            return [_NAN if is_nan else n for n, is_nan in zip(numbers, nans, strict=True)]
        case _:
            pass
    values: list[Any] = column.to_pylist()
    return values


def _json_texts(column: "pa.Array") -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.events.formats import format_for

    alone = pa.RecordBatch.from_arrays([column], names=["v"])
    objects = format_for("json", alone.schema).encode(alone)
    texts = pc.binary_slice(objects, len('{"v":'), -1).cast(pa.string())
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def python_value(value: Any, form: Form) -> Any:
    """What SQLite gave, as Python has it. Inside arrays, maps and structs, all is as in JSON."""
    if value is None:
        return None
    match form:
        case "boolean":
            return bool(value)
        case "time" | "local time":
            return datetime.fromisoformat(value)
        case "date":
            return date.fromisoformat(value)
        case "decimal":
            return Decimal(value)
        case "json":
            return json.loads(value)
        case "real":
            return float(value)
        case _:
            return value


def json_value(value: Any, form: Form) -> Any:
    """What SQLite gave, as it stands in JSON."""
    if value is None:
        return None
    match form:
        case "boolean":
            return bool(value)
        case "json":
            return json.loads(value)
        case "bytes":
            return b64encode(value).decode()
        case "real" if value == _NAN or math.isnan(value):
            return _NAN
        case "real" if math.isinf(value):  # which JSON has no number for
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


def asked_value(text: str, column: Column) -> Any:
    """A value that somebody wrote as it stands in JSON, as SQLite has it. Raises InvalidInput."""
    try:
        match column.form:
            case "integer":
                return _long(text)
            case "real" | "decimal":
                number = float(text)
                return _NAN if math.isnan(number) else number
            case "boolean":
                return {"true": 1, "false": 0}[text.lower()]
            case "time" | "local time":
                return time_text(datetime.fromisoformat(text), column.form)
            case "date":
                return date.fromisoformat(text).isoformat()
            case "bytes":
                return b64decode(text, validate=True)
            case _:
                return text
    except (ValueError, KeyError, OverflowError):
        raise InvalidInput(
            f"{text!r} is not a value of column {column.name!r}",
            hint=f"it is of type {column.type}{_WRITTEN.get(column.form, '')}",
        ) from None


def _long(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:  # which SQLite has no integers beyond
        raise OverflowError
    return number


def time_text(moment: datetime, form: Form = "time") -> str:
    """As times are kept; one without a zone is meant in UTC."""
    if form == "local time":
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
