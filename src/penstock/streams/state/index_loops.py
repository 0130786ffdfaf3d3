"""The compiled walks over an arena: from a key to its row, and rows that come and go.

The index is open addressing with linear probing. An entry is the upper half of the key's hash, the
fragment, above the row number plus one; 0 is an empty slot. A key's home is given by the highest
bits of its fragment, so that the index can be doubled in one pass without looking at a row, and an
entry can be taken out by moving back those behind it, without marks that pile up.

A row is `stride` words of the records. Word 0 is its meta word:

    bits  0-7   LIVE, FRESH (was not there when the step began), NEW (was added in this step)
    bits  8-15  which parts of the key are null
    bits 16-31  two bytes for the validity of values
    bits 32-63  the step that touched the row last

Then come the words of the key, place and size of its tail in the heap if it has one, place and size
of every value in the heap, and the values of fixed width. In a free row the meta word holds the
next free row plus one, above 8 zero bits, and the words of values are zero, as in a row never used.

Compiled code checks no index by itself. Slots come from a hash and the size of the index; row
numbers and places come from a file, and are compared with what there is before they are used: the
answer is then DAMAGED.
"""

from typing import NamedTuple

import numpy as np

from penstock.events.compiled import Bytes, Hashes, Number, Numbers, inlined, kernel
from penstock.streams.state.key_loops import Keys, load_word

# What the kernels count in the head of an arena.
USED, FREE, ENTRIES, LIVE_ROWS, STEP, TOUCHED, HEAP_END, GARBAGE, POSITION = range(9)
COUNTERS = 9

LIVE, FRESH, NEW = 1, 2, 4
STEP_SHIFT = 32
DAMAGED = -1

_AHEAD = 32  # keys
_NULLS_SHIFT = 8
_VALUE_BITS = 0xFFFF0000
_BELOW_STEP = 0xFFFFFFFF
_32 = np.uint64(32)
_ROW = np.uint64(0xFFFFFFFF)
_EMPTY = np.uint64(0)


class Tables(NamedTuple):
    """The mapped parts of an arena, as long as none of them grows."""

    entries: Hashes  # of the index
    records: Numbers
    heap: Bytes
    head: Numbers
    shift: int  # from a fragment to its home in the index
    most: int  # entries that the index may have
    stride: int
    width: int  # words of the key
    tail: bool
    cells: int  # values in the heap


@inlined
def _row_of(entry: np.uint64) -> np.int64:
    return np.int64(entry & _ROW) - 1


@inlined
def _holds(tables: Tables, at: Number, keys: Keys, i: int) -> bool:
    """Whether the row at this word of the records has key number `i`, compared in full."""
    records = tables.records
    if (records[np.uint64(at)] >> _NULLS_SHIFT) & 0xFF != keys.nulls[np.uint64(i)]:
        return False
    for j in range(keys.width):
        if records[np.uint64(at + 1 + j)] != keys.words[np.uint64(i * keys.width + j)]:
            return False
    if keys.tail:
        size = keys.sizes[np.uint64(i)]
        start = keys.starts[np.uint64(i)]
        place = records[np.uint64(at + 1 + keys.width)]
        if (
            records[np.uint64(at + 2 + keys.width)] != size
            or place < 0
            or place > tables.heap.shape[0] - size
        ):
            return False
        whole = size & ~7
        for byte in range(0, whole, 8):
            if load_word(tables.heap, place + byte, 8) != load_word(keys.data, start + byte, 8):
                return False
        for byte in range(whole, size):
            if tables.heap[np.uint64(place + byte)] != keys.data[np.uint64(start + byte)]:
                return False
    return True


