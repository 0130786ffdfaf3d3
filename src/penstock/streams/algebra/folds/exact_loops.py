"""The compiled arithmetic of exact totals: integers of some thousand bits, in limbs of 32.

Every double is a whole number of 2^-1074, so a sum of doubles is one too, and one of their squares
a whole number of 2^-2148. Limb i stands for 2^(32 i) of these. While rows are added, limbs have 64
bits and a sign, so that nothing has to be carried for the next 2^29 rows; a cell, which is what
state keeps, has the number of its first limb in two bytes and then the limbs as the two's
complement, without zeros at the lower end or signs at the upper one. A total has one cell, in
whatever order it came about, and that of 0 is empty.
"""

import numpy as np

from penstock.events.compiled import Bytes, Mask, Number, Numbers, kernel, part
from penstock.streams.algebra.folds.fold_loops import Doubles

UNIT = -1074  # the exponent of the lowest bit of a sum; that of a sum of squares is twice as low
SUM_LIMBS = 74  # 2098 bits of one double, 64 for how many there are, and room for a carry
SQUARE_LIMBS = 144
DIFFERENCE_LIMBS = 160
DAMAGED = -1

_LIMB = 32
_NOWHERE = 1 << 30  # above all limbs: where nothing was changed
_HEADER = 2  # bytes
_MASK = 0xFFFFFFFF
_LOW = np.uint64(_MASK)
_32, _64, _ONE = np.uint64(32), np.uint64(64), np.uint64(1)
_FRACTION = (1 << 52) - 1


@part
def _put(limbs: Numbers, bit: Number, value: np.uint64, negative: bool | np.bool_) -> None:
    """Adds 64 bits that begin at `bit`, or takes them off."""
    place = np.uint64(bit >> 5)
    shift = np.uint64(bit & 31)
    first = np.int64((value << shift) & _LOW)
    second = np.int64((value >> (_32 - shift)) & _LOW)
    third = np.int64((value >> _32) >> (_32 - shift))
    if negative:
        first, second, third = -first, -second, -third
    limbs[place] += first
    limbs[place + _ONE] += second
    limbs[place + np.uint64(2)] += third


@part
def _product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The lower 64 bits, and the upper ones."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _32, b & _LOW, b >> _32
    low = a_low * b_low
    middle = a_high * b_low + (low >> _32)
    other = a_low * b_high + (middle & _LOW)
    return (other << _32) | (low & _LOW), a_high * b_high + (middle >> _32) + (other >> _32)


@part
def _add_value(
    limbs: Numbers, bits: Number, weight: Number, real: bool, squared: bool
) -> tuple[Number, Number]:
    """Adds a double, by its bits, or an integer, or its square, so often. Returns the lowest and
    the highest limb that this may have changed, _NOWHERE and -1 for none."""
    if real:
        exponent = (bits >> 52) & 0x7FF
        size = np.uint64(bits & _FRACTION)
        if exponent > 0:
            size |= np.uint64(1 << 52)
        bit = max(exponent - 1, 0)
    else:
        size = np.uint64(bits) if bits >= 0 else ~np.uint64(bits) + _ONE
        bit = -UNIT
    negative = (bits < 0) != (weight < 0)
    often = np.uint64(weight) if weight >= 0 else ~np.uint64(weight) + _ONE
    if size == 0 or often == 0:
        return np.int64(_NOWHERE), np.int64(-1)
    if not squared:
        place = bit >> 5
        if often == 1:
            _put(limbs, bit, size, negative)
            return place, place + 2
        low, high = _product(size, often)
        _put(limbs, bit, low, negative)
        _put(limbs, bit + 64, high, negative)
        return place, place + 4
    bit *= 2
    place = bit >> 5
    negative = weight < 0
    low, high = _product(size, size)
    if often == 1:
        _put(limbs, bit, low, negative)
        _put(limbs, bit + 64, high, negative)
        return place, place + 4
    first, second = _product(low, often)
    _put(limbs, bit, first, negative)
    _put(limbs, bit + 64, second, negative)
    first, second = _product(high, often)
    _put(limbs, bit + 64, first, negative)
    _put(limbs, bit + 128, second, negative)
    return place, place + 6


@part
def _carried(limbs: Numbers, low: Number, high: Number) -> Number:
    """Brings all limbs to 32 bits, up to the one after `high`; returns -1 for a negative total,
    which then is the two's complement, and else 0."""
    carry = np.int64(0)
    for i in range(low, high + 2):
        total = limbs[np.uint64(i)] + carry
        limbs[np.uint64(i)] = total & _MASK
        carry = total >> _LIMB
    return carry


