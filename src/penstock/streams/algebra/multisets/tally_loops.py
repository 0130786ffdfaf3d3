"""The compiled sort of values inside their groups."""

import numpy as np

from penstock.events.compiled import Mask, Number, Numbers, inlined, kernel

_SHORT = 12  # entries that are put in order one by one


@inlined
def _before(words: Numbers, width: int, a: Number, b: Number) -> bool:
    """Whether the words of one come before those of the other."""
    for word in range(width):
        one, other = words[np.uint64(a * width + word)], words[np.uint64(b * width + word)]
        if one != other:
            return bool(one < other)
    return False


@kernel
def sort_in_groups(
    bounds: Numbers, words: Numbers, width: int, order: Numbers, scratch: Numbers
) -> None:
    """Puts the rows between two bounds into the order of their words, of which each has so many.

    `order` has the rows, and is changed in place; `scratch` is as long. What is in order already,
    all of it or one part after another, takes one walk.
    """
    for group in range(bounds.shape[0] - 1):
        begin, end = bounds[np.uint64(group)], bounds[np.uint64(group + 1)]
        for low in range(begin, end, _SHORT):
            for i in range(low + 1, min(low + _SHORT, end)):
                row = order[np.uint64(i)]
                j = i
                while j > low and _before(words, width, row, order[np.uint64(j - 1)]):
                    order[np.uint64(j)] = order[np.uint64(j - 1)]
                    j -= 1
                order[np.uint64(j)] = row
        size = _SHORT
        while size < end - begin:
            for low in range(begin, end - size, 2 * size):
                middle, high = low + size, min(low + 2 * size, end)
                if not _before(
                    words, width, order[np.uint64(middle)], order[np.uint64(middle - 1)]
                ):
                    continue
                for i in range(low, middle):
                    scratch[np.uint64(i)] = order[np.uint64(i)]
                left, right, at = low, middle, low
                while left < middle:
                    if right < high and _before(
                        words, width, order[np.uint64(right)], scratch[np.uint64(left)]
                    ):
                        order[np.uint64(at)] = order[np.uint64(right)]
                        right += 1
                    else:
                        order[np.uint64(at)] = scratch[np.uint64(left)]
                        left += 1
                    at += 1
            size *= 2


@kernel
def mark_first(bounds: Numbers, words: Numbers, width: int, order: Numbers, marks: Mask) -> None:
    """Marks, in this order, the rows whose words are not those of the row before in their group."""
    for group in range(bounds.shape[0] - 1):
        begin, end = bounds[np.uint64(group)], bounds[np.uint64(group + 1)]
        for i in range(begin, end):
            marks[np.uint64(i)] = i == begin or _before(
                words, width, order[np.uint64(i - 1)], order[np.uint64(i)]
            )
