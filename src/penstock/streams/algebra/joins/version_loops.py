"""The compiled search for the version that was valid at a time."""

import numpy as np

from penstock.events.compiled import Numbers, kernel


@kernel
def find_versions(
    starts: Numbers, times: Numbers, ids: Numbers, moments: Numbers, found: Numbers
) -> None:
    """Of each key, by number, the last version that is not after the moment, -1 for none.

    Those of key n are from `starts[n]` to `starts[n + 1]`, in the order of their times; a number
    below 0 has none.
    """
    for i in range(ids.shape[0]):
        found[np.uint64(i)] = -1
        key = ids[np.uint64(i)]
        if key < 0:
            continue
        first, end = starts[np.uint64(key)], starts[np.uint64(key + 1)]
        low, high = first, end
        while low < high:
            middle = (low + high) // 2
            if times[np.uint64(middle)] <= moments[np.uint64(i)]:
                low = middle + 1
            else:
                high = middle
        if low > first:
            found[np.uint64(i)] = low - 1
