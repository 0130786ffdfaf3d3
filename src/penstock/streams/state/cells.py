"""Values of variable size as bytes, one cell a value, and back.

The cell of a text or of binary is its content. That of anything nested is written part by part, so
that it takes a few copies for all rows together, however deep the nesting goes: of every struct
whether it is there, of every list and text its length plus one (0 for null), of every value of
fixed width whether it is there and then its bytes, each part for all elements of the row at once.
Equal values have equal cells and others do not, so that cells can be keys.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InvalidInput, StateDamaged
from penstock.events.compiled import Bytes, Mask, Numbers, Scalar, frozen
from penstock.streams.state import fixed_width
from penstock.streams.state.cell_loops import copy_ranges

_ARROW_BYTES = 2**31 - 1  # of all values of a column whose offsets have 32 bits
_LENGTH = np.dtype("<u4")
_LONGEST = 2**32 - 2


class Cells(NamedTuple):
    """Cell i is data[starts[i] : starts[i] + sizes[i]], empty for a null. The data is frozen."""

    data: Bytes
    starts: Numbers
    sizes: Numbers

    def compact(self) -> tuple[Bytes, Numbers]:
        """The cells side by side, and their bounds, of which there is one more than cells."""
        bounds = _bounds(self.sizes)
        target = np.empty(bounds[-1], np.uint8)
        if not copy(self.data, self.starts, self.sizes, target, bounds[:-1]):
            raise StateDamaged(
                "a value does not lie where its row says",
                hint="run the step again: what is kept on this host is built anew then",
            )
        return target, bounds


def copy(source: Bytes, starts: Numbers, sizes: Numbers, target: Bytes, places: Numbers) -> bool:
    """Copies ranges to their places; False when one of them does not lie inside."""
    return copy_ranges(frozen(source), frozen(starts), frozen(sizes), target, frozen(places))


def _bounds(sizes: Numbers) -> Numbers:
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def is_plain(kind: pa.DataType) -> bool:
    """Whether the content of a value is its cell, without more."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
    )


def _has_long_offsets(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_map(kind)
    )


def to_cells(array: pa.Array, *, as_key: bool = False) -> Cells:
    """One cell for each value. For a key, floats that count as equal get equal bytes."""
    if is_plain(array.type):
        return _plain_cells(array)
    parts: list[tuple[Bytes, Numbers]] = []
    _write(array, np.arange(len(array) + 1), parts, as_key)
    sizes = np.zeros(len(array), np.int64)
    for _, bounds in parts:
        sizes += np.diff(bounds)
    ends = _bounds(sizes)
    data, places = np.empty(ends[-1], np.uint8), ends[:-1].copy()
    for source, bounds in parts:
        taken = np.diff(bounds)
        copy(source, bounds[:-1], taken, data, places)
        places += taken
    return Cells(frozen(data), ends[:-1], sizes)


def key_values(array: pa.Array) -> pa.Array:
    """The values as they are compared as keys: one NaN for all of them, and 0.0 for -0.0.

    What is written or emitted by its key goes through this, or one key would have two names.
    """
    kind = array.type
    if not _has_floats(kind):
        return array
    valid = fixed_width.validity(array)
    if pa.types.is_floating(kind):
        numbers = fixed_width.canonical(fixed_width.numbers(array))
        return fixed_width.from_numbers(kind, numbers, valid)
    return from_cells(kind, to_cells(array, as_key=True), valid)


