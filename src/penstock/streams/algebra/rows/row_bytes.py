"""Whole rows as values of bytes, for states that have rows of any shape, and back."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import KernelError
from penstock.streams.state import cells

_MOST = 2**31 - 1


def to_bytes(
    columns: Sequence[pa.Array], fields: Sequence[pa.Field], length: int, *, as_key: bool
) -> pa.Array:
    """One value for each row; those of equal rows are equal.

    With `as_key`, rows are equal that keys cannot tell apart, as those of tables have to be: the
    retraction of a row may have another NaN, or another zero, than the row itself.
    """
    if not fields:
        return pa.array([b""] * length, pa.binary())
    rows = pa.StructArray.from_arrays(list(columns), fields=list(fields))
    values = cells.to_cells(rows, as_key=as_key)
    if len(values.data) > _MOST:
        raise KernelError(
            f"{length} rows have {len(values.data):,} bytes, too many for one array",
            hint="make batches smaller, such as max_rows= of the stream",
        )
    ends = np.append(values.starts, len(values.data)).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(values.data)]
    return pa.Array.from_buffers(pa.binary(), length, buffers)


def from_bytes(values: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Array]:
    """The columns of rows that were made so."""
    if not fields:
        return []
    there = np.ones(len(values), np.bool_)
    whole = cells.from_cells(pa.struct(list(fields)), cells.to_cells(values), there)
    return list(whole.flatten())
