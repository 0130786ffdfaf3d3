"""Why rows have no answer: a text for each, or None for those that have one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.events.compiled import Mask
from penstock.streams.state import fixed_width

Values = Any  # a pa.Array of all rows, or a pa.Scalar for every one of them
Reasons = NDArray[np.object_]


class Answer(NamedTuple):
    """`values` are null where there is a reason."""

    values: Values
    refused: Reasons | None = None


def earlier(first: Reasons | None, then: Reasons | None) -> Reasons | None:
    """The first of two reasons for each row."""
    if first is None or then is None:
        return then if first is None else first
    return np.where(first == None, then, first)  # noqa: E711 - of every element


def where(reached: Mask, reasons: Reasons) -> Reasons | None:
    """Only those of rows that the evaluation comes to."""
    left = reasons.copy()
    left[~reached] = None
    return left if refused_rows(left).size else None


def refused_rows(reasons: Reasons) -> NDArray[np.intp]:
    return np.flatnonzero(reasons != None)  # noqa: E711 - of every element


def is_valid(values: Values, rows: int) -> Mask:
    if isinstance(values, pa.Scalar):
        return np.full(rows, values.is_valid)
    return fixed_width.validity(values)


def as_array(values: Values, rows: int) -> pa.Array:
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def reasons_at(bad: Mask, reasons: Sequence[str]) -> Reasons:
    """One for each row that is bad, or the same one for all of them."""
    refused: Reasons = np.full(len(bad), None, object)
    refused[bad] = reasons if len(reasons) > 1 else reasons[0]
    return refused


def without(values: pa.Array, bad: Mask, reasons: Sequence[str]) -> Answer:
    """Those values, of fixed width, null where they are bad."""
    kept = fixed_width.validity(values) & ~bad
    left = fixed_width.from_numbers(values.type, fixed_width.numbers(values), kept)
    return Answer(left, reasons_at(bad, reasons))
