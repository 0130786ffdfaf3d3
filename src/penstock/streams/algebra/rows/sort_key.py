"""Values as bytes that compare, byte by byte, as the values do: an order that lasts.

Every value begins with a byte that says whether it is null. Numbers follow with the highest byte
first, texts with their bytes and two zeros at the end, in which a zero inside is a zero and 255;
what is in descending order has all its bits turned.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.events.compiled import Bytes, Numbers
from penstock.streams.algebra.rows.order import order_words
from penstock.streams.state import cells, fixed_width

_SIGN = np.uint64(1 << 63)


class OrderBy(NamedTuple):
    column: str
    descending: bool = False
    nulls_first: bool = True


def check_order(kind: pa.DataType, what: str) -> None:
    """Raises InvalidInput for values that have no order that lasts."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_order(field.type, f"{what}.{field.name}")
    elif fixed_width.dtype_of(kind) is None and not cells.is_plain(kind):
        raise InvalidInput(
            f"rows cannot be put in order by {what}, which is {kind}",
            hint="order by a number, a text, a time, or a struct of these",
        )


def sort_keys(columns: Sequence[tuple[pa.Array, bool, bool]], length: int) -> pa.Array:
    """A value of bytes for each row, of columns that are descending or not, nulls first or not."""
    parts: list[pa.Array] = []
    for array, descending, nulls_first in columns:
        parts += _parts(array, descending, nulls_first)
    if not parts:
        return pa.array([b""] * length, pa.binary())
    return pc.binary_join_element_wise(*parts, b"") if len(parts) > 1 else parts[0]


def _parts(array: pa.Array, descending: bool, nulls_first: bool) -> list[pa.Array]:
    valid = fixed_width.validity(array)
    kind = array.type
    null = _fixed(np.where(valid, 1, 0 if nulls_first else 2).astype(np.uint8).reshape(-1, 1))
    if pa.types.is_null(kind):
        return [null]
    if pa.types.is_struct(kind):
        parts = [null]
        for child in array.flatten():
            # Inside a value nulls come first, and last where it is descending.
            parts += _parts(child, descending, not descending)
        return parts
    if cells.is_plain(kind):
        return [null, _text(array, descending)]
    words = np.where(valid[:, None], order_words(array), 0).astype(np.uint64) ^ _SIGN
    content: Bytes = words.astype(">u8").view(np.uint8).reshape(len(array), 8 * words.shape[1])
    return [null, _fixed(~content if descending else content)]


def _text(array: pa.Array, descending: bool) -> pa.Array:
    content = array.cast(pa.binary()).fill_null(b"")
    escaped = pc.replace_substring(content, pattern=b"\0", replacement=b"\0\xff")
    ended = pc.binary_join_element_wise(escaped, b"\0\0", b"")
    if not descending:
        return ended
    data, starts, sizes = cells.to_cells(ended)
    ends = np.append(starts, starts[-1:] + sizes[-1:]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(ended), [None, pa.py_buffer(ends), pa.py_buffer(~data)]
    )


def _fixed(content: Bytes) -> pa.Array:
    length, width = content.shape
    ends = (np.arange(length + 1) * width).astype(np.int32)
    data = pa.py_buffer(np.ascontiguousarray(content))
    return pa.Array.from_buffers(pa.binary(), length, [None, pa.py_buffer(ends), data])


def sorted_within(ids: Numbers, keys: pa.Array) -> Numbers:
    """The rows in the order of their group, and in each of the key."""
    table = pa.table({"id": pa.array(ids), "key": keys})
    found = pc.sort_indices(table, sort_keys=[("id", "ascending"), ("key", "ascending")])
    order: Numbers = found.to_numpy().astype(np.int64)
    return order
