"""The standard deviation, from the sums of numbers and of their squares.

Both are kept with twice the bits of a double. Their difference cancels what the numbers have in
common: nearly all bits of the result are good while the deviation is above the mean divided by
2^26, half of them while it is above the mean divided by 2^39. What is below the mean divided by
2^45 is nothing but rounding, and 0. That of which rows can be taken back is in `exact`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.algebra.folds.fold import Parts, add, integers, presence
from penstock.streams.algebra.folds.fold_loops import Doubles
from penstock.streams.algebra.folds.sums import DoubleSum, in_two, sum_in_two
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.state import fixed_width

_PAIR = DoubleSum("", mean=False)
_TOO_LARGE = 1e140  # to be squared and added up
_ROUNDING = 2.0**-90
_SPLIT = 2.0**27 + 1
_Pair = tuple[Doubles, Doubles]


@dataclass(frozen=True)
class Deviation:
    """That of a sample: null of less than two values, NaN while one is not finite or too large."""

    column: str
    kind = pa.float64()
    order_free = False  # the difference of two sums brings out the last bits of both

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        sums = ("high", "low", "square high", "square low")
        return [
            *((name, pa.float64()) for name in sums),
            ("count", pa.int64()),
            ("odd", pa.int64()),
        ]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        array = rows.column(self.column)
        if not pa.types.is_integer(array.type) or array.type == pa.uint64():
            array = array.cast(pa.float64(), safe=False)
        valid = fixed_width.validity(array)
        numbers = in_two(fixed_width.numbers(array))
        odd = ~(np.abs(numbers[0]) < _TOO_LARGE)
        numbers[0][odd] = 0.0
        pairs = [numbers, _product(numbers, numbers)]
        doubles = [
            fixed_width.from_numbers(pa.float64(), each, valid) for pair in pairs for each in pair
        ]
        return self.merge(
            [*doubles, presence(array, None), integers(odd.astype(np.int64))], groups, None
        )

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        held = [None] * len(parts) if into is None else into
        merged: Parts = []
        for pair in (slice(0, 2), slice(2, 4)):
            merged += _PAIR.merge(parts[pair], groups, None if into is None else into[pair])
        rest = zip(parts[4:], held[4:], strict=True)
        return merged + [add(part, groups, before) for part, before in rest]

    def result(self, parts: Parts) -> pa.Array:
        high, low, square_high, square_low, count, odd = map(fixed_width.numbers, parts)
        enough = count > 1
        times_over = count.astype(np.float64), np.zeros(len(count))
        squares = _product((square_high, square_low), times_over)
        common = _product((high, low), (high, low))
        left = _difference(squares, common)
        left[left < squares[0] * _ROUNDING] = 0.0
        pairs = np.where(enough, count * (count - 1.0), 1.0)
        deviations = np.sqrt(left / pairs)
        deviations[odd != 0] = np.nan
        return fixed_width.from_numbers(pa.float64(), deviations, enough)


def _halves(values: Doubles) -> _Pair:
    """Of 26 bits each, so that their products are exact."""
    shifted = values * _SPLIT
    upper = shifted - (shifted - values)
    return upper, values - upper


def _product(one: _Pair, other: _Pair) -> _Pair:
    total = one[0] * other[0]
    (a, b), (c, d) = _halves(one[0]), _halves(other[0])
    rest = ((a * c - total) + a * d + b * c) + b * d
    return sum_in_two(total, rest + (one[0] * other[1] + one[1] * other[0]))


def _difference(one: _Pair, other: _Pair) -> Doubles:
    total = one[0] - other[0]
    part = total - one[0]
    rest = (one[0] - (total - part)) - (other[0] + part)
    return total + (rest + (one[1] - other[1]))
