"""Which rows have the same key, for keys of any type."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers, frozen
from penstock.streams.algebra.rows.group_loops import group_keys, sort_by_group
from penstock.streams.state.cells import Cells
from penstock.streams.state.keys import NO_TAILS, hashes_of, key_layout

_PIECE_GROUPS = 1 << 15


def spans(groups: int) -> Iterator[slice]:
    """Some of so many groups at a time.

    Small memory is used again and again; of large memory the system has to find every page anew.
    """
    for first in range(0, groups, _PIECE_GROUPS):
        yield slice(first, min(first + _PIECE_GROUPS, groups))


@dataclass(frozen=True)
class Groups:
    """Groups are numbered in the order in which their keys first come."""

    ids: Numbers  # the group of each row
    firsts: Numbers  # the first row of each group
    keys: pa.RecordBatch  # that of each group, floats as keys compare them

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def are_single(self) -> bool:
        """Whether every row is a group of its own."""
        return len(self.ids) == len(self.firsts)

    def behind(self, count: int) -> Numbers:
        """The groups of one row of each group, in order, and then of the rows."""
        return frozen(np.concatenate([np.arange(count), self.ids]))

    def pieces(self, rows: pa.RecordBatch) -> Iterator[tuple[slice, pa.RecordBatch, "Groups"]]:
        """Some groups at a time: which of them, their rows, and these as groups of their own."""
        if not self.are_single:
            starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(self.ids))])
            order = np.empty(len(self.ids), np.int64)
            sort_by_group(self.ids, starts[:-1].copy(), order)
        for piece in spans(len(self)):
            first, length = piece.start, piece.stop - piece.start
            if self.are_single:
                ids, some = np.arange(length), rows.slice(first, length)
            else:
                chosen = order[starts[first] : starts[piece.stop]]
                ids, some = self.ids[chosen] - first, rows.take(pa.array(chosen))
            firsts = np.searchsorted(ids, np.arange(length))
            yield piece, some, Groups(frozen(ids), frozen(firsts), self.keys.slice(first, length))


def counted_out(counts: Numbers) -> tuple[Numbers, Numbers]:
    """So many of each: which it is of, and its number among these."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)


def described(keys: pa.RecordBatch, row: int) -> str:
    (key,) = keys.slice(row, 1).to_pylist()
    return ", ".join(f"{name} = {value!r}" for name, value in key.items())


def group_rows(keys: pa.RecordBatch) -> Groups:
    layout = key_layout(keys.schema)
    encoded = layout.encode(keys)
    length = keys.num_rows
    table = np.zeros(1 << (2 * length + 1).bit_length(), np.uint64)
    ids, firsts = np.empty(length, np.int64), np.empty(length, np.int64)
    count = group_keys(encoded, frozen(hashes_of(encoded)), table, ids, firsts)
    firsts = firsts[:count].copy()
    tails = NO_TAILS
    if layout.has_tail:
        tails = Cells(encoded.data, encoded.starts[firsts], encoded.sizes[firsts])
    words = encoded.words.reshape(length, layout.width)[firsts].reshape(-1)
    columns = layout.decode(layout.keys(words, encoded.nulls[firsts], tails))
    return Groups(
        frozen(ids), frozen(firsts), pa.RecordBatch.from_arrays(columns, schema=keys.schema)
    )


def grouped(ids: Numbers, keys: pa.RecordBatch) -> Groups:
    """Groups that stand together already, in the order of their keys."""
    firsts = np.searchsorted(ids, np.arange(keys.num_rows))
    return Groups(frozen(ids), frozen(firsts), keys)


def distinct_keys(rows: pa.RecordBatch, width: int) -> tuple[list[pa.Array], Numbers]:
    """The different ones of the first columns, so many, and the number of that of each row."""
    if width == 0:
        return [], np.zeros(rows.num_rows, np.int64)
    groups = group_rows(rows.select(range(width)))
    return groups.keys.columns, groups.ids


def keys_and(columns: list[pa.Array], length: int, number: int, *more: Numbers) -> pa.RecordBatch:
    """Keys of groups of state: some columns, then a small number, and words behind it."""
    arrays = [*columns, pa.array(np.full(length, number, np.int8)), *map(pa.array, more)]
    return pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])


def each_once(*places: Numbers) -> Numbers:
    """In ascending order. NumPy does it by hashing, which takes thirty times as long."""
    every = np.sort(np.concatenate(places))
    is_first: Mask = np.diff(every, prepend=-1) != 0
    return every[is_first]