@part
def _write(limbs: Numbers, low: Number, high: Number, out: Bytes, at: Number) -> Number:
    """Writes the cell of a total and clears it; returns where the cell ends."""
    if high < 0:
        return at
    sign = _carried(limbs, low, high)
    top, first = high + 1, low
    while (
        top > low
        and limbs[np.uint64(top)] == sign & _MASK
        and limbs[np.uint64(top - 1)] >> 31 == -sign
    ):
        top -= 1
    while first <= top and limbs[np.uint64(first)] == 0:
        first += 1
    if first <= top:
        out[np.uint64(at)] = first & 0xFF
        out[np.uint64(at + 1)] = first >> 8
        at += _HEADER
        for i in range(first, top + 1):
            limb = limbs[np.uint64(i)]
            for byte in range(4):
                out[np.uint64(at + byte)] = (limb >> (8 * byte)) & 0xFF
            at += 4
    for i in range(low, high + 2):
        limbs[np.uint64(i)] = 0
    return at


@part
def _read(
    limbs: Numbers, data: Bytes, start: Number, size: Number, most: Number
) -> tuple[Number, Number]:
    """Adds a cell, of a total of at most so many limbs; returns the lowest and the highest limb, or
    DAMAGED twice."""
    if size == 0:
        return np.int64(_NOWHERE), np.int64(-1)
    count = (size - _HEADER) >> 2
    if start < 0 or start > data.shape[0] - size or count < 1 or size != _HEADER + 4 * count:
        return np.int64(DAMAGED), np.int64(DAMAGED)
    first = np.int64(data[np.uint64(start)]) | (np.int64(data[np.uint64(start + 1)]) << 8)
    if first + count > most - 2:
        return np.int64(DAMAGED), np.int64(DAMAGED)
    at = start + _HEADER
    for i in range(first, first + count):
        limb = np.int64(0)
        for byte in range(4):
            limb |= np.int64(data[np.uint64(at + byte)]) << (8 * byte)
        at += 4
        if i == first + count - 1 and limb >> 31:
            limb -= 1 << _LIMB
        limbs[np.uint64(i)] += limb
    return first, first + count - 1


@part
def _made_positive(limbs: Numbers, low: Number, high: Number) -> bool:
    """Leaves the size of a total in its limbs, up to the one after `high`; whether it is negative
    is returned."""
    if _carried(limbs, low, high) == 0:
        return False
    carry = np.int64(1)
    for i in range(low, high + 2):
        total = (limbs[np.uint64(i)] ^ _MASK) + carry
        limbs[np.uint64(i)] = total & _MASK
        carry = total >> _LIMB
    return True


@part
def _rounded(limbs: Numbers, low: Number, high: Number) -> tuple[float, Number]:
    """The double of 53 bits that is nearest to a total, without its exponent, and that; clears."""
    if high < 0:
        return 0.0, np.int64(0)
    negative = _made_positive(limbs, low, high)
    top = high + 1
    while top >= low and limbs[np.uint64(top)] == 0:
        top -= 1
    if top < low:
        return 0.0, np.int64(0)
    zeros = np.uint64(0)  # above the highest bit
    while (np.uint64(limbs[np.uint64(top)]) << zeros) >> np.uint64(31) == 0:
        zeros += _ONE
    word = np.uint64(limbs[np.uint64(top)]) << _32
    if top > low:
        word |= np.uint64(limbs[np.uint64(top - 1)])
    word <<= zeros
    rest = np.uint64(0)
    if top - 1 > low:
        third = np.uint64(limbs[np.uint64(top - 2)])
        word |= third >> (_32 - zeros)
        rest = (third << zeros) & _LOW
    for i in range(low, top - 2):
        rest |= np.uint64(limbs[np.uint64(i)])
    if rest != 0:
        word |= _ONE  # eleven bits below those that are kept, so that a half is none any more
    for i in range(low, high + 2):
        limbs[np.uint64(i)] = 0
    rounded = np.float64(word)
    return -rounded if negative else rounded, _LIMB * (top - 1) - np.int64(zeros)


