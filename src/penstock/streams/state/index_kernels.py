"""The compiled walks over an arena: from a key to its row, and rows that come and go.

The index is open addressing with linear probing. An entry is the upper half of the key's hash, the
fragment, above the row number plus one; 0 is an empty slot. A key's home is given by the highest
bits of its fragment, so that the index can be doubled in one pass without looking at a row, and an
entry can be taken out by moving back those behind it, without marks that pile up.

A row is `stride` words of the records. Word 0 is its meta word:

    bits  0-7   LIVE, FRESH (was not there when the step began), NEW (was added in this step)
    bits  8-15  which parts of the key are null
    bits 16-31  two bytes that the layout of values may use
    bits 32-63  the step that touched the row last

then come the words of the key, place and size of its tail in the heap when it has one, place and
size of every value in the heap, and the values of fixed width. In a free row the meta word holds
the next free row plus one, above 8 zero bits.

Compiled code checks no index by itself. Slots come from a hash and the size of the index; row
numbers and places come from a file, and are compared with what there is before they are used: the
answer is then DAMAGED.
"""

import numpy as np

from penstock.streams.state.compiled import Bytes, Hashes, Numbers, inlined, kernel

# What the kernels keep in the head of an arena.
USED, FREE, ENTRIES, LIVE_ROWS, STEP, TOUCHED, HEAP_END, GARBAGE = range(8)

LIVE, FRESH, NEW = 1, 2, 4
VALUE_BITS = 0xFFFF0000  # of the meta word
STEP_SHIFT = 32
LEAST_SLOTS = 1 << 10
MOST_ROWS = (1 << 31) - 1

DAMAGED = -1

_32 = np.uint64(32)
_ROW = np.uint64(0xFFFFFFFF)
_EMPTY = np.uint64(0)


@inlined
def _holds(
    records: Numbers,
    at: int,
    width: int,
    tail: bool,
    heap: Bytes,
    words: Numbers,
    nulls: Bytes,
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    i: int,
) -> bool:
    """Whether the row at this word of the records has key number `i`, compared in full."""
    if (records[np.uint64(at)] >> 8) & 0xFF != nulls[np.uint64(i)]:
        return False
    for j in range(width):
        if records[np.uint64(at + 1 + j)] != words[np.uint64(i * width + j)]:
            return False
    if tail:
        size = sizes[np.uint64(i)]
        start = starts[np.uint64(i)]
        place = records[np.uint64(at + 1 + width)]
        if (
            records[np.uint64(at + 2 + width)] != size
            or place < 0
            or place > heap.shape[0] - size
        ):
            return False
        for byte in range(size):
            if heap[np.uint64(place + byte)] != data[np.uint64(start + byte)]:
                return False
    return True


@kernel
def find_keys(
    index: Hashes,
    shift: int,
    records: Numbers,
    stride: int,
    width: int,
    tail: bool,
    heap: Bytes,
    head: Numbers,
    hashes: Hashes,
    words: Numbers,
    nulls: Bytes,
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    rows: Numbers,
) -> int:
    """The row of each key, -1 for one that has none. Returns DAMAGED or how many keys there are."""
    mask = index.shape[0] - 1
    used = min(head[USED], records.shape[0] // stride)
    for i in range(hashes.shape[0]):
        fragment = hashes[np.uint64(i)] >> _32
        slot = np.int64(fragment >> np.uint64(shift))
        rows[np.uint64(i)] = -1
        for _ in range(index.shape[0]):
            entry = index[np.uint64(slot)]
            if entry == _EMPTY:
                break
            if entry >> _32 == fragment:
                row = np.int64(entry & _ROW) - 1
                if row < 0 or row >= used:
                    return DAMAGED
                at = row * stride
                if _holds(
                    records, at, width, tail, heap, words, nulls, data, starts, sizes, i
                ):
                    if records[np.uint64(at)] & LIVE:
                        rows[np.uint64(i)] = row
                    break
            slot = (slot + 1) & mask
    return hashes.shape[0]


@kernel
def add_keys(
    index: Hashes,
    shift: int,
    records: Numbers,
    stride: int,
    width: int,
    tail: bool,
    heap: Bytes,
    head: Numbers,
    hashes: Hashes,
    words: Numbers,
    nulls: Bytes,
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    begin: int,
    rows: Numbers,
    touched: Numbers,
) -> int:
    """The row of each key from `begin` on, made for those that have none; each counts as touched.

    Returns the key before which it stopped for want of room, or how many there are, or DAMAGED.
    Rows not touched before in this step go to `touched`, from head[TOUCHED] on.
    """
    mask = index.shape[0] - 1
    capacity = records.shape[0] // stride
    most = index_room(index.shape[0])
    step = head[STEP]
    if head[USED] > capacity:
        return DAMAGED
    for i in range(begin, hashes.shape[0]):
        fragment = hashes[np.uint64(i)] >> _32
        slot = np.int64(fragment >> np.uint64(shift))
        row = np.int64(-1)
        for _ in range(index.shape[0]):
            entry = index[np.uint64(slot)]
            if entry == _EMPTY:
                break
            if entry >> _32 == fragment:
                candidate = np.int64(entry & _ROW) - 1
                if candidate < 0 or candidate >= head[USED]:
                    return DAMAGED
                if _holds(
                    records,
                    candidate * stride,
                    width,
                    tail,
                    heap,
                    words,
                    nulls,
                    data,
                    starts,
                    sizes,
                    i,
                ):
                    row = candidate
                    break
            slot = (slot + 1) & mask
        if row >= 0:
            at = row * stride
            meta = records[np.uint64(at)]
            if not meta & LIVE:  # removed earlier in this step
                meta |= LIVE | NEW
                records[np.uint64(at)] = meta
                head[LIVE_ROWS] += 1
            if meta >> STEP_SHIFT != step:
                records[np.uint64(at)] = (meta & 0xFFFFFFFF) | (step << STEP_SHIFT)
                touched[np.uint64(head[TOUCHED])] = row
                head[TOUCHED] += 1
        else:
            size = sizes[np.uint64(i)] if tail else np.int64(0)
            free = head[FREE]
            if (
                head[ENTRIES] >= most
                or (free == 0 and head[USED] >= capacity)
                or size > heap.shape[0] - head[HEAP_END]
            ):
                return i
            if free:
                row = free - 1
                if row < 0 or row >= head[USED]:
                    return DAMAGED
                head[FREE] = records[np.uint64(row * stride)] >> 8
            else:
                row = head[USED]
                head[USED] += 1
            at = row * stride
            for j in range(stride):
                records[np.uint64(at + j)] = 0
            records[np.uint64(at)] = (
                LIVE | FRESH | NEW | (np.int64(nulls[np.uint64(i)]) << 8) | (step << STEP_SHIFT)
            )
            for j in range(width):
                records[np.uint64(at + 1 + j)] = words[np.uint64(i * width + j)]
            if tail:
                place = head[HEAP_END]
                start = starts[np.uint64(i)]
                records[np.uint64(at + 1 + width)] = place
                records[np.uint64(at + 2 + width)] = size
                for byte in range(size):
                    heap[np.uint64(place + byte)] = data[np.uint64(start + byte)]
                head[HEAP_END] += size
            index[np.uint64(slot)] = (fragment << _32) | np.uint64(row + 1)
            head[ENTRIES] += 1
            head[LIVE_ROWS] += 1
            touched[np.uint64(head[TOUCHED])] = row
            head[TOUCHED] += 1
        rows[np.uint64(i)] = row
    return hashes.shape[0]
