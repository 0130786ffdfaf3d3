"""Arrow values of fixed width as numpy arrays, and back."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.events.compiled import Bytes, Mask

Values = NDArray[Any]

_DTYPES = {
    pa.bool_(): np.dtype(np.bool_),
    pa.float16(): np.dtype(np.float16),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
    **{
        getattr(pa, name)(): np.dtype(name)
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}


def dtype_of(kind: pa.DataType) -> np.dtype[np.generic] | None:
    """The numpy type of one value, or None for a type whose values vary in size.

    Dates, times and durations are the integers that Arrow keeps for them, decimals of 128 bits two
    integers, the lower one first, and of 256 bits four.
    """
    if kind in _DTYPES:
        return _DTYPES[kind]
    if pa.types.is_fixed_size_binary(kind):
        return np.dtype((np.uint8, (kind.byte_width,)))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        if kind.bit_width <= 64:
            return np.dtype(f"i{kind.bit_width // 8}")
        return np.dtype((np.int64, (kind.bit_width // 64,)))
    return None


def validity(array: pa.Array) -> Mask:
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    return _bits(array.buffers()[0], array.offset, len(array))


def _bits(bitmap: pa.Buffer, offset: int, length: int) -> Mask:
    first = offset // 8
    packed = np.frombuffer(bitmap, np.uint8)[first : (offset + length + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[offset % 8 :][:length].view(np.bool_)


def numbers(array: pa.Array) -> Values:
    """The values, with zeros for nulls; a view of Arrow's own memory where nothing stands against.

    Values of several integers, or of bytes, are the rows of an array of two dimensions.
    """
    dtype = dtype_of(array.type)
    assert dtype is not None
    shape = (len(array), *dtype.shape)
    content = array.buffers()[1]
    if content is None:
        return np.zeros(shape, dtype.base)
    if dtype == np.bool_:
        values: Values = _bits(content, array.offset, len(array))
    else:
        values = np.ndarray(shape, dtype.base, content, array.offset * dtype.itemsize)
        if not values.flags.aligned:  # as buffers from a network may be
            values = values.copy()
    if array.null_count:
        values = values.copy()
        values[~validity(array)] = 0
    return values


def canonical(values: Values) -> Values:
    """One NaN for all of them, and 0.0 for -0.0, as keys are compared by their bits."""
    if values.dtype.kind != "f":
        return values
    with np.errstate(invalid="ignore"):  # there are NaNs that want to be noticed
        values = values + np.zeros(1, values.dtype)
        values[np.isnan(values)] = np.nan
    return values


def bitmap_of(valid: Mask) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def from_numbers(kind: pa.DataType, values: Values, valid: Mask) -> pa.Array:
    """The Arrow array; what lies under a null is zero, so that equal arrays have equal bytes."""
    bitmap = bitmap_of(valid)
    if bitmap is not None:
        values = values.copy()
        values[~valid] = 0
    if kind == pa.bool_():
        content: Values = np.packbits(values.view(np.uint8) != 0, bitorder="little")
    else:
        content = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(valid), [bitmap, pa.py_buffer(content)])


def as_bytes(values: Values) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
