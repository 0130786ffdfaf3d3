"""Numbers: what leaves its type, or is divided by zero, is refused.

Arrow's checked functions say that some row went wrong, but not which. So they are tried first, and
the rows are looked for only where they fail.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.compiled import Mask
from penstock.streams.algebra.rows.expressions.language import Expression, name_of, text_of
from penstock.streams.algebra.rows.expressions.refusals import (
    Answer,
    Values,
    as_array,
    without,
)
from penstock.streams.state import fixed_width

Numeric = fixed_width.Values
_CHECKED: dict[str, Callable[..., Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "div": pc.divide_checked,
}
_UNCHECKED: dict[str, Callable[..., Any]] = {  # of decimals, whose result types are wide enough
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
}


def calculated(operands: Sequence[Values], expression: Expression) -> Answer:
    """Plus, minus, times, divided by, of two operands of one type."""
    operator, (left, right) = expression[0], operands
    if pa.types.is_decimal(left.type):
        return Answer(_UNCHECKED[operator](left, right))
    try:
        return Answer(_CHECKED[operator](left, right))
    except pa.ArrowInvalid:
        return _with_refusals(left, right, expression)


def remainder(operands: Sequence[Values], expression: Expression) -> Answer:
    """With the sign of the dividend, as Java has it; `pmod` with that of the divisor."""
    left, right, valid = _numbers(*operands)
    zero = (right == 0) & valid
    with np.errstate(all="ignore"):
        found = np.fmod(left, right)
        if expression[0] == "pmod":
            found = _positive(found, right)
    values = fixed_width.from_numbers(operands[0].type, found, valid)
    return without(values, zero, [_division_by_zero(expression)]) if zero.any() else Answer(values)


def _positive(found: Numeric, divisor: Numeric) -> Numeric:
    """Java adds bytes and shorts as ints, and other integers around the ends of their ranges."""
    wide = np.int32 if found.dtype in (np.int8, np.int16) else found.dtype
    one, other = found.astype(wide), divisor.astype(wide)
    return np.where(one < 0, np.fmod(one + other, other), one).astype(found.dtype)


def negated(operands: Sequence[Values], expression: Expression) -> Answer:
    return _of_one(operands[0], pc.negate_checked, "-({}) does not fit {}")


def absolute(operands: Sequence[Values], expression: Expression) -> Answer:
    return _of_one(operands[0], pc.abs_checked, "abs({}) does not fit {}")


def _of_one(values: pa.Array, checked: Callable[..., Any], reason: str) -> Answer:
    if pa.types.is_decimal(values.type):
        checked = {pc.negate_checked: pc.negate, pc.abs_checked: pc.abs}[checked]
    try:
        return Answer(checked(values))
    except pa.ArrowInvalid:  # only the lowest number has no counterpart
        numbers = fixed_width.numbers(values)
        bad = numbers == np.iinfo(numbers.dtype).min
        reasons = [reason.format(each, name_of(values.type)) for each in numbers[bad]]
        kept = fixed_width.from_numbers(values.type, numbers, fixed_width.validity(values) & ~bad)
        return without(checked(kept), bad, reasons)


def _with_refusals(left: Values, right: Values, expression: Expression) -> Answer:
    operator, kind = expression[0], left.type
    one, other, valid = _numbers(left, right)
    if operator in ("/", "div"):
        zero = (other == 0) & valid
        # Only the lowest number divided by -1 is too large.
        least = (one == np.iinfo(np.int64).min) & (other == -1) if operator == "div" else zero
        bad = zero | (least & valid)
    else:
        zero = np.zeros(len(one), np.bool_)
        bad = _overflows(operator, one, other) & valid
    reasons = [
        _division_by_zero(expression)
        if zero[row]
        else f"{one[row]} {operator} {other[row]} does not fit {name_of(kind)}"
        for row in np.flatnonzero(bad)
    ]
    # The checked function again, of what is left.
    kept = [fixed_width.from_numbers(kind, each, valid & ~bad) for each in (one, other)]
    return without(_CHECKED[operator](*kept), bad, reasons)


def _overflows(operator: str, one: Numeric, other: Numeric) -> Mask:
    """By what the result would be if it wrapped around."""
    with np.errstate(all="ignore"):
        if operator == "+":
            found = one + other
            return np.asarray(((one ^ found) & (other ^ found)) < 0)
        if operator == "-":
            found = one - other
            return np.asarray(((one ^ other) & (one ^ found)) < 0)
        found = one * other
        least = np.iinfo(one.dtype).min
        wrapped = (one != 0) & (found // np.where(one == 0, 1, one) != other)
        return np.asarray(wrapped | ((one == -1) & (other == least)))


def _numbers(left: Values, right: Values) -> tuple[Numeric, Numeric, Mask]:
    rows = len(right) if isinstance(left, pa.Scalar) else len(left)
    one, other = as_array(left, rows), as_array(right, rows)
    valid = fixed_width.validity(one) & fixed_width.validity(other)
    return fixed_width.numbers(one), fixed_width.numbers(other), valid


def _division_by_zero(expression: Expression) -> str:
    return f"division by zero in `{text_of(expression)}`"
