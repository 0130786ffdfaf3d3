"""Literals, in the form that JSON can hold: see `algebra.rows.expressions.language`."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.streams.algebra.rows.expressions import Expression, evaluate
from penstock.streams.algebra.rows.expressions.language import LITERAL
from penstock.streams.spark.catalyst.tree import Tree
from penstock.streams.spark.catalyst.typed import (
    FLOATS,
    INTEGERS,
    Kind,
    Translation,
    Typed,
    check,
    decimal_of,
    null_of,
    type_of,
)

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_ROW = pa.record_batch({"n": [0]})


def literal(translation: Translation, tree: Tree) -> Typed:
    kind, value = type_of(tree.fields["dataType"]), tree.fields["value"]
    if kind == "void":
        return Typed([LITERAL, None], kind)
    if value is None:
        return null_of(kind)
    return _typed(_parsed(value, kind), kind)


def _parsed(text: str, kind: Kind) -> Any:
    if kind in INTEGERS:
        return int(text)
    if kind in FLOATS:
        return _float(float(text) if kind == "double" else float(np.float32(text)))
    if kind == "boolean":
        return text == "true"
    if kind == "date":
        return _days(text)
    if kind in ("timestamp", "timestamp_ntz"):
        return _micros(text)
    if kind == "string":
        return text
    precision, scale = decimal_of(kind)
    return str(_scaled(Decimal(text), precision, scale))


def _typed(value: Any, kind: Kind) -> Typed:
    return Typed([LITERAL, value, kind], kind)


def _float(value: float) -> float | str:
    """JSON has no others."""
    return (
        value
        if math.isfinite(value)
        else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    )


def _days(text: str) -> int:
    check(_DATE.fullmatch(text) is not None)
    return _date(text).toordinal() - _EPOCH.toordinal()


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        check(False)
        raise


def _micros(text: str) -> int:
    check(_TIME.fullmatch(text) is not None)
    whole, _, fraction = text.partition(".")
    try:
        time = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    except ValueError:
        check(False)
        raise
    return (time - _EPOCH) // timedelta(microseconds=1) + int(fraction.ljust(6, "0") or 0)


def _scaled(value: Decimal, precision: int, scale: int) -> Decimal:
    """With so many digits after the point, and no other value."""
    found = value.quantize(Decimal(1).scaleb(-scale)) if value.adjusted() + scale < 38 else value
    check(found == value and len(found.as_tuple().digits) <= precision)
    return found


def cast_literal(found: Typed, wanted: str, general: Expression | None) -> Typed | None:
    """The literal that a cast of one comes to, or None if that is for the rows to find out:
    `general` is the cast as an expression, if there is one for these types."""
    value, kind = found.expression[1], found.kind
    if value is None:
        return Typed([LITERAL, None, wanted], wanted)
    if wanted.startswith("decimal") and (kind in INTEGERS or str(kind).startswith("decimal")):
        return _typed(str(_scaled(Decimal(value), *decimal_of(wanted))), wanted)
    if str(kind).startswith("decimal") and wanted == "double":
        return _typed(_float(float(Decimal(value))), wanted)
    if kind == "string":
        if wanted == "date":
            return _typed(_days(value), wanted)
        if wanted == "timestamp":
            return _typed(
                _days(value) * 86_400_000_000 if _DATE.fullmatch(value) else _micros(value), wanted
            )
        if wanted in FLOATS and value in _SPECIAL:
            return _typed(value, wanted)
        if wanted == "double":
            check(_NUMBER.fullmatch(value) is not None)
            return _typed(_float(float(value)), wanted)
    if general is None:
        return None
    answer = evaluate(general, _ONE_ROW)
    return None if answer.refused is not None else _typed(_held(answer.values, wanted), wanted)


def _held(values: pa.Array, kind: str) -> Any:
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return values.view(pa.int32() if kind == "date" else pa.int64())[0].as_py()
    value = values[0].as_py()
    if isinstance(value, Decimal):
        return str(value)
    return _float(value) if isinstance(value, float) else value