def _has_floats(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return bool(pa.types.is_floating(kind))
    return any(_has_floats(kind.field(child).type) for child in range(kind.num_fields))


def _plain_cells(array: pa.Array) -> Cells:
    _, offsets, content = array.buffers()
    if offsets is None:
        places: Numbers = np.zeros(len(array) + 1, np.int64)
    else:
        dtype = np.dtype(np.int64 if _has_long_offsets(array.type) else np.int32)
        places = np.ndarray(
            (len(array) + 1,), dtype, offsets, array.offset * dtype.itemsize
        ).astype(np.int64)
    sizes = np.diff(places)
    if array.null_count:
        sizes[~fixed_width.validity(array)] = 0  # Arrow lets anything stand under a null
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return Cells(frozen(data), places[:-1], sizes)


def _write(
    array: pa.Array, rows: Numbers, parts: list[tuple[Bytes, Numbers]], as_key: bool
) -> None:
    """Appends the parts of these values, of which rows[i] to before rows[i + 1] belong to row i.

    A part is bytes, and the bounds of each row in them.
    """
    kind = array.type
    if pa.types.is_null(kind):
        return
    if pa.types.is_struct(kind):
        parts.append((fixed_width.as_bytes(fixed_width.validity(array)), rows))
        for child in array.flatten():  # with the struct's nulls
            _write(child, rows, parts, as_key)
    elif _is_list(kind):
        elements, lengths = elements_of(array)
        _write_lengths(lengths, fixed_width.validity(array), rows, parts)
        _write(elements, _bounds(lengths)[rows], parts, as_key)
    elif fixed_width.dtype_of(kind) is not None:
        values = fixed_width.numbers(array)
        content = fixed_width.as_bytes(fixed_width.canonical(values) if as_key else values)
        parts.append((fixed_width.as_bytes(fixed_width.validity(array)), rows))
        parts.append((content, rows * (len(content) // max(len(array), 1))))
    else:
        cells = _plain_cells(array)
        _write_lengths(cells.sizes, fixed_width.validity(array), rows, parts)
        data, bounds = cells.compact()
        parts.append((data, bounds[rows]))


def elements_of(array: pa.Array) -> tuple[pa.Array, Numbers]:
    """The elements of lists one after the other, without those under a null, and how many each has.

    Arrow's own flattening, and its cast of a map to a list, fail on some types.
    """
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        offsets = np.arange(array.offset, array.offset + len(array) + 1) * size
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
    lengths = np.where(fixed_width.validity(array), np.diff(offsets), 0)
    bounds = _bounds(lengths)
    if bounds[-1] == offsets[-1] - offsets[0]:
        return array.values.slice(offsets[0], bounds[-1]), lengths
    places = np.arange(bounds[-1]) + np.repeat(offsets[:-1] - bounds[:-1], lengths)
    return array.values.take(pa.array(places)), lengths


def _write_lengths(
    lengths: Numbers, valid: Mask, rows: Numbers, parts: list[tuple[Bytes, Numbers]]
) -> None:
    if len(lengths) and lengths.max() > _LONGEST:
        raise InvalidInput("a value of 4 GiB does not fit the state", hint="split it into smaller")
    parts.append((fixed_width.as_bytes((lengths + valid).astype(_LENGTH)), rows * _LENGTH.itemsize))


def from_cells(kind: pa.DataType, cells: Cells, valid: Mask) -> pa.Array:
    """The values of these cells, null where not valid.

    Raises InvalidInput when there are more bytes than an array of this type can hold.
    """
    if is_plain(kind):
        sizes = np.where(valid, cells.sizes, 0)
        return _plain_array(kind, Cells(cells.data, cells.starts, sizes), valid)
    starts = cells.starts[valid]
    return _Reading(cells.data, starts).read(kind, np.ones(len(starts), np.int64), valid)


def _plain_array(kind: pa.DataType, cells: Cells, valid: Mask) -> pa.Array:
    content, bounds = cells.compact()
    offsets = _offsets(kind, bounds)
    return pa.Array.from_buffers(
        kind, len(valid), [fixed_width.bitmap_of(valid), offsets, pa.py_buffer(content)]
    )


def _offsets(kind: pa.DataType, bounds: Numbers) -> pa.Buffer:
    if _has_long_offsets(kind):
        return pa.py_buffer(bounds)
    if bounds[-1] > _ARROW_BYTES:
        raise InvalidInput(
            f"{bounds[-1]} bytes or elements are more than an array of {kind} can hold",
            hint="take fewer rows at a time",
        )
    return pa.py_buffer(bounds.astype(np.int32))


class _Reading:
    """Reads cells part by part, all of them together, from where the part before ended."""

    def __init__(self, data: Bytes, starts: Numbers) -> None:
        self._data = data
        self._at = starts

    def read(self, kind: pa.DataType, counts: Numbers, present: Mask) -> pa.Array:
        """The values of one type, of which each cell has so many.

        The array is as long as `present`, which says which of its values there are in the cells;
        the others lie under a null.
        """
        length = len(present)
        if pa.types.is_null(kind):
            return pa.nulls(length)
        dtype = fixed_width.dtype_of(kind)
        if dtype is not None:
            valid = self._flags(counts, present)
            content = self._part(counts * dtype.itemsize).view(dtype.base)
            values = _spread(content.reshape(int(counts.sum()), *dtype.shape), present)
            return fixed_width.from_numbers(kind, values, valid)
        if pa.types.is_struct(kind):
            valid = self._flags(counts, present)
            children = [self.read(field.type, counts, present) for field in kind]
            return pa.Array.from_buffers(
                kind, length, [fixed_width.bitmap_of(valid)], children=children
            )

        stored = self._part(counts * _LENGTH.itemsize).view(_LENGTH).astype(np.int64)
        below = np.diff(_bounds(np.maximum(stored - 1, 0))[_bounds(counts)])
        stored = _spread(stored, present)
        lengths, valid = np.maximum(stored - 1, 0), stored > 0
        if is_plain(kind):
            content = frozen(self._part(below))
            return _plain_array(kind, Cells(content, _bounds(lengths)[:-1], lengths), valid)
        buffers = [fixed_width.bitmap_of(valid)]
        if pa.types.is_fixed_size_list(kind):  # of which a null one has elements too
            inside = np.repeat(valid, kind.list_size)
        else:
            inside = np.ones(lengths.sum(), np.bool_)
            buffers.append(_offsets(kind, _bounds(lengths)))
        if pa.types.is_map(kind):
            elements = self.read(pa.struct([kind.key_field, kind.item_field]), below, inside)
        else:
            elements = self.read(kind.value_type, below, inside)
        return pa.Array.from_buffers(kind, length, buffers, children=[elements])

    def _part(self, sizes: Numbers) -> Bytes:
        part, _ = Cells(self._data, self._at, sizes).compact()
        self._at = self._at + sizes
        return part

    def _flags(self, counts: Numbers, present: Mask) -> Mask:
        return _spread(self._part(counts), present).astype(np.bool_)


def _spread(values: NDArray[Scalar], present: Mask) -> NDArray[Scalar]:
    if present.all():
        return values
    spread = np.zeros((len(present), *values.shape[1:]), values.dtype)
    spread[present] = values
    return spread
