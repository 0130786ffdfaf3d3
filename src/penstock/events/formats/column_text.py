"""Columns of simple types as text."""

from base64 import b64encode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput, InvalidSchema
from penstock.events.compiled import frozen
from penstock.events.formats.instants import EARLIEST, INSTANT_BYTES, LATEST, write_instants

_DAY = 86_400_000_000


def column_text(values: pa.Array) -> pa.StringArray:
    """Numbers in the fewest digits that tell them apart, times as ISO 8601, binary as base64.

    NaN, Infinity and -Infinity are written so. Raises InvalidInput for times outside the years 1
    to 9999.
    """
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        return _reals(values)
    if pa.types.is_timestamp(kind):
        return _instants(values)
    if pa.types.is_date32(kind):
        _check_years(values.cast(pa.int32()).cast(pa.int64()), _DAY)
        return values.cast(pa.string())
    if pa.types.is_binary(kind):
        texts = [None if value is None else b64encode(value) for value in values.to_pylist()]
        return pa.array(texts, pa.binary()).cast(pa.string())
    raise InvalidSchema(f"Arrow's type {kind} has no form in text")


def present(values: pa.Array, texts: pa.StringArray) -> pa.StringArray:
    """The texts, and null for values that are null."""
    if not values.null_count:
        return texts
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def not_finite(values: pa.FloatingPointArray) -> pa.BooleanArray | None:
    """Which values are NaN or infinite; None when none is."""
    special = pc.invert(pc.is_finite(values)).fill_null(False)
    return special if pc.any(special).as_py() else None


def _reals(values: pa.FloatingPointArray) -> pa.StringArray:
    texts = values.cast(pa.string())
    if not_finite(values) is not None:
        for theirs, ours in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
            texts = pc.if_else(pc.equal(texts, theirs), ours, texts)
    return texts


def _instants(values: pa.TimestampArray) -> pa.StringArray:
    numbers = values.cast(pa.int64())
    _check_years(numbers, 1)
    places = np.empty(len(values) + 1, np.int32)
    content = pa.allocate_buffer(len(values) * INSTANT_BYTES)
    write_instants(
        frozen(numbers.fill_null(0).to_numpy()),
        values.type.tz is not None,
        places,
        np.frombuffer(content, np.uint8),
    )
    texts = pa.StringArray.from_buffers(len(values), pa.py_buffer(places), content)
    return present(values, texts)


def _check_years(numbers: pa.Int64Array, unit: int) -> None:
    span = pc.min_max(numbers)
    low, high = span["min"].as_py(), span["max"].as_py()
    if low is not None and not EARLIEST <= low * unit <= high * unit <= LATEST:
        raise InvalidInput(
            "a date or time outside the years 1 to 9999 has no form in text",
            hint="such rows can be filtered out before they are written",
        )