@inlined
def _look_ahead(tables: Tables, keys: Keys, hashes: Hashes, begin: int, rows: Numbers) -> None:
    """Reads what the next keys most likely need, so that the memory works on all of it at once.

    In the search itself each step waits for the one before. What is read goes to `rows`, where the
    result will be, only so that the compiler does not leave out the reading.
    """
    end = min(begin + _AHEAD, hashes.shape[0])
    last = max(min(tables.head[USED], tables.records.shape[0] // tables.stride) - 1, 0)
    for i in range(begin, end):
        slot = (hashes[np.uint64(i)] >> _32) >> np.uint64(tables.shift)
        rows[np.uint64(i)] = _row_of(tables.entries[slot])
    for i in range(begin, end):
        row = min(max(rows[np.uint64(i)], 0), last)
        at = row * tables.stride + (1 + keys.width if keys.tail else 0)
        rows[np.uint64(i)] = tables.records[np.uint64(at)]
    if keys.tail:
        for i in range(begin, end):
            place = min(max(rows[np.uint64(i)], 0), tables.heap.shape[0] - 1)
            rows[np.uint64(i)] = tables.heap[np.uint64(place)]


@kernel
def find_keys(tables: Tables, keys: Keys, hashes: Hashes, rows: Numbers) -> int:
    """The row of each key, -1 for one that has none. Returns DAMAGED or how many keys there are."""
    slots = tables.entries.shape[0]
    used = min(tables.head[USED], tables.records.shape[0] // tables.stride)
    for i in range(hashes.shape[0]):
        if i % _AHEAD == 0:
            _look_ahead(tables, keys, hashes, i, rows)
        fragment = hashes[np.uint64(i)] >> _32
        slot = np.int64(fragment >> np.uint64(tables.shift))
        rows[np.uint64(i)] = -1
        for _ in range(slots):
            entry = tables.entries[np.uint64(slot)]
            if entry == _EMPTY:
                break
            if entry >> _32 == fragment:
                row = _row_of(entry)
                if row < 0 or row >= used:
                    return DAMAGED
                at = row * tables.stride
                if _holds(tables, at, keys, i):
                    if tables.records[np.uint64(at)] & LIVE:
                        rows[np.uint64(i)] = row
                    break
            slot = (slot + 1) & (slots - 1)
    return len(hashes)


@inlined
def _touch(tables: Tables, row: Number, touched: Numbers) -> None:
    head = tables.head
    at = np.uint64(row * tables.stride)
    meta = tables.records[at]
    if meta >> STEP_SHIFT != head[STEP]:
        tables.records[at] = (meta & _BELOW_STEP) | (head[STEP] << STEP_SHIFT)
        touched[np.uint64(head[TOUCHED])] = row
        head[TOUCHED] += 1


@kernel
def add_keys(
    tables: Tables, keys: Keys, hashes: Hashes, begin: int, rows: Numbers, touched: Numbers
) -> int:
    """The row of each key from `begin` on, made for those that have none; each is touched.

    Returns the key before which it stopped for want of room, or how many there are, or DAMAGED.
    Rows not touched before in this step go to `touched`, from head[TOUCHED] on.
    """
    head, records, stride = tables.head, tables.records, tables.stride
    slots = tables.entries.shape[0]
    capacity = records.shape[0] // stride
    if head[USED] > capacity:
        return DAMAGED
    for i in range(begin, hashes.shape[0]):
        if i % _AHEAD == 0:
            _look_ahead(tables, keys, hashes, i, rows)
        fragment = hashes[np.uint64(i)] >> _32
        slot = np.int64(fragment >> np.uint64(tables.shift))
        row = np.int64(-1)
        for _ in range(slots):
            entry = tables.entries[np.uint64(slot)]
            if entry == _EMPTY:
                break
            if entry >> _32 == fragment:
                candidate = _row_of(entry)
                if candidate < 0 or candidate >= head[USED]:
                    return DAMAGED
                if _holds(tables, candidate * stride, keys, i):
                    row = candidate
                    break
            slot = (slot + 1) & (slots - 1)
        if row >= 0:
            at = np.uint64(row * stride)
            if not records[at] & LIVE:  # removed earlier in this step
                records[at] |= LIVE | NEW
                head[LIVE_ROWS] += 1
            _touch(tables, row, touched)
        else:
            size = keys.sizes[np.uint64(i)] if keys.tail else np.int64(0)
            if (
                head[ENTRIES] >= tables.most
                or (head[FREE] == 0 and head[USED] >= capacity)
                or size > tables.heap.shape[0] - head[HEAP_END]
            ):
                return i
            if head[FREE] == 0:
                row = head[USED]
                head[USED] += 1
            else:
                row = head[FREE] - 1
                if row < 0 or row >= head[USED]:
                    return DAMAGED
                head[FREE] = records[np.uint64(row * stride)] >> 8
            at = np.uint64(row * stride)
            records[at] = LIVE | FRESH | NEW | (np.int64(keys.nulls[np.uint64(i)]) << _NULLS_SHIFT)
            for j in range(keys.width):
                records[at + np.uint64(1 + j)] = keys.words[np.uint64(i * keys.width + j)]
            if keys.tail:
                place = head[HEAP_END]
                start = keys.starts[np.uint64(i)]
                records[at + np.uint64(1 + keys.width)] = place
                records[at + np.uint64(2 + keys.width)] = size
                for byte in range(size):
                    tables.heap[np.uint64(place + byte)] = keys.data[np.uint64(start + byte)]
                head[HEAP_END] += size
            tables.entries[np.uint64(slot)] = (fragment << _32) | np.uint64(row + 1)
            head[ENTRIES] += 1
            head[LIVE_ROWS] += 1
            _touch(tables, row, touched)
        rows[np.uint64(i)] = row
    return len(hashes)


# Of the rows that the kernels below are given, the caller has made sure that they are in use.


@kernel
def touch_rows(tables: Tables, rows: Numbers, touched: Numbers) -> bool:
    """Returns False at a row that was removed, having touched those before."""
    for i in range(rows.shape[0]):
        row = rows[np.uint64(i)]
        if not tables.records[np.uint64(row * tables.stride)] & LIVE:
            return False
        _touch(tables, row, touched)
    return True


@kernel
def remove_rows(tables: Tables, rows: Numbers, touched: Numbers) -> None:
    """Empties the values; the key stays, for the delta, until the row is released."""
    head, records, stride = tables.head, tables.records, tables.stride
    values = 1 + tables.width + (2 if tables.tail else 0)
    for i in range(rows.shape[0]):
        row = rows[np.uint64(i)]
        at = np.uint64(row * stride)
        if records[at] & LIVE:
            _touch(tables, row, touched)
            records[at] &= ~(LIVE | NEW | _VALUE_BITS)
            head[LIVE_ROWS] -= 1
            for cell in range(tables.cells):
                head[GARBAGE] += records[at + np.uint64(values + 2 * cell + 1)]
            for j in range(values, stride):
                records[at + np.uint64(j)] = 0


@kernel
def gather_words(tables: Tables, at_word: int, count: int, rows: Numbers, words: Numbers) -> None:
    """So many words of each row, from one on, side by side."""
    for i in range(rows.shape[0]):
        at = rows[np.uint64(i)] * tables.stride + at_word
        for j in range(count):
            words[np.uint64(i * count + j)] = tables.records[np.uint64(at + j)]


@kernel
def scatter_values(tables: Tables, rows: Numbers, words: Numbers) -> None:
    """Sets the values of fixed width of each row, and all validity.

    Given are, side by side, a word with the two bytes of validity that the meta word has, and then
    all words from the first value of fixed width on.
    """
    records, stride = tables.records, tables.stride
    first = 1 + tables.width + (2 if tables.tail else 0) + 2 * tables.cells
    count = 1 + stride - first
    for i in range(rows.shape[0]):
        at = np.uint64(rows[np.uint64(i)] * stride)
        source = np.uint64(i * count)
        records[at] = (records[at] & ~_VALUE_BITS) | (words[source] & _VALUE_BITS)
        for j in range(1, count):
            records[at + np.uint64(first + j - 1)] = words[source + np.uint64(j)]


@kernel
def settle_rows(tables: Tables, rows: Numbers) -> None:
    """Ends the step for these rows: what is live is neither fresh nor new any more."""
    for i in range(rows.shape[0]):
        at = np.uint64(rows[np.uint64(i)] * tables.stride)
        if tables.records[at] & LIVE:
            tables.records[at] &= ~(FRESH | NEW)


@kernel
def release_rows(tables: Tables, rows: Numbers, hashes: Hashes) -> int:
    """Takes removed rows out of the index and frees them.

    Returns how many, or DAMAGED when the index has no entry for one.
    """
    head, entries = tables.head, tables.entries
    slots = entries.shape[0]
    for i in range(rows.shape[0]):
        row = rows[np.uint64(i)]
        slot = np.int64((hashes[np.uint64(i)] >> _32) >> np.uint64(tables.shift))
        for _ in range(slots):
            if entries[np.uint64(slot)] & _ROW == np.uint64(row + 1):
                break
            if entries[np.uint64(slot)] == _EMPTY:
                return DAMAGED
            slot = (slot + 1) & (slots - 1)
        hole = slot
        for _ in range(slots):
            slot = (slot + 1) & (slots - 1)
            entry = entries[np.uint64(slot)]
            if entry == _EMPTY:
                break
            home = np.int64((entry >> _32) >> np.uint64(tables.shift))
            if (slot - home) & (slots - 1) >= (slot - hole) & (slots - 1):
                entries[np.uint64(hole)] = entry
                hole = slot
        entries[np.uint64(hole)] = _EMPTY
        at = np.uint64(row * tables.stride)
        if tables.tail:
            head[GARBAGE] += tables.records[at + np.uint64(2 + tables.width)]
        tables.records[at] = head[FREE] << 8
        head[FREE] = row + 1
        head[ENTRIES] -= 1
    return len(rows)


@kernel
def place_cells(
    tables: Tables, at_word: int, rows: Numbers, sizes: Numbers, places: Numbers
) -> bool:
    """Where in the heap new values of these sizes go: over the old one, or behind everything.

    Place and size stand at this word of each row. The caller has made room for all of them. Returns
    False at an old one that does not lie in the heap.
    """
    head = tables.head
    for i in range(rows.shape[0]):
        at = np.uint64(rows[np.uint64(i)] * tables.stride + at_word)
        size = sizes[np.uint64(i)]
        place = tables.records[at]
        before = tables.records[at + np.uint64(1)]
        if before < 0 or place < 0 or place > tables.heap.shape[0] - before:
            return False
        if size <= before:
            head[GARBAGE] += before - size
        else:
            head[GARBAGE] += before
            place = head[HEAP_END]
            head[HEAP_END] += size
            tables.records[at] = place
        tables.records[at + np.uint64(1)] = size
        places[np.uint64(i)] = place
    return True


@kernel
def widen_index(old: Hashes, new: Hashes, shift: int) -> None:
    """Fills an empty index that is larger with the entries of the old one."""
    slots = new.shape[0]
    for i in range(old.shape[0]):
        entry = old[np.uint64(i)]
        if entry != _EMPTY:
            slot = np.int64((entry >> _32) >> np.uint64(shift))
            while new[np.uint64(slot)] != _EMPTY:
                slot = (slot + 1) & (slots - 1)
            new[np.uint64(slot)] = entry
