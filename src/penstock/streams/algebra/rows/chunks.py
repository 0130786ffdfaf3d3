"""Entries that came together, as one row of state has them.

What has a fixed width is side by side in the bytes of one cell, entry after entry, so that it takes
one copy to read a chunk, however many columns there are. The rest is a list of structs.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.events.compiled import Numbers
from penstock.streams.state import fixed_width
from penstock.streams.state.cells import elements_of

_FIXED, _REST = "(entries)", "(entries, the rest)"


class Chunks:
    """Those whose entries have these columns, which are known by their number."""

    def __init__(self, columns: Sequence[pa.Field]) -> None:
        self.columns = list(columns)
        widths = [fixed_width.dtype_of(each.type) for each in columns]
        fixed = [(number, width) for number, width in enumerate(widths) if width is not None]
        self._fixed = [number for number, _ in fixed]
        self._rest = [number for number, width in enumerate(widths) if width is None]
        values = [(_value(number), width) for number, width in fixed]
        valid = [(_valid(number), np.dtype(np.bool_)) for number in self._fixed]
        self._record = np.dtype([*values, *valid], align=True)
        self._struct = pa.struct([self.columns[number] for number in self._rest])

    @property
    def cells(self) -> pa.Schema:
        """The columns in which state has chunks."""
        cells = pa.schema([pa.field(_FIXED, pa.large_binary())])
        return cells.append(pa.field(_REST, pa.list_(self._struct))) if self._rest else cells

    def pack(self, columns: Sequence[pa.Array], starts: Numbers) -> pa.RecordBatch:
        """A chunk from each of the starts to the next, or to the end."""
        records = np.zeros(len(columns[0]), self._record)
        for number in self._fixed:
            records[_value(number)] = fixed_width.numbers(columns[number])
            records[_valid(number)] = fixed_width.validity(columns[number])
        bounds = np.append(starts, len(records))
        places = pa.py_buffer(bounds * self._record.itemsize)
        content = [None, places, pa.py_buffer(records.view(np.uint8))]
        cells = [pa.Array.from_buffers(pa.large_binary(), len(starts), content)]
        if self._rest:
            rest = [columns[number] for number in self._rest]
            structs = pa.StructArray.from_arrays(rest, fields=list(self._struct))
            kind = self.cells.field(_REST).type
            cells.append(pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), structs, type=kind))
        return pa.RecordBatch.from_arrays(cells, schema=self.cells)

    def unpack(self, rows: pa.RecordBatch) -> tuple[Numbers, "Unpacked"]:
        """How many entries each row of state has, and all of them, one after the other."""
        _, places, content = rows.column(_FIXED).buffers()
        bounds = np.frombuffer(places, np.int64)[: rows.num_rows + 1]
        records = np.frombuffer(content or b"", self._record)
        rest: list[pa.Array] = []
        if self._rest:
            rest = elements_of(rows.column(_REST))[0].flatten()
        lengths = np.diff(bounds) // self._record.itemsize
        columns = dict(zip(self._rest, rest, strict=True))
        return lengths, Unpacked(self.columns, records, columns)


class Unpacked:
    """Entries, to be had column by column."""

    def __init__(
        self, columns: list[pa.Field], records: NDArray[np.void], rest: dict[int, pa.Array]
    ) -> None:
        self._columns = columns
        self._records = records
        self._rest = rest

    def numbers(self, column: int) -> Numbers:
        """The values of one of fixed width."""
        return np.ascontiguousarray(self._records[_value(column)])

    def take(self, columns: range, rows: Numbers) -> list[pa.Array]:
        """Of these rows, some columns."""
        records = self._records.take(rows)
        return [
            self._rest[number].take(pa.array(rows))
            if number in self._rest
            else fixed_width.from_numbers(
                self._columns[number].type, records[_value(number)], records[_valid(number)].copy()
            )
            for number in columns
        ]


def _value(number: int) -> str:
    return f"{number}"


def _valid(number: int) -> str:
    return f"{number} is valid"
