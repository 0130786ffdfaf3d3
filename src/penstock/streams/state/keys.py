"""Keys of any type as words and bytes that compare and hash alike on every host.

    bucket_of(batch.select(["customer"]), buckets=8)        # in which bucket each row belongs

Columns of fixed width become words that stand in the row itself, which is quick; up to seven of
them, as each needs a bit for its nulls. The others share the tail, which lies in the heap.
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InvalidInput, StateDamaged
from penstock.events.compiled import Bytes, Hashes, Mask, Number, Numbers, frozen
from penstock.streams.state import cells, fixed_width
from penstock.streams.state.cells import Cells
from penstock.streams.state.key_loops import Keys, hash_each

_WORD = 8  # bytes
_INLINE_COLUMNS = 7
_INLINE_BYTES = 32
_TAIL_BIT = np.uint8(1 << _INLINE_COLUMNS)
_LOW_HALF = np.uint64(0xFFFFFFFF)


def bucket_of(keys: pa.RecordBatch, buckets: int) -> NDArray[np.int32]:
    """The bucket of each row, from 0 on; without columns it is 0.

    A change of this would orphan all state there is.
    """
    if buckets < 1:
        raise InvalidInput(f"{buckets} buckets cannot hold anything", hint="use at least 1")
    if not keys.schema.names:
        return np.zeros(keys.num_rows, np.int32)
    hashes = hashes_of(key_layout(keys.schema).encode(keys))
    # The lower half of the hash, as the upper half makes the index inside the bucket.
    return (((hashes & _LOW_HALF) * np.uint64(buckets)) >> np.uint64(32)).astype(np.int32)


def hashes_of(keys: Keys) -> Hashes:
    hashes = np.empty(len(keys.nulls), np.uint64)
    if not hash_each(keys, hashes):
        raise StateDamaged(
            "a key does not lie where its row says",
            hint="run the step again: what is kept on this host is built anew then",
        )
    return hashes


def order_of(keys: Keys, hashes: Hashes) -> Numbers:
    """Puts keys into an order that depends on nothing but the keys.

    It is by hash, as that is quick, with its halves swapped: rows that come in the order of the
    index would fill its front long before it counts as full. Keys with the same hash are compared.
    """
    swapped = (hashes << np.uint64(32)) | (hashes >> np.uint64(32))
    order = np.argsort(swapped)
    swapped = swapped[order]
    same = np.flatnonzero(swapped[1:] == swapped[:-1])
    if len(same):
        tied = np.unique(np.concatenate([same, same + 1]))
        tied_keys = [(int(swapped[i]), *comparable(keys, order[i]), int(order[i])) for i in tied]
        order[tied] = [key[-1] for key in sorted(tied_keys)]
    return order


def comparable(keys: Keys, i: Number) -> tuple[int, list[int], bytes]:
    words = keys.words[i * keys.width : (i + 1) * keys.width].tolist()
    if not keys.tail:
        return int(keys.nulls[i]), words, b""
    start = keys.starts[i]
    return int(keys.nulls[i]), words, keys.data[start : start + keys.sizes[i]].tobytes()


NO_TAILS = Cells(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


class KeyLayout:
    """How keys of these columns are laid out: `width` words and, if `has_tail`, a tail."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._inline: list[tuple[int, int]] = []  # column and how many words it takes
        self._rest: list[int] = []
        for column, field in enumerate(schema):
            dtype = fixed_width.dtype_of(field.type)
            if (
                dtype is not None
                and 0 < dtype.itemsize <= _INLINE_BYTES
                and len(self._inline) < _INLINE_COLUMNS
            ):
                self._inline.append((column, -(-dtype.itemsize // _WORD)))
            else:
                self._rest.append(column)
        self._tail_fields = [pa.field(str(i), schema[i].type) for i in self._rest]
        self.width = sum(words for _, words in self._inline)
        self.has_tail = bool(self._rest)

    def encode(self, batch: pa.RecordBatch) -> Keys:
        length = batch.num_rows
        nulls = np.zeros(length, np.uint8)
        columns: list[Numbers] = []
        for bit, (column, _) in enumerate(self._inline):
            array = batch.column(column)
            columns.append(_to_words(fixed_width.canonical(fixed_width.numbers(array))))
            if array.null_count:
                nulls |= (~fixed_width.validity(array)).astype(np.uint8) << np.uint8(bit)
        tail = NO_TAILS
        if self._rest:
            array = self._tail_array(batch)
            tail = cells.to_cells(array, as_key=True)
            if array.null_count:
                nulls |= (~fixed_width.validity(array)).astype(np.uint8) * _TAIL_BIT
        return self.keys(_side_by_side(columns), nulls, tail)

    def keys(self, words: Numbers, nulls: Bytes, tail: Cells) -> Keys:
        return Keys(
            frozen(words),
            frozen(nulls),
            frozen(tail.data),
            frozen(tail.starts),
            frozen(tail.sizes),
            self.width,
            self.has_tail,
        )

    def _tail_array(self, batch: pa.RecordBatch) -> pa.Array:
        arrays = [batch.column(column) for column in self._rest]
        if len(arrays) == 1:
            return arrays[0]
        return pa.StructArray.from_arrays(arrays, fields=self._tail_fields)

    def decode(self, keys: Keys) -> list[pa.Array]:
        """The columns of these keys, in the order of the schema."""
        columns: dict[int, pa.Array] = {}
        words = keys.words.reshape(len(keys.nulls), self.width)
        first = 0
        for bit, (column, count) in enumerate(self._inline):
            kind = self.schema[column].type
            values = _from_words(kind, words[:, first : first + count])
            columns[column] = fixed_width.from_numbers(kind, values, _no_bit(keys.nulls, 1 << bit))
            first += count
        if self._rest:
            tail = Cells(keys.data, keys.starts, keys.sizes)
            valid = _no_bit(keys.nulls, int(_TAIL_BIT))
            if len(self._rest) == 1:
                columns[self._rest[0]] = cells.from_cells(self._tail_fields[0].type, tail, valid)
            else:
                together = cells.from_cells(pa.struct(self._tail_fields), tail, valid)
                columns.update(zip(self._rest, together.flatten(), strict=True))
        return [columns[i] for i in range(len(self.schema))]


def _no_bit(nulls: Bytes, bit: int) -> Mask:
    return ~(nulls & np.uint8(bit)).astype(np.bool_)


def _side_by_side(columns: list[Numbers]) -> Numbers:
    if len(columns) == 1:
        return columns[0].reshape(-1)
    return np.hstack(columns).reshape(-1) if columns else np.empty(0, np.int64)


def _to_words(values: fixed_width.Values) -> Numbers:
    """An array of two dimensions, of the words of each value."""
    dtype = values.dtype
    if values.ndim == 2 and dtype == np.uint8:
        padded = np.zeros((len(values), -(-values.shape[1] // _WORD) * _WORD), np.uint8)
        padded[:, : values.shape[1]] = values
        return padded.view(np.int64)
    if dtype.kind == "f":
        values = values.view(f"i{dtype.itemsize}")
    words = values.view(np.int64) if values.dtype.itemsize == _WORD else values.astype(np.int64)
    return words.reshape(len(values), -1 if len(values) else 1)


def _from_words(kind: pa.DataType, words: Numbers) -> fixed_width.Values:
    dtype = fixed_width.dtype_of(kind)
    assert dtype is not None
    words = np.ascontiguousarray(words)
    if dtype.base == np.uint8 and dtype.shape:
        return words.view(np.uint8)[:, : dtype.shape[0]]
    if dtype.shape:
        return words
    if dtype == np.bool_:
        return words[:, 0].astype(np.bool_)
    return words[:, 0].astype(f"i{dtype.itemsize}").view(dtype)


key_layout = lru_cache(maxsize=256)(KeyLayout)
