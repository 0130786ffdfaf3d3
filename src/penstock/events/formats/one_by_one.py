"""Values read one at a time, for formats and for values that allow no more."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.formats.contract import NO_VALUE, Decoded, Refused
from penstock.events.formats.fitting import Misfit


def decode_each(
    schema: pa.Schema, values: pa.BinaryArray, read: Callable[[bytes], Sequence[Any]]
) -> Decoded:
    """The rows that `read` makes of the values: what Arrow takes for each column, or Misfit."""
    columns: list[list[Any]] = [[] for _ in schema]
    kept: list[int] = []
    refused: list[Refused] = []
    for position, value in enumerate(values.to_pylist()):
        try:
            if value is None:
                raise Misfit(NO_VALUE)
            row = read(value)
        except Misfit as misfit:
            refused.append(Refused(position, str(misfit)))
            continue
        kept.append(position)
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Decoded(rows, np.array(kept, np.int64) if refused else None, refused)


def decode_utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as wrong:
        raise Misfit(f"not UTF-8 at byte {wrong.start}") from None
