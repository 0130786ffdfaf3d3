"""Quantiles of numbers by counting them in bins that grow with the number, as DDSketch does.

The bounds of a bin are as 1 - error to 1 + error, so that the number between them is as near as
that to everything in the bin. They come from a table that is made by multiplication alone and is
the same on every host, so that a number that is taken back is found in the bin it was put into.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.events.compiled import frozen
from penstock.streams.algebra.folds.fold_loops import Doubles
from penstock.streams.algebra.multisets.answers import Quantile
from penstock.streams.algebra.sketches.log_bin_loops import INFINITE, NAN, find_bins
from penstock.streams.state import fixed_width

_DOUBLINGS = 1024  # from 1 to beyond the largest number, and to below the smallest

_LARGEST = np.finfo(np.float64).max


@lru_cache(maxsize=8)
def _bounds(error: float) -> Doubles:
    """The upper bounds of all bins, ascending: bin i is above the bound i - 1."""
    growth = (1 + error) / (1 - error)
    steps = int(np.ceil(_DOUBLINGS / np.log2(growth)))
    with np.errstate(over="ignore", under="ignore"):
        above = np.multiply.accumulate(np.full(steps, growth))
        below = np.multiply.accumulate(np.full(steps, 1 / growth))
    bounds = np.concatenate([below[::-1], np.ones(1), above])
    bounds = bounds[(bounds >= np.finfo(np.float64).tiny) & (bounds < np.inf)]
    return frozen(np.append(bounds, np.inf))


@dataclass(frozen=True)
class BinQuantile(Quantile):
    """Keeps how many numbers are in each bin that has any."""

    error: float = 0.01

    @property
    def of_value(self) -> pa.DataType:
        return pa.float64()

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        array = rows.column(self.column)
        numbers = fixed_width.numbers(array.cast(pa.float64(), safe=False))
        bins = np.empty(len(numbers), np.int32)
        growth = (1 + self.error) / (1 - self.error)
        find_bins(frozen(numbers), _bounds(self.error), 1 / np.log(growth), bins)
        return fixed_width.from_numbers(pa.int32(), bins, fixed_width.validity(array))

    def shown(self, values: pa.Array) -> pa.Array:
        """For each bin the number whose distance to both bounds is the same share of them."""
        bins = fixed_width.numbers(values).astype(np.int64)
        bounds = _bounds(self.error)
        sizes = np.abs(bins)
        inside = np.clip(sizes, 1, len(bounds) - 2)
        numbers = bounds[inside] * (1 - self.error)
        # The last bin has no upper bound but that of all numbers.
        last = bounds[-2]
        numbers[sizes == len(bounds) - 1] = last + min(last * self.error, _LARGEST - last)
        numbers[bins == 0] = 0.0
        numbers[sizes == INFINITE] = np.inf
        numbers = np.where(bins < 0, -numbers, numbers)
        numbers[bins == NAN] = np.nan
        return fixed_width.from_numbers(pa.float64(), numbers, fixed_width.validity(values))