@kernel
def total_values(
    order: Numbers,
    bounds: Numbers,
    bits: Numbers,
    weights: Numbers,
    valid: Mask,
    real: bool,
    squared: bool,
    limbs: Numbers,
    first: int,
    out: Bytes,
    ends: Numbers,
) -> int:
    """Writes the cells of groups from `first` on, whose rows stand in `order` inside of `bounds`.

    Returns the group that there was no room for, or how many groups there are. `ends` has where the
    cell of `first` begins, and gets where each ends; the limbs are 0 before and after.
    """
    groups: int = bounds.shape[0] - 1
    at = ends[first]
    for group in range(first, groups):
        if out.shape[0] - at < _HEADER + 4 * limbs.shape[0]:
            return group
        low: Number = np.int64(_NOWHERE)
        high: Number = np.int64(-1)
        for place in range(bounds[np.uint64(group)], bounds[np.uint64(group + 1)]):
            i = np.uint64(order[np.uint64(place)])
            if valid[i]:
                lowest, highest = _add_value(limbs, bits[i], weights[i], real, squared)
                low, high = min(low, lowest), max(high, highest)
        at = _write(limbs, low, high, out, at)
        ends[np.uint64(group + 1)] = at
    return groups


@kernel
def total_cells(
    order: Numbers,
    bounds: Numbers,
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    limbs: Numbers,
    first: int,
    out: Bytes,
    ends: Numbers,
) -> int:
    """As total_values, of cells; DAMAGED when one is no cell."""
    groups: int = bounds.shape[0] - 1
    at = ends[first]
    for group in range(first, groups):
        if out.shape[0] - at < _HEADER + 4 * limbs.shape[0]:
            return group
        low: Number = np.int64(_NOWHERE)
        high: Number = np.int64(-1)
        for place in range(bounds[np.uint64(group)], bounds[np.uint64(group + 1)]):
            i = np.uint64(order[np.uint64(place)])
            lowest, highest = _read(limbs, data, starts[i], sizes[i], limbs.shape[0])
            if lowest == DAMAGED:
                return DAMAGED
            low, high = min(low, lowest), max(high, highest)
        at = _write(limbs, low, high, out, at)
        ends[np.uint64(group + 1)] = at
    return groups


@kernel
def round_cells(
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    limbs: Numbers,
    mantissas: Doubles,
    exponents: Numbers,
) -> bool:
    """The nearest double of each cell, times 2 to the power of its exponent; False when one is no
    cell. Beyond 53 bits, it is rounded to even as all sums are."""
    for i in range(starts.shape[0]):
        low, high = _read(limbs, data, starts[i], sizes[i], limbs.shape[0])
        if low == DAMAGED:
            return False
        mantissas[i], exponents[i] = _rounded(limbs, low, high)
    return True


@kernel
def round_differences(
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    square_data: Bytes,
    square_starts: Numbers,
    square_sizes: Numbers,
    counts: Numbers,
    limbs: Numbers,
    square_limbs: Numbers,
    wide: Numbers,
    mantissas: Doubles,
    exponents: Numbers,
) -> bool:
    """As round_cells: n times the sum of squares, without the square of the sum."""
    for i in range(starts.shape[0]):
        low, high = _read(limbs, data, starts[i], sizes[i], limbs.shape[0])
        below, above = _read(
            square_limbs, square_data, square_starts[i], square_sizes[i], square_limbs.shape[0]
        )
        if low == DAMAGED or below == DAMAGED:
            return False
        least: Number = np.int64(_NOWHERE)
        most: Number = np.int64(-1)
        if above >= 0:
            negative = _made_positive(square_limbs, below, above)
            count = np.uint64(max(counts[i], 0))
            for j in range(below, above + 2):
                first, second = _product(np.uint64(square_limbs[np.uint64(j)]), count)
                _put(wide, _LIMB * j, first, negative)
                _put(wide, _LIMB * j + 64, second, negative)
                square_limbs[np.uint64(j)] = 0
            least, most = below, above + 5
        if high >= 0:
            _made_positive(limbs, low, high)
            for j in range(low, high + 2):
                for k in range(low, high + 2):
                    square = np.uint64(limbs[np.uint64(j)]) * np.uint64(limbs[np.uint64(k)])
                    _put(wide, _LIMB * (j + k), square, True)
            for j in range(low, high + 2):
                limbs[np.uint64(j)] = 0
            least, most = min(least, 2 * low), max(most, 2 * high + 4)
        mantissas[i], exponents[i] = _rounded(wide, least, most)
    return True
