"""Rows of state by key: found, added, read, changed and removed.

Row numbers hold until the step ends. Every change belongs to a step, which notes the rows that it
touches; no operation looks at more rows than it is given, but for `all_rows`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InvalidInput
from penstock.events.compiled import Bytes, Mask, Numbers, Scalar, frozen
from penstock.streams.state import cells, fixed_width, index_loops
from penstock.streams.state.arena import Arena
from penstock.streams.state.cells import Cells
from penstock.streams.state.chains import Chains
from penstock.streams.state.index_loops import FRESH, LIVE, NEW, TOUCHED
from penstock.streams.state.key_loops import Keys
from penstock.streams.state.keys import NO_TAILS, hashes_of, order_of
from penstock.streams.state.layout import Column
from penstock.streams.state.schema import StateSchema, check_columns

_CHUNK_ROWS = 1 << 17
_CHUNK_BYTES = 1 << 26
_SCAN_ROWS = 1 << 20


class Rows:
    def __init__(self, schema: StateSchema, arena: Arena) -> None:
        self.schema = schema
        self._arena = arena
        self._touched: list[Numbers] = []
        self._in_step = False
        self._linked: Chains | None = None

    def __len__(self) -> int:
        return self._arena.row_count

    def find(self, keys: pa.RecordBatch) -> Numbers:
        """The row of each key, -1 where there is none."""
        check_columns(keys, self.schema.keys, "keys")
        return self._find(self._arena.layout.key.encode(keys))

    def find_or_add(self, keys: pa.RecordBatch) -> Numbers:
        """The row of each key. A new one has null values, with zeros under them.

        Every row it returns counts as changed.
        """
        check_columns(keys, self.schema.keys, "keys")
        return self._add(keys)

    def is_new(self, rows: Numbers) -> Mask:
        """Whether each row was added in this step."""
        self._check_range(rows)
        flags = self._byte(0)[rows]
        self._check_live(flags)
        return (flags & NEW).astype(np.bool_)

    def fixed(self, name: str) -> fixed_width.Values:
        """The values of a column, by row number, to be changed in place.

        It is longer than there are rows. Rows that are changed have to be touched, unless they come
        from `find_or_add`, and their validity set. Take it anew after rows were added: the old one
        may be too short then, and compiled code does not notice.

        Dates, times and durations are the integers that Arrow keeps for them, decimals of 128 bits
        two integers, the lower one first. Raises InvalidInput when the column has no fixed width.
        """
        column = self._column_in_place(name)
        if column.dtype is None:
            raise InvalidInput(
                f"values of {name!r} ({column.kind}) have no fixed width", hint="use take and put"
            )
        self._change()
        return self._values(column)

    def valid(self, name: str) -> Mask:
        """Which values of a column are not null, by row number, to be changed in place."""
        column = self._column_in_place(name)
        self._change()
        return self._valid(column)

    def due(self, clock: int) -> Numbers:
        """The rows whose due is not null and not after the clock, in any order.

        A row stays due until another due is put, or null, or it is removed. The cost follows the
        number of rows that are given; after a higher clock, asked for or committed, it follows that
        of the rows due at the higher one. It is part of a step, as a change is. Raises InvalidInput
        when the schema names no due.
        """
        wheel = self._arena.wheel
        if wheel is None:
            raise InvalidInput(
                "nothing says when rows of this state are due", hint="StateSchema(..., due=...)"
            )
        self._change()
        return wheel.due(clock)

    def members(self, keys: pa.RecordBatch) -> Iterator[tuple[Numbers, Numbers]]:
        """In pieces, the rows of each group, and which of these keys, the group's, they are of.

        The rows of a group come in any order; no row is added while they are read.
        """
        return self._chains.members(keys)

    def member_counts(self, keys: pa.RecordBatch) -> Numbers:
        """How many rows each group has."""
        return self._chains.sizes(keys)

    def take(self, rows: Numbers) -> pa.RecordBatch:
        """Keys and values of these rows."""
        self._check_range(rows)
        records = self._gathered(rows)
        self._check_live(records[:, 0])
        return self._batch_of(records)

    def take_keys(self, rows: Numbers) -> pa.RecordBatch:
        """Keys of these rows, without their values."""
        self._check_range(rows)
        self._check_live(self._byte(0)[rows])
        layout = self._arena.layout.key
        return pa.RecordBatch.from_arrays(
            layout.decode(self._keys_at(rows)), schema=self.schema.keys
        )

    def take_values(self, rows: Numbers) -> pa.RecordBatch:
        """Values of these rows, without their keys."""
        self._check_range(rows)
        records = self._gathered(rows)
        self._check_live(records[:, 0])
        return pa.RecordBatch.from_arrays(self._values_of(records), schema=self.schema.values)

    def put(self, rows: Numbers, values: pa.RecordBatch) -> None:
        """Sets all values of these rows, or those of some columns; of a row twice, the last."""
        for field in values.schema:
            self._column(field.name)
        check_columns(
            values, pa.schema([self.schema.values.field(n) for n in values.schema.names]), "values"
        )
        if len(rows) != values.num_rows:
            raise InvalidInput(f"{values.num_rows} values for {len(rows)} rows", hint="one for one")
        self.touch(rows)
        self._put(rows, values)

    def touch(self, rows: Numbers) -> None:
        """Marks rows as changed in this step."""
        self._check_range(rows)
        self._change()
        touched = np.empty(len(rows), np.int64)
        are_live = index_loops.touch_rows(self._arena.tables, _numbers(rows), touched)
        self._note(touched)
        if not are_live:
            raise _removed()

    def remove(self, rows: Numbers) -> None:
        self._check_range(rows)
        self._check_live(self._byte(0)[rows])
        self._change()
        if self._arena.wheel is not None:
            self._arena.wheel.take_out(_numbers(rows))
        if self._arena.groups is not None:
            self._chains.count_out(_numbers(rows))
        touched = np.empty(len(rows), np.int64)
        index_loops.remove_rows(self._arena.tables, _numbers(rows), touched)
        self._note(touched)

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """Keys and values of every row there is, by reading all of the state."""
        return (self._batch(rows) for rows in self._live_rows())

    def rows_by_bucket(self, buckets: int, *, copies: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The same in parts, with the bucket that they belong to when there are so many.

        Rows that are copied come once for each of them, or without `copies` not at all.
        """
        for rows in self._live_rows():
            keys = self._arena.layout.key.decode(self._keys_at(rows))
            batch = pa.RecordBatch.from_arrays(keys, schema=self.schema.keys)
            targets = self.schema.buckets_of(batch, buckets)
            copied = self.schema.are_copied(batch)
            if copies and copied.any():
                everywhere = self._batch(rows[copied])
                yield from ((bucket, everywhere) for bucket in range(buckets))
            rows, targets = rows[~copied], targets[~copied]
            for bucket in np.unique(targets).tolist():
                yield bucket, self._batch(rows[targets == bucket])

    def _live_rows(self) -> Iterator[Numbers]:
        flags = self._byte(0)
        for first in range(0, self._arena.rows_end, _SCAN_ROWS):
            end = min(first + _SCAN_ROWS, self._arena.rows_end)
            yield from self._pieces(first + np.flatnonzero(flags[first:end] & LIVE))

    # What a version is written from and read into.

    def _changes(self) -> Iterator[pa.RecordBatch]:
        """What the step changed, as batches of a file. Removed rows come after all others."""
        rows = self._in_order(self._touched_rows())
        flags = self._byte(0)[rows]
        removed = rows[flags & (LIVE | FRESH) == 0]
        for piece in self._pieces(np.concatenate([rows[flags & LIVE != 0], removed])):
            gone = self._byte(0)[piece] & LIVE == 0
            yield self.schema.file_batch(self._batch(piece), gone)

    def _everything(self) -> Iterator[pa.RecordBatch]:
        """All rows there are, as batches of a file."""
        rows = np.concatenate([np.empty(0, np.int64), *self._live_rows()])
        for piece in self._pieces(self._in_order(rows)):
            yield self.schema.file_batch(self._batch(piece))

    def _in_order(self, rows: Numbers) -> Numbers:
        """An order that only the keys decide: whoever takes the step writes the same file."""
        keys = self._keys_at(rows)
        return rows[order_of(keys, hashes_of(keys))]

    def _changed_count(self) -> int:
        """How many rows `_changes` has: without those that came and went in this step."""
        flags = self._byte(0)[self._touched_rows()]
        return int(np.count_nonzero((flags & LIVE != 0) | (flags & FRESH == 0)))

    def _apply(self, batch: pa.RecordBatch) -> None:
        """Makes the changes of a batch of a file."""
        layout = self._arena.layout.key
        removed = np.count_nonzero(fixed_width.numbers(batch.columns[-1]))
        kept = batch.slice(0, batch.num_rows - removed)
        rows = self._add(kept)
        self._put(rows, kept.select(self.schema.values.names))
        if removed:
            rows = self._find(layout.encode(batch.slice(kept.num_rows)))
            self.remove(rows[rows >= 0])

    def _change(self) -> None:
        if not self._in_step:
            self._arena.begin_step()
            self._in_step = True

    def _settle(self) -> None:
        """Ends the step for the rows it touched, and frees those it removed."""
        rows = self._touched_rows()
        index_loops.settle_rows(self._arena.tables, _numbers(rows))
        gone = rows[self._byte(0)[rows] & LIVE == 0]
        if self._arena.groups is not None:
            self._chains.unlink(_numbers(gone))
        hashes = hashes_of(self._keys_at(gone))
        if index_loops.release_rows(self._arena.tables, _numbers(gone), hashes) < 0:
            raise self._arena.damaged()
        self._touched.clear()
        self._in_step = False

    def _touched_rows(self) -> Numbers:
        return np.concatenate(self._touched) if self._touched else np.empty(0, np.int64)

    def _note(self, touched: Numbers) -> None:
        count = int(self._arena.head[TOUCHED])
        self._arena.head[TOUCHED] = 0
        if count:
            self._touched.append(touched[:count])

    def _find(self, keys: Keys) -> Numbers:
        rows = np.empty(len(keys.nulls), np.int64)
        if index_loops.find_keys(self._arena.tables, keys, hashes_of(keys), rows) < 0:
            raise self._arena.damaged()
        return rows

    def _add(self, batch: pa.RecordBatch) -> Numbers:
        self._change()
        keys = self._arena.layout.key.encode(batch)
        hashes = hashes_of(keys)
        rows, touched = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        done = 0
        while True:
            done = index_loops.add_keys(self._arena.tables, keys, hashes, done, rows, touched)
            if done < 0:
                raise self._arena.damaged()
            if done == len(hashes):
                break
            self._arena.make_room(rows=1, heap=int(keys.sizes[done]) if keys.tail else 0)
        self._note(touched)
        if self._arena.groups is not None:
            self._chains.link(rows, batch)
        return rows

    def _put(self, rows: Numbers, values: pa.RecordBatch) -> None:
        layout = self._arena.layout
        every = len(values.schema) == len(self.schema.values)
        block = self._block(rows, empty=every)
        for name, array in zip(values.schema.names, values.columns, strict=True):
            column = self._column(name)
            valid = fixed_width.validity(array)
            if column.dtype is None:
                self._put_cells(column, rows, array, valid)
            else:
                at = column.at - (layout.fixed_at - 1) * 8
                _view(block, column.dtype, at)[:] = fixed_width.numbers(array)
            at = column.valid_at
            at -= 0 if at < 8 else (layout.fixed_at - 1) * 8
            _view(block, np.dtype(np.bool_), at)[:] = valid
        if self._arena.wheel is not None and self.schema.due in values.schema.names:
            dues = values.column(self.schema.due)
            self._arena.wheel.move(
                _numbers(rows), fixed_width.numbers(dues), fixed_width.validity(dues)
            )
        index_loops.scatter_values(self._arena.tables, _numbers(rows), frozen(block.reshape(-1)))

    def _block(self, rows: Numbers, *, empty: bool) -> Numbers:
        """The meta word and the values of fixed width of each row, or zeros to be filled."""
        layout = self._arena.layout
        count = layout.stride - layout.fixed_at
        if empty:
            return np.zeros((len(rows), 1 + count), np.int64)
        return np.hstack([self._words(rows, 0, 1), self._words(rows, layout.fixed_at, count)])

    def _put_cells(self, column: Column, rows: Numbers, array: pa.Array, valid: Mask) -> None:
        data, starts, sizes = cells.to_cells(array)
        sizes = np.where(valid, sizes, 0)
        self._arena.make_room(heap=int(sizes.sum()))
        places = np.empty(len(rows), np.int64)
        tables = self._arena.tables
        if not (
            index_loops.place_cells(tables, column.at // 8, _numbers(rows), sizes, places)
            and cells.copy(data, starts, sizes, tables.heap, places)
        ):
            raise self._arena.damaged()

    # Where things are.

    @property
    def _chains(self) -> Chains:
        groups = self._arena.groups
        if groups is None or self.schema.groups is None:
            raise InvalidInput("the state has no groups", hint="StateSchema(..., grouped=...)")
        if self._linked is None or self._linked.arena is not self._arena:
            self._linked = Chains(self._arena, Rows(self.schema.groups, groups))
        return self._linked

    def _column(self, name: str) -> Column:
        column = self._arena.layout.columns.get(name)
        if column is None:
            raise InvalidInput(
                f"the state has no values {name!r}",
                hint=f"it has {', '.join(self._arena.layout.columns) or 'none'}",
            )
        return column

    def _column_in_place(self, name: str) -> Column:
        if name == self.schema.due:
            raise InvalidInput(
                f"{name!r} says when rows are due and cannot be changed in place", hint="use put"
            )
        return self._column(name)

    def _check_range(self, rows: Numbers) -> None:
        if len(rows) and (rows.min() < 0 or rows.max() >= self._arena.rows_end):
            raise InvalidInput(
                "a row number is none of the state's", hint="find gives -1 for a key without row"
            )

    def _check_live(self, flags: NDArray[np.integer[Any]]) -> None:
        if not (flags & LIVE).all():
            raise _removed()

    def _byte(self, at: int) -> Bytes:
        return self._view(np.dtype(np.uint8), at)

    def _view(self, dtype: np.dtype[Scalar], at: int) -> NDArray[Scalar]:
        return _view(self._arena.records.reshape(-1, self._arena.layout.stride), dtype, at)

    def _values(self, column: Column) -> fixed_width.Values:
        assert column.dtype is not None
        return self._view(column.dtype, column.at)

    def _valid(self, column: Column) -> Mask:
        return self._view(np.dtype(np.bool_), column.valid_at)

    def _words(self, rows: Numbers, at: int, count: int) -> Numbers:
        words = np.empty((len(rows), count), np.int64)
        index_loops.gather_words(self._arena.tables, at, count, _numbers(rows), words.reshape(-1))
        return words

    def _gathered(self, rows: Numbers) -> Numbers:
        """The rows as they are, one below the other: every part of them is at hand then."""
        return self._words(rows, 0, self._arena.layout.stride)

    def _cells_of(self, records: Numbers, at: int) -> Cells:
        heap = frozen(self._arena.tables.heap)
        return Cells(heap, records[:, at].copy(), records[:, at + 1].copy())

    def _keys_of(self, records: Numbers) -> Keys:
        layout = self._arena.layout.key
        words = records[:, 1 : 1 + layout.width].flatten()
        tail = self._cells_of(records, 1 + layout.width) if layout.has_tail else NO_TAILS
        return layout.keys(words, _view(records, np.dtype(np.uint8), 1).copy(), tail)

    def _keys_at(self, rows: Numbers) -> Keys:
        layout = self._arena.layout.key
        return self._keys_of(self._words(rows, 0, 1 + layout.width + 2 * layout.has_tail))

    def _values_of(self, records: Numbers) -> list[pa.Array]:
        arrays: list[pa.Array] = []
        for column in self._arena.layout.columns.values():
            valid = _view(records, np.dtype(np.bool_), column.valid_at).copy()
            if column.dtype is not None:
                values = _view(records, column.dtype, column.at)
                arrays.append(fixed_width.from_numbers(column.kind, values, valid))
            else:
                places = self._cells_of(records, column.at // 8)
                arrays.append(cells.from_cells(column.kind, places, valid))
        return arrays

    def _batch_of(self, records: Numbers) -> pa.RecordBatch:
        keys: list[pa.Array] = self._arena.layout.key.decode(self._keys_of(records))
        return pa.RecordBatch.from_arrays(
            keys + self._values_of(records), schema=self.schema.columns
        )

    def _batch(self, rows: Numbers) -> pa.RecordBatch:
        return self._batch_of(self._gathered(rows))

    def _pieces(self, rows: Numbers) -> Iterator[Numbers]:
        """The rows in pieces that are small enough for an Arrow batch."""
        layout = self._arena.layout
        spans = [1 + layout.key.width] if layout.key.has_tail else []
        spans += [column.at // 8 for column in layout.columns.values() if column.dtype is None]
        while len(rows):
            piece = rows[:_CHUNK_ROWS]
            if spans:
                held = np.cumsum(sum(self._words(piece, at + 1, 1)[:, 0] for at in spans))
                piece = piece[: max(1, int(np.searchsorted(held, _CHUNK_BYTES)))]
            yield piece
            rows = rows[len(piece) :]


def _view(records: Numbers, dtype: np.dtype[Scalar], at: int) -> NDArray[Scalar]:
    """What stands at this byte of each of the records, which are the rows of an array."""
    parts = records.view(np.uint8)[:, at : at + dtype.itemsize].view(dtype.base)
    return parts if dtype.shape else parts[:, 0]


def _removed() -> InvalidInput:
    return InvalidInput("a row was removed", hint="find its key again, or add it")


def _numbers(rows: Numbers) -> Numbers:
    return frozen(np.ascontiguousarray(rows, np.int64))
