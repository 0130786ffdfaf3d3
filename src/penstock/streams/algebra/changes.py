"""Rows before and after a step as changes of a table: -1 for what went, +1 for what came."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, frozen
from penstock.streams.algebra.change_loops import differing_cells
from penstock.streams.state import cells, fixed_width

WEIGHT = "_weight"
TIME = "_time"
PARTITION = "_partition"
OFFSET = "_offset"
DELETED = "_deleted"

TIME_TYPE = pa.timestamp("us", "UTC")
WEIGHT_FIELD = pa.field(WEIGHT, pa.int32(), nullable=False)


def changes(
    schema: pa.Schema, old: list[pa.Array], was: Mask, new: list[pa.Array], now: Mask
) -> Iterator[pa.RecordBatch]:
    """Batches of changes, without those of rows that stay as they are.

    `old` and `new` are the columns, without the weight, row by row; `was` and `now` say which of
    these rows there are. Of a row that changes, -1 comes before +1, in the batch before it.
    """
    same = was & now
    for before, after in zip(old, new, strict=True):
        same &= ~differs(before, after)
    for columns, there, weight in ((old, was, -1), (new, now, 1)):
        rows = np.flatnonzero(there & ~same)
        if len(rows) == 0:
            continue
        arrays = list(columns)
        if len(rows) < len(same):
            arrays = [column.take(pa.array(rows)) for column in columns]
        arrays.append(pa.array(np.full(len(rows), weight, np.int32)))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def differs(before: pa.Array, after: pa.Array) -> Mask:
    """Where two arrays of the same type have another value, all NaN being the same."""
    different: Mask = fixed_width.validity(before) != fixed_width.validity(after)
    if fixed_width.dtype_of(before.type) is not None:
        one, other = (fixed_width.numbers(each) for each in (before, after))
        unequal = one != other
        if one.dtype.kind == "f":
            unequal &= ~(np.isnan(one) & np.isnan(other))
        different |= unequal.any(axis=1) if unequal.ndim == 2 else unequal
    elif not pa.types.is_null(before.type):
        here, there = (cells.to_cells(each, as_key=True) for each in (before, after))
        differing_cells(
            frozen(here.data),
            frozen(here.starts),
            frozen(here.sizes),
            frozen(there.data),
            frozen(there.starts),
            frozen(there.sizes),
            different,
        )
    return different


def retractions_in(changed: pa.RecordBatch) -> int:
    return int((fixed_width.numbers(changed.column(WEIGHT)) < 0).sum())
