"""How many different values there are, about: HyperLogLog, with a list of hashes to begin with.

The state of a group is bytes. While it has few values these are a list: for each, 26 bits of its
hash and where the first one of the others is set, in ascending order, four bytes each, which is
as good as exact. Once the list would be as long, they are one byte for each of 2^precision
registers. Which of the two depends on the values alone, and so does every byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Bytes, Hashes, Mask, Numbers, frozen
from penstock.streams.algebra.folds.fold import Parts, integers
from penstock.streams.algebra.multisets.tally import offsets_of
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.algebra.sketches import hyperloglog_loops as loops
from penstock.streams.state import cells, fixed_width
from penstock.streams.state.keys import hashes_of, key_layout

_ENTRY = 4  # bytes
_SAME = np.uint64(6)  # bits that say where the first bit is set


@dataclass(frozen=True)
class DistinctSketch:
    column: str
    precision: int
    kind = pa.int64()
    order_free = True
    parts: Sequence[tuple[str, pa.DataType]] = (("", pa.binary()),)

    @property
    def _size(self) -> int:
        return 1 << self.precision

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        values = rows.select([self.column])
        there = np.flatnonzero(fixed_width.validity(values.column(0)))
        if len(there) < len(groups.ids):
            values = values.take(pa.array(there))
        hashes = hashes_of(key_layout(values.schema).encode(values))
        entries = np.empty(len(there), np.uint64)
        loops.make_entries(frozen(groups.ids[there]), frozen(hashes), entries)
        nowhere = np.zeros(len(groups), np.bool_)
        return [_array(*self._laid_out(entries, nowhere))]

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        if into is None and groups.are_single:
            return parts
        sides = [(parts[0], groups.ids)]
        if into is not None:
            sides.insert(0, (into[0], np.arange(len(groups))))
        full = np.zeros(len(groups), np.bool_)
        entries: list[Hashes] = []
        for part, ids in sides:
            sketch = cells.to_cells(part)
            full[ids[sketch.sizes == self._size]] = True
            sizes = np.where(sketch.sizes == self._size, 0, sketch.sizes)
            listed = np.empty(sizes.sum() // _ENTRY, np.uint64)
            loops.read_entries(
                sketch.data, frozen(sketch.starts), frozen(sizes), frozen(ids), listed
            )
            entries.append(listed)
        data, bounds = self._laid_out(np.concatenate(entries), full)
        for part, ids in sides:
            sketch = cells.to_cells(part)
            chosen = np.flatnonzero(sketch.sizes == self._size)
            starts, places = sketch.starts[chosen], bounds[ids[chosen]]
            loops.raise_registers(sketch.data, frozen(starts), frozen(places), self._size, data)
        return [_array(data, bounds)]

    def _laid_out(self, entries: Hashes, full: Mask) -> tuple[Bytes, Numbers]:
        """The bytes of all groups, and their bounds; `full` have registers in any case."""
        entries.sort()
        last = np.ones(len(entries), np.bool_)
        last[:-1] = (entries[1:] >> _SAME) != (entries[:-1] >> _SAME)
        entries = entries[last]
        groups = (entries >> np.uint64(32)).astype(np.int64)
        lengths = np.bincount(groups, minlength=len(full))
        full = full | (lengths * _ENTRY >= self._size)
        bounds = np.zeros(len(full) + 1, np.int64)
        np.cumsum(np.where(full, self._size, lengths * _ENTRY), out=bounds[1:])
        data = np.zeros(bounds[-1], np.uint8)
        loops.write_entries(frozen(entries), frozen(full), frozen(bounds), self.precision, data)
        return data, bounds

    def result(self, parts: Parts) -> pa.Array:
        sketch = cells.to_cells(parts[0])
        estimates = np.zeros(len(parts[0]))
        loops.estimate(
            sketch.data,
            frozen(sketch.starts),
            frozen(sketch.sizes),
            self.precision,
            np.zeros(66, np.int64),
            estimates,
        )
        return integers(np.rint(estimates).astype(np.int64))


def _array(data: Bytes, bounds: Numbers) -> pa.Array:
    valid = fixed_width.bitmap_of(np.diff(bounds) > 0)
    buffers = [valid, offsets_of(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
