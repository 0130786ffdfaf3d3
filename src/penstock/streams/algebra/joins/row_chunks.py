"""Rows that came together as one row of state: their bytes, and the size and time of each."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers, frozen
from penstock.streams.algebra.changes import TIME
from penstock.streams.algebra.rows.chunks import Chunks

_BYTES = pa.field("(rows)", pa.large_binary())
_SIZE = pa.field("(size)", pa.int64())
NO_TIMES = frozen(np.zeros(1, np.int64))


class Entries(NamedTuple):
    """The rows of some chunks, and where each chunk begins among them and the last ends."""

    starts: Numbers
    times: Numbers
    rows: pa.Array

    def bytes(self) -> Numbers:
        """Of the rows of each chunk."""
        return np.diff(_bounds(self.rows)[self.starts])


class RowChunks:
    def __init__(self, *, timed: bool) -> None:
        self._timed = timed
        self._entries = Chunks([*([pa.field(TIME, pa.int64())] if timed else []), _SIZE])
        self.cells = self._entries.cells.append(_BYTES)

    def pack(self, entries: Entries) -> list[pa.Array]:
        """The cells of chunks, as `cells` has them."""
        bounds = _bounds(entries.rows)
        columns = [pa.array(entries.times)] if self._timed else []
        packed = self._entries.pack([*columns, pa.array(np.diff(bounds))], entries.starts[:-1])
        content = entries.rows.buffers()[2] or pa.py_buffer(b"")
        buffers = [None, pa.py_buffer(bounds[entries.starts]), content]
        whole = pa.Array.from_buffers(pa.large_binary(), len(entries.starts) - 1, buffers)
        return [*packed.columns, whole]

    def unpack(self, values: pa.RecordBatch) -> Entries:
        lengths, entries = self._entries.unpack(values)
        sizes = entries.numbers(int(self._timed))
        bounds = pa.py_buffer(starts_of(sizes))
        content = values.column(_BYTES.name).buffers()[2] or pa.py_buffer(b"")
        rows = pa.Array.from_buffers(pa.large_binary(), len(sizes), [None, bounds, content])
        times = frozen(entries.numbers(0)) if self._timed else NO_TIMES
        return Entries(starts_of(lengths), times, rows)


def starts_of(lengths: Numbers) -> Numbers:
    """Where each of these begins, and the last ends."""
    return frozen(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))


def _bounds(rows: pa.Array) -> Numbers:
    width = np.int64 if pa.types.is_large_binary(rows.type) else np.int32
    places = np.frombuffer(rows.buffers()[1], width)
    return places[rows.offset : rows.offset + len(rows) + 1].astype(np.int64)
