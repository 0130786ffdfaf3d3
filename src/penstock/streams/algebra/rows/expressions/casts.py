"""One type for another: what does not fit, or is no such value, is refused."""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.streams.algebra.rows.expressions.language import Expression, name_of, type_named
from penstock.streams.algebra.rows.expressions.refusals import Answer, Values, without
from penstock.streams.state import fixed_width

SECOND, DAY = 10**6, 24 * 3600 * 10**6  # in microseconds
_PLAIN = "^-?[0-9]{1,18}$"  # which is every bigint but the longest, and how most of them look
_INTEGER = re.compile(r"[+-]?[0-9]+")
_TRIMMED = "".join(map(chr, range(33))) + "\x7f"  # by Spark, of texts that shall be numbers


def cast(operands: Sequence[Values], expression: Expression) -> Answer:
    values, wanted = operands[0], type_named(expression[2])
    kind = values.type
    if kind == wanted:
        return Answer(values)
    if pa.types.is_integer(wanted):
        return _to_integer(values, wanted)
    if pa.types.is_boolean(wanted):
        return Answer(pc.not_equal(values, pa.scalar(0, kind)))
    if pa.types.is_timestamp(wanted):
        return _to_timestamp(values, wanted)
    if pa.types.is_date(wanted):
        days = fixed_width.numbers(values) // DAY
        return Answer(_like(values, wanted, days.astype(np.int32)))
    if pa.types.is_timestamp(kind):  # to double
        return Answer(_like(values, wanted, fixed_width.numbers(values) / float(SECOND)))
    return Answer(pc.cast(values, wanted, safe=False))  # which rounds a number as Java does


def micros(operands: Sequence[Values], expression: Expression) -> Answer:
    """The microseconds since 1970, as they are."""
    return Answer(operands[0].view(pa.int64()))


def from_micros(operands: Sequence[Values], expression: Expression) -> Answer:
    return Answer(operands[0].view(type_named("timestamp")))


def _to_integer(values: pa.Array, wanted: pa.DataType) -> Answer:
    kind = values.type
    if pa.types.is_floating(kind):
        return _truncated(values, wanted)
    if pa.types.is_string(kind):
        return _parsed(values, wanted)
    if pa.types.is_timestamp(kind):
        return Answer(_like(values, wanted, fixed_width.numbers(values) // SECOND))
    try:
        return Answer(pc.cast(values, wanted))
    except pa.ArrowInvalid:
        numbers, limits = fixed_width.numbers(values), np.iinfo(wanted.to_pandas_dtype())
        bad = (numbers < limits.min) | (numbers > limits.max)
        reasons = [f"{each} does not fit {name_of(wanted)}" for each in numbers[bad]]
        return without(pc.cast(values, wanted, safe=False), bad, reasons)


def _truncated(values: pa.Array, wanted: pa.DataType) -> Answer:
    """Towards zero. As a double, the highest bigint is one more; Spark lets that pass, as it."""
    numbers = fixed_width.numbers(values).astype(np.float64)
    limits = np.iinfo(wanted.to_pandas_dtype())
    with np.errstate(invalid="ignore"):
        fits = (np.floor(numbers) <= float(limits.max)) & (np.ceil(numbers) >= float(limits.min))
        whole = np.where(fits & (numbers < 2.0**63), numbers, 0).astype(np.int64)
    whole[numbers >= 2.0**63] = limits.max
    found = _like(values, wanted, whole.astype(wanted.to_pandas_dtype()))
    if fits.all():
        return Answer(found)
    reasons = [f"{each} does not fit {name_of(wanted)}" for each in numbers[~fits]]
    return without(found, ~fits, reasons)


def _parsed(values: pa.Array, wanted: pa.DataType) -> Answer:
    plain = pc.fill_null(pc.match_substring_regex(values, _PLAIN), True)
    if plain.false_count == 0:
        return _to_integer(pc.cast(values, pa.int64()), wanted)
    limits = np.iinfo(wanted.to_pandas_dtype())
    texts = values.to_pylist()
    numbers = [_integer(text, limits.min, limits.max) for text in texts]
    found = pa.array(numbers, wanted)
    bad = fixed_width.validity(values) & ~fixed_width.validity(found)
    reasons = [f"{_short(texts[row])} is no {name_of(wanted)}" for row in np.flatnonzero(bad)]
    return without(found, bad, reasons) if reasons else Answer(found)


def _integer(text: str | None, least: int, most: int) -> int | None:
    trimmed = "" if text is None else text.strip(_TRIMMED)
    if not _INTEGER.fullmatch(trimmed):
        return None
    digits = trimmed.lstrip("+-").lstrip("0")
    if len(digits) > len(str(most)):  # Python takes long for very long ones
        return None
    number = int(digits or "0") * (-1 if trimmed[0] == "-" else 1)
    return number if least <= number <= most else None


def _to_timestamp(values: pa.Array, wanted: pa.DataType) -> Answer:
    """Of a day its first moment, of a bigint that many seconds after 1970."""
    numbers = fixed_width.numbers(values).astype(np.int64)
    unit = DAY if pa.types.is_date(values.type) else SECOND
    most = np.iinfo(np.int64).max // unit
    bad = (numbers > most) | (numbers < -most - 1)
    if unit == SECOND:  # what is too far away is as far as can be, to Spark
        limits = np.iinfo(np.int64)
        far = np.where(numbers > 0, limits.max, limits.min)
        with np.errstate(over="ignore"):
            return Answer(_like(values, wanted, np.where(bad, far, numbers * unit)))
    with np.errstate(over="ignore"):
        found = _like(values, wanted, numbers * unit)
    if not bad.any():
        return Answer(found)
    reasons = [f"day {each} is too far away for a timestamp" for each in numbers[bad]]
    return without(found, bad, reasons)


def _like(values: pa.Array, kind: pa.DataType, numbers: fixed_width.Values) -> pa.Array:
    return fixed_width.from_numbers(kind, numbers, fixed_width.validity(values))


def _short(text: str) -> str:
    return repr(text if len(text) <= 50 else text[:50] + "...")
