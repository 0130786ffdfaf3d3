"""Values made to fit a type exactly, or refused with the reason.

A value is what a JSON text holds: None, a bool, a Number (as it is written), a str, a list, a
dict. What comes out is what Arrow takes for the type.
"""

import binascii
import math
import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidSchema
from penstock.events.compiled import Bytes, frozen, kernel
from penstock.events.compiled import Number as Place
from penstock.events.formats.instants import (
    EARLIEST,
    LATEST,
    NO_DAYS,
    NO_INSTANT,
    ZONED,
    days,
    instant,
)
from penstock.events.schema import type_text

Fit = Callable[[Any], Any]

_INTEGER = re.compile(r"-?[0-9]+")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_FLOAT32_LIMIT = 3.4028235677973366e38  # from here on it would be infinite
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MILLIS = range(EARLIEST // 1000, LATEST // 1000 + 1)
_SHOWN = 40


class Number(str):
    """A number as it was written."""


class Misfit(ValueError):
    """A value does not fit; `path` says which part of it, as in `address.street` or `tags[2]`."""

    def __init__(self, detail: str, path: str = "") -> None:
        super().__init__(f"{path}: {detail}" if path else detail)
        self.detail = detail
        self.path = path


def fit_for(kind: pa.DataType) -> Fit:
    """What makes values other than None fit the type; it raises Misfit."""
    if pa.types.is_integer(kind):
        return _fit_integer(kind)
    if pa.types.is_floating(kind):
        return _fit_real(kind)
    if pa.types.is_timestamp(kind):
        return _fit_instant(kind)
    if pa.types.is_decimal(kind):
        return _fit_decimal(kind)
    if pa.types.is_list(kind):
        return _fit_list(kind)
    if pa.types.is_map(kind):
        return _fit_map(kind)
    if pa.types.is_struct(kind):
        return _fit_struct(kind)
    plain: dict[pa.DataType, Fit] = {
        pa.bool_(): _boolean,
        pa.string(): _string,
        pa.binary(): _binary,
        pa.date32(): _date,
    }
    if kind not in plain:
        raise InvalidSchema(f"no column can be of Arrow's type {kind}")
    return plain[kind]


def fit_row(schema: pa.Schema) -> Callable[[Iterable[Any]], list[Any]]:
    """What makes the values of a row, one for each column, fit the schema."""
    fits = [(field.name, fit_field(field)) for field in schema]

    def fit(row: Iterable[Any]) -> list[Any]:
        return [_inside(name, fit, value) for (name, fit), value in zip(fits, row, strict=True)]

    return fit


def fit_field(field: pa.Field) -> Fit:
    """As fit_for, for values that may be None."""
    fit, nullable = fit_for(field.type), field.nullable

    def convert(value: Any) -> Any:
        if value is not None:
            return fit(value)
        if not nullable:
            raise Misfit("is missing or null, where the schema says NOT NULL")
        return None

    return convert


def _wrong(value: Any, kind: pa.DataType) -> Misfit:
    match value:
        case bool():
            shown = str(value).lower()
        case Number():
            shown = str(value)
        case str():
            shown = f'"{value}"'
        case list():
            shown = "an array"
        case _:
            shown = "an object"
    if len(shown) > _SHOWN:
        shown = shown[: _SHOWN - 1] + "…"
    return Misfit(f"{shown} is not {type_text(kind)}")


def _fit_integer(kind: pa.DataType) -> Fit:
    bound = 2 ** (kind.bit_width - 1)

    def fit(value: Any) -> int:
        if not isinstance(value, Number) or not _INTEGER.fullmatch(value):
            raise _wrong(value, kind)
        if len(value) > 20 or not -bound <= (number := int(value)) < bound:
            raise Misfit(f"{value[:_SHOWN]} is out of the range of {type_text(kind)}")
        return number

    return fit


def _fit_real(kind: pa.DataType) -> Fit:
    limit = math.inf if kind.bit_width == 64 else _FLOAT32_LIMIT

    def fit(value: Any) -> float:
        if isinstance(value, str) and value in _SPECIAL:  # JSON has no numbers for these
            return _SPECIAL[value]
        if not isinstance(value, Number):
            raise _wrong(value, kind)
        number = float(value)
        if abs(number) >= limit:
            raise Misfit(f"{value[:_SHOWN]} is out of the range of {type_text(kind)}")
        return number

    return fit


def _fit_decimal(kind: pa.DataType) -> Fit:
    context = Context(prec=kind.precision, traps=[InvalidOperation, Inexact])
    unit = Decimal(1).scaleb(-kind.scale)

    def fit(value: Any) -> Decimal:
        if not isinstance(value, str) or not NUMBER.fullmatch(value):
            raise _wrong(value, kind)
        try:
            return Decimal(value).quantize(unit, context=context)
        except (InvalidOperation, Inexact):
            raise Misfit(f"{value[:_SHOWN]} does not fit {type_text(kind)}") from None

    return fit


@kernel
def _instant(source: Bytes, end: Place) -> tuple[int, Place]:
    return instant(source, 0, end)


@kernel
def _days(source: Bytes, end: Place) -> Place:
    return days(source, 0, end)


def _bytes_of(value: str) -> Bytes:
    return frozen(np.frombuffer(value.encode(errors="replace") or b" ", np.uint8))


def _fit_instant(kind: pa.DataType) -> Fit:
    def fit(value: Any) -> int:
        if isinstance(value, Number):
            if not _INTEGER.fullmatch(value):
                raise _wrong(value, kind)
            if len(value) > 20 or int(value) not in _MILLIS:
                raise Misfit(f"{value[:_SHOWN]} is no time in milliseconds, years 1 to 9999")
            return int(value) * 1000
        if not isinstance(value, str):
            raise _wrong(value, kind)
        source = _bytes_of(value)
        found, micros = _instant(source, len(source))
        if found == NO_INSTANT:
            raise _wrong(value, kind)
        if found == ZONED and kind.tz is None:
            raise Misfit(f'"{value}" has an offset, which {type_text(kind)} has not')
        return int(micros)

    return fit


def _date(value: Any) -> int:
    if isinstance(value, str) and not isinstance(value, Number):
        source = _bytes_of(value)
        number = int(_days(source, len(source)))
        if number != NO_DAYS:
            return number
    raise _wrong(value, pa.date32())


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, pa.bool_())
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, Number):
        raise _wrong(value, pa.string())
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("half of a surrogate pair is no character") from None
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or isinstance(value, Number):
        raise _wrong(value, pa.binary())
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Misfit("the text is not base64") from None


def _fit_list(kind: pa.DataType) -> Fit:
    fit_one = fit_field(kind.value_field)

    def fit(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(value, kind)
        return [_inside(f"[{place}]", fit_one, one) for place, one in enumerate(value)]

    return fit


def _fit_map(kind: pa.DataType) -> Fit:
    fit_key, fit_item = fit_for(kind.key_type), fit_field(kind.item_field)
    if not pa.types.is_string(kind.key_type):
        raise InvalidSchema(
            f"{type_text(kind)} has no form in JSON, where keys are strings",
            hint="map<string, …>, or an array of structs",
        )

    def fit(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise _wrong(value, kind)
        return [(fit_key(key), _inside(f"[{key!r}]", fit_item, one)) for key, one in value.items()]

    return fit


def _fit_struct(kind: pa.DataType) -> Fit:
    fits = [(field.name, fit_field(field)) for field in kind]

    def fit(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, kind)
        return {name: _inside(f".{name}", fit_one, value.get(name)) for name, fit_one in fits}

    return fit


def _inside(step: str, fit: Fit, value: Any) -> Any:
    try:
        return fit(value)
    except Misfit as misfit:
        raise Misfit(misfit.detail, step + misfit.path) from None
