"""The one compiled way in which bytes of variable size move: from ranges to ranges."""

import numpy as np

from penstock.streams.state.compiled import Bytes, Numbers, kernel


@kernel
def copy_ranges(
    source: Bytes, starts: Numbers, sizes: Numbers, target: Bytes, places: Numbers
) -> bool:
    """Copies range after range to its place.

    Returns False, having copied those before, at a range or a place that does not lie inside: what
    a file says of itself is not to be believed.
    """
    for i in range(sizes.shape[0]):
        start = starts[np.uint64(i)]
        size = sizes[np.uint64(i)]
        place = places[np.uint64(i)]
        if (
            size < 0
            or start < 0
            or place < 0
            or start > source.shape[0] - size
            or place > target.shape[0] - size
        ):
            return False
        for byte in range(size):
            target[np.uint64(place + byte)] = source[np.uint64(start + byte)]
    return True
