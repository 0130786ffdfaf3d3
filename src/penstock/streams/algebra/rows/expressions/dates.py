"""Parts and beginnings of dates and times, in UTC and by the Gregorian calendar."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.rows.expressions.casts import DAY, SECOND
from penstock.streams.algebra.rows.expressions.language import Expression, text_of
from penstock.streams.algebra.rows.expressions.refusals import (
    Answer,
    Values,
    reasons_at,
    without,
)
from penstock.streams.state import fixed_width

_PARTS = {"hour": (3600 * SECOND, 24), "minute": (60 * SECOND, 60), "second": (SECOND, 60)}
_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
    "day": DAY,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNITS = (*_UNITS, "week", *_MONTHS)


def part(operands: Sequence[Values], expression: Expression) -> Answer:
    """The year, month or day of a date, the hour, minute or second of a time."""
    what, values = expression[0], operands[0]
    numbers = fixed_width.numbers(values)
    if what in _PARTS:
        unit, count = _PARTS[what]
        found = numbers // unit % count
    else:
        months = _month_of(numbers)
        if what == "day":
            found = numbers - _first_of(months) + 1
        else:
            found = months // 12 + 1970 if what == "year" else months % 12 + 1
    return Answer(
        fixed_width.from_numbers(pa.int32(), found.astype(np.int32), fixed_width.validity(values))
    )


def truncated(operands: Sequence[Values], expression: Expression) -> Answer:
    """The beginning of the unit that a date or a time is in."""
    values, unit = operands[0], expression[2]
    numbers = fixed_width.numbers(values)
    found: fixed_width.Values
    if pa.types.is_date(values.type):
        found = _first_day(numbers, unit).astype(np.int32)
    elif unit in _UNITS:
        found = numbers // _UNITS[unit] * _UNITS[unit]
    else:
        found = _first_day(numbers // DAY, unit) * DAY
    return Answer(fixed_width.from_numbers(values.type, found, fixed_width.validity(values)))


def shifted(operands: Sequence[Values], expression: Expression) -> Answer:
    """Later by that many microseconds."""
    values, by = operands[0], expression[2]
    numbers, valid = fixed_width.numbers(values), fixed_width.validity(values)
    with np.errstate(over="ignore"):
        found = numbers + np.int64(by)
    moved = fixed_width.from_numbers(values.type, found, valid)
    wrapped = (found < numbers) if by > 0 else (found > numbers)
    bad = wrapped & valid
    return without(moved, bad, [_too_far(expression)]) if bad.any() else Answer(moved)


def tumbling(operands: Sequence[Values], expression: Expression) -> Answer:
    """The window, start and end, that a time is in; both are null for no time."""
    values, size = operands[0], expression[2]
    offset = expression[3] if len(expression) > 3 else 0
    numbers, valid = fixed_width.numbers(values), fixed_width.validity(values)
    with np.errstate(over="ignore"):
        starts = (numbers - offset) // size * size + offset
        ends = starts + size
    bad = ((starts > numbers) | (ends <= numbers)) & valid  # which wrapped around
    bounds = [fixed_width.from_numbers(values.type, each, valid & ~bad) for each in (starts, ends)]
    windows = pa.StructArray.from_arrays(bounds, names=["start", "end"])
    refused = reasons_at(bad, [_too_far(expression)]) if bad.any() else None
    return Answer(windows, refused)


def _month_of(days: Numbers) -> Numbers:
    """Since January 1970."""
    dates = days.astype(np.int64).view("datetime64[D]")
    return np.asarray(dates.astype("datetime64[M]").view(np.int64))


def _first_of(months: Numbers) -> Numbers:
    return np.asarray(months.view("datetime64[M]").astype("datetime64[D]").view(np.int64))


def _first_day(days: Numbers, unit: str) -> Numbers:
    if unit == "week":  # from Monday; 1970 began on a Thursday
        return np.asarray((days + np.int64(3)) // 7 * 7 - 3)
    months = _MONTHS[unit]
    return _first_of(np.asarray(_month_of(days) // months * months))


def _too_far(expression: Expression) -> str:
    return f"the time is too far away in `{text_of(expression)}`"
