"""The compiled search in pairs of numbers that are in order."""

import numpy as np

from penstock.events.compiled import Numbers, kernel


@kernel
def count_up_to(
    firsts: Numbers, seconds: Numbers, first: Numbers, second: Numbers, counts: Numbers
) -> None:
    """How many of the pairs, which are in ascending order, come up to each of those given.

    Those given are mostly in order too: each is looked for from where the one before was found,
    in steps that grow.
    """
    length = firsts.shape[0]
    low = 0
    for i in range(first.shape[0]):
        a, b = first[np.uint64(i)], second[np.uint64(i)]
        if low > 0:
            other = firsts[np.uint64(low - 1)]
            if other > a or (other == a and seconds[np.uint64(low - 1)] > b):
                low = 0
        step, high = 1, low
        while high < length:
            other = firsts[np.uint64(high)]
            if other > a or (other == a and seconds[np.uint64(high)] > b):
                break
            low = high + 1
            high += step
            step <<= 1
        high = min(high, length)
        while low < high:
            middle = (low + high) >> 1
            other = firsts[np.uint64(middle)]
            if other < a or (other == a and seconds[np.uint64(middle)] <= b):
                low = middle + 1
            else:
                high = middle
        counts[np.uint64(i)] = low
