"""The one compiled way in which bytes of variable size move: from ranges to ranges."""

import numpy as np

from penstock.events.compiled import Bytes, Numbers, kernel

_AHEAD = 32  # ranges


@kernel
def copy_ranges(
    source: Bytes, starts: Numbers, sizes: Numbers, target: Bytes, places: Numbers
) -> bool:
    """Copies range after range to its place.

    Returns False, having copied those before, at a range or a place that does not lie inside: what
    a file says of itself is not to be believed.
    """
    count = sizes.shape[0]
    for i in range(count):
        if i % _AHEAD == 0:
            # The first bytes of the next ranges: the memory then works on all of them at once.
            for j in range(i, min(i + _AHEAD, count)):
                start, size, place = starts[np.uint64(j)], sizes[np.uint64(j)], places[np.uint64(j)]
                if (
                    size < 0
                    or start < 0
                    or place < 0
                    or start > source.shape[0] - size
                    or place > target.shape[0] - size
                ):
                    return False
                if size > 0:
                    target[np.uint64(place)] = source[np.uint64(start)]
        start, size, place = starts[np.uint64(i)], sizes[np.uint64(i)], places[np.uint64(i)]
        for byte in range(size):
            target[np.uint64(place + byte)] = source[np.uint64(start + byte)]
    return True
