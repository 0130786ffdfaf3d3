"""The compiled comparison of values that vary in size."""

import numpy as np

from penstock.events.compiled import Bytes, Mask, Numbers, kernel
from penstock.streams.state.key_loops import load_word


@kernel
def differing_cells(
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    other_data: Bytes,
    other_starts: Numbers,
    other_sizes: Numbers,
    different: Mask,
) -> None:
    """Marks the cells that have other bytes than those of the same number."""
    for i in range(sizes.shape[0]):
        size = sizes[np.uint64(i)]
        if size != other_sizes[np.uint64(i)]:
            different[np.uint64(i)] = True
            continue
        a, b = starts[np.uint64(i)], other_starts[np.uint64(i)]
        whole = size & ~7
        for byte in range(0, whole, 8):
            if load_word(data, a + byte, 8) != load_word(other_data, b + byte, 8):
                different[np.uint64(i)] = True
                break
        for byte in range(whole, size):
            if data[np.uint64(a + byte)] != other_data[np.uint64(b + byte)]:
                different[np.uint64(i)] = True
                break
