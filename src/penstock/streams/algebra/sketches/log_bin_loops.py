"""The compiled search for the bins of numbers."""

import math

import numpy as np
from numpy.typing import NDArray

from penstock.events.compiled import kernel
from penstock.streams.algebra.folds.fold_loops import Doubles

NAN = 2**31 - 1
INFINITE = 2**31 - 2


@kernel
def find_bins(
    values: Doubles, bounds: Doubles, bins_per_power: float, bins: NDArray[np.int32]
) -> None:
    """The number i of the bin between bounds[i - 1] and bounds[i], the latter included.

    It has the sign of the value. Bin 0 is for what is not above the first bound. The logarithm only
    says where to begin: it is not the same on every host.
    """
    last = bounds.shape[0] - 1
    one = math.log(bounds[0]) * bins_per_power
    for i in range(values.shape[0]):
        value = values[np.uint64(i)]
        size = abs(value)
        if value != value:
            bins[np.uint64(i)] = NAN
        elif size == np.inf:
            bins[np.uint64(i)] = INFINITE if value > 0 else -INFINITE
        elif size <= bounds[0]:
            bins[np.uint64(i)] = 0
        else:
            at = min(max(np.int64(math.log(size) * bins_per_power - one), 1), last)
            while bounds[np.uint64(at)] < size:
                at += 1
            while bounds[np.uint64(at - 1)] >= size:
                at -= 1
            bins[np.uint64(i)] = at if value > 0 else -at
