"""The compiled loops over HyperLogLog's lists and registers.

An entry is the group in the upper half, 26 bits of a hash, and in 6 bits the place of the first one
of the other bits that is set, from 1 on.
"""

import math

import numpy as np

from penstock.events.compiled import Bytes, Hashes, Mask, Number, Numbers, inlined, kernel
from penstock.streams.algebra.folds.fold_loops import Doubles

_INDEX_BITS = 26
_PLACES = 1 << _INDEX_BITS
_REST = 64 - _INDEX_BITS
_6, _32, _SHIFT = np.uint64(6), np.uint64(32), np.uint64(_REST)
_ONE, _HIGHEST = np.uint64(1), np.uint64(1 << 63)


@inlined
def _first_set(bits: np.uint64, width: Number) -> np.uint64:
    """The place of the first bit that is set, of so many upper ones; one more if none is."""
    place = 1
    while place <= width and bits & _HIGHEST == 0:
        bits <<= _ONE
        place += 1
    return np.uint64(place)


@kernel
def make_entries(groups: Numbers, hashes: Hashes, entries: Hashes) -> None:
    for i in range(hashes.shape[0]):
        value = hashes[np.uint64(i)]
        place = _first_set(value << np.uint64(_INDEX_BITS), _REST)
        entry = ((value >> _SHIFT) << _6) | place
        entries[np.uint64(i)] = (np.uint64(groups[np.uint64(i)]) << _32) | entry


@kernel
def read_entries(
    data: Bytes, starts: Numbers, sizes: Numbers, groups: Numbers, entries: Hashes
) -> None:
    """Those of lists of so many bytes."""
    at = 0
    for i in range(starts.shape[0]):
        start = starts[np.uint64(i)]
        for place in range(start, start + sizes[np.uint64(i)], 4):
            entry = np.uint64(groups[np.uint64(i)]) << _32
            for byte in range(4):
                entry |= np.uint64(data[np.uint64(place + byte)]) << np.uint64(8 * byte)
            entries[np.uint64(at)] = entry
            at += 1


@kernel
def write_entries(
    entries: Hashes, full: Mask, bounds: Numbers, precision: int, data: Bytes
) -> None:
    """Lists, or registers where `full`, which begin at zero. Entries are in ascending order."""
    between = _INDEX_BITS - precision
    group, at = np.int64(-1), np.int64(0)
    for i in range(entries.shape[0]):
        entry = entries[np.uint64(i)]
        if np.int64(entry >> _32) != group:
            group = np.int64(entry >> _32)
            at = bounds[np.uint64(group)]
        if full[np.uint64(group)]:
            index = (entry >> _6) & np.uint64(_PLACES - 1)
            # The bits of the index that registers do not tell apart come first in their place.
            place = _first_set(index << np.uint64(64 - between), between)
            if place > np.uint64(between):
                place = np.uint64(between) + (entry & np.uint64(63))
            register = np.uint64(at) + (index >> np.uint64(between))
            data[register] = max(data[register], np.uint8(place))
        else:
            for byte in range(4):
                data[np.uint64(at + byte)] = np.uint8(entry >> np.uint64(8 * byte))
            at += 4


@kernel
def raise_registers(
    source: Bytes, starts: Numbers, places: Numbers, size: int, data: Bytes
) -> None:
    for i in range(starts.shape[0]):
        start, place = starts[np.uint64(i)], places[np.uint64(i)]
        for byte in range(size):
            here = np.uint64(place + byte)
            data[here] = max(data[here], source[np.uint64(start + byte)])


@inlined
def _sigma(share: float) -> float:
    if share == 1.0:
        return np.inf
    factor, total, before = 1.0, share, -1.0
    while total != before:
        share *= share
        before = total
        total += share * factor
        factor += factor
    return total


@inlined
def _tau(share: float) -> float:
    if share == 0.0 or share == 1.0:
        return 0.0
    factor, total, before = 1.0, 1.0 - share, -1.0
    while total != before:
        share = math.sqrt(share)
        before = total
        factor *= 0.5
        total -= (1.0 - share) * (1.0 - share) * factor
    return total / 3.0


@kernel
def estimate(
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    precision: int,
    counts: Numbers,
    estimates: Doubles,
) -> None:
    """How many values there were; of registers, by the estimator of Ertl (arXiv 1702.01284).

    `counts` has room for as many as a register has values.
    """
    registers, highest = 1 << precision, 65 - precision
    for i in range(starts.shape[0]):
        start, size = starts[np.uint64(i)], sizes[np.uint64(i)]
        if size != registers:
            estimates[np.uint64(i)] = -_PLACES * math.log1p(-(size // 4) / _PLACES)
            continue
        for value in range(highest + 1):
            counts[np.uint64(value)] = 0
        for byte in range(start, start + size):
            counts[np.uint64(data[np.uint64(byte)])] += 1
        total = registers * _tau(1.0 - counts[np.uint64(highest)] / registers)
        for value in range(highest - 1, 0, -1):
            total = 0.5 * (total + counts[np.uint64(value)])
        total += registers * _sigma(counts[0] / registers)
        estimates[np.uint64(i)] = registers * registers / (2.0 * math.log(2.0) * total)
