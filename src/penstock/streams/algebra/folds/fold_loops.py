"""The compiled loops that fold rows into their groups.

The group of row i is groups[i]; results are changed in place, one for each group.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.events.compiled import Mask, Number, Numbers, inlined, kernel

Doubles = NDArray[np.float64]

FITS = -1

_32 = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_LOW = 0xFFFFFFFF
_WIDEST = 5.5e18  # more than the upper word of any decimal of 38 digits


@inlined
def _wrapped(a: Number, b: Number) -> np.int64:
    """The sum modulo 2^64; for signed integers the compiler takes for granted that it fits."""
    return np.int64(np.uint64(a) + np.uint64(b))


@inlined
def _left(a: Number, b: Number, total: Number) -> bool | np.bool_:
    """Whether the sum of two numbers left 64 bits."""
    return (a ^ total) & (b ^ total) < 0


@kernel
def add_numbers(groups: Numbers, values: Numbers, totals: Numbers) -> Number:
    """Returns the first group whose total leaves 64 bits, or FITS."""
    for i in range(values.shape[0]):
        group = np.uint64(groups[np.uint64(i)])
        value, before = values[np.uint64(i)], totals[group]
        total = _wrapped(before, value)
        if _left(before, value, total):
            return np.int64(groups[np.uint64(i)])
        totals[group] = total
    return FITS


@kernel
def multiply_numbers(values: Numbers, weights: Numbers, products: Numbers) -> Number:
    """Returns the first row whose product leaves 64 bits, or FITS. Weights have 32 bits."""
    for i in range(values.shape[0]):
        value, weight = values[np.uint64(i)], weights[np.uint64(i)]
        low = (value & _LOW) * weight
        high = (value >> 32) * weight + (low >> 32)
        if high < -(1 << 31) or high >= 1 << 31:
            return i
        products[np.uint64(i)] = (high << 32) | (low & _LOW)
    return FITS


@kernel
def add_wide(groups: Numbers, values: Numbers, weights: Numbers, totals: Numbers) -> Number:
    """Adds integers of two words, the lower one first, each times its weight of 32 bits.

    Returns the first group whose total leaves 128 bits, or a decimal of that size, or FITS.
    """
    for i in range(groups.shape[0]):
        weight = weights[np.uint64(i)]
        factor = np.uint64(abs(weight))
        low, high = np.uint64(values[np.uint64(2 * i)]), values[np.uint64(2 * i + 1)]
        if factor != 1:
            if abs(np.float64(high)) * np.float64(factor) > _WIDEST:
                return np.int64(groups[np.uint64(i)])
            first = (low & _LOW_HALF) * factor
            second = (low >> _32) * factor + (first >> _32)
            low = (second << _32) | (first & _LOW_HALF)
            high = high * np.int64(factor) + np.int64(second >> _32)
        if weight < 0:
            low = ~low + np.uint64(1)
            high = _wrapped(~high, np.int64(low == 0))
        at = np.uint64(2 * groups[np.uint64(i)])
        total = np.uint64(totals[at]) + low
        before = totals[at + np.uint64(1)]
        after = _wrapped(_wrapped(before, high), np.int64(total < low))
        if _left(before, high, after):
            return np.int64(groups[np.uint64(i)])
        totals[at] = np.int64(total)
        totals[at + np.uint64(1)] = after
    return FITS


@inlined
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """The sum, and what rounding took from it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel
def add_doubles(
    groups: Numbers, highs: Doubles, lows: Doubles, total_highs: Doubles, total_lows: Doubles
) -> None:
    """Adds numbers that are the sum of two doubles, of which the lower is what the higher lacks.

    About 106 bits are kept, so that the order of rows hardly ever shows in a rounded result.
    """
    for i in range(groups.shape[0]):
        group = np.uint64(groups[np.uint64(i)])
        high, rest = _two_sum(total_highs[group], highs[np.uint64(i)])
        if not np.isfinite(high):
            total_highs[group], total_lows[group] = high, 0.0
            continue
        low, last = _two_sum(total_lows[group], lows[np.uint64(i)])
        high, rest = _two_sum(high, rest + low)
        total_highs[group], total_lows[group] = _two_sum(high, rest + last)


@kernel
def mark(groups: Numbers, valid: Mask, marks: Mask) -> None:
    """Marks the groups that have a valid row."""
    for i in range(groups.shape[0]):
        if valid[np.uint64(i)]:
            marks[np.uint64(groups[np.uint64(i)])] = True


@kernel
def pick_rows(
    groups: Numbers,
    words: Numbers,
    width: int,
    valid: Mask,
    highest: bool,
    picked: Numbers,
    tied: Mask,
) -> None:
    """The valid row of each group that comes last in order, or first; -1 where there is none.

    Rows are ordered by their words, of which each has so many. Of equal ones the first is picked,
    and `tied` is set.
    """
    for i in range(groups.shape[0]):
        if not valid[np.uint64(i)]:
            continue
        group = np.uint64(groups[np.uint64(i)])
        best = picked[group]
        if best < 0:
            picked[group] = i
            continue
        word = 0
        while (
            word < width
            and words[np.uint64(i * width + word)] == words[np.uint64(best * width + word)]
        ):
            word += 1
        if word == width:
            tied[group] = True
        elif highest == (
            words[np.uint64(i * width + word)] > words[np.uint64(best * width + word)]
        ):
            picked[group] = i
            tied[group] = False
