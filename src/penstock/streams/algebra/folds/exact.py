"""Sums, means and deviations of numbers as doubles where rows can be taken back.

Nothing is rounded before the result: a total that has lost bits to a larger number would not get
them back when that number goes. Of rows that only come, `sums` and `deviations` keep 106 bits,
which is faster. NaN and the infinities are counted, as no total would let go of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import StateDamaged
from penstock.events.compiled import Bytes, Mask, Numbers, frozen
from penstock.streams.algebra.folds import exact_loops as loops
from penstock.streams.algebra.folds.fold import Parts, add, integers, presence
from penstock.streams.algebra.folds.fold_loops import Doubles
from penstock.streams.algebra.rows.group_loops import sort_by_group
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.state import cells, fixed_width

_ROOM = 32  # bytes that are expected of a cell; those of amounts of money have 10 to 26


@dataclass(frozen=True)
class ExactSum:
    """The sum or the mean: the double that is nearest to it, or to it divided by the count."""

    column: str
    mean: bool
    kind = pa.float64()
    order_free = True

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        counts = ("count", "nan", "infinite", "minus infinite")
        return [("exact", pa.binary()), *((name, pa.int64()) for name in counts)]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        assert weights is not None
        numbers = _Numbers(rows.column(self.column))
        exact = _totals(numbers, weights, groups, squared=False)
        counts = [
            presence(numbers.array, weights),
            *(integers(odd * weights) for odd in _odds(numbers)),
        ]
        return [exact, *(add(each, groups, None) for each in counts)]

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        before = into or [None] * len(parts)
        counts = zip(parts[1:], before[1:], strict=True)
        return [
            _merged(parts[0], groups, before[0], loops.SUM_LIMBS),
            *(add(part, groups, old) for part, old in counts),
        ]

    def result(self, parts: Parts) -> pa.Array:
        mantissas, exponents = _rounded(parts[0])
        counts, *odds = (fixed_width.numbers(part) for part in parts[1:])
        there = counts != 0
        with np.errstate(over="ignore"):
            totals = np.ldexp(mantissas, exponents)
            if self.mean:
                often = np.where(there, counts, 1)
                # The mean of numbers whose sum is beyond all doubles need not be.
                scaled = np.ldexp(mantissas / often, exponents)
                totals = np.where(np.isfinite(totals), totals / often, scaled)
        nan, high, low = (odd != 0 for odd in odds)
        totals[high], totals[low] = np.inf, -np.inf
        totals[nan | (high & low)] = np.nan
        return fixed_width.from_numbers(pa.float64(), totals, there)


@dataclass(frozen=True)
class ExactDeviation:
    """That of a sample: null of less than two values, NaN while one is not finite.

    All but the last bit or two are good, however near the numbers are to each other.
    """

    column: str
    kind = pa.float64()
    order_free = True

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        return [
            *((name, pa.binary()) for name in ("sum", "squares")),
            *((name, pa.int64()) for name in ("count", "odd")),
        ]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        assert weights is not None
        array = rows.column(self.column)
        if not pa.types.is_integer(array.type) or array.type == pa.uint64():
            array = array.cast(pa.float64(), safe=False)
        numbers = _Numbers(array)
        odd = fixed_width.validity(array) & ~numbers.finite
        counts = [presence(array, weights), integers(odd * weights)]
        return [
            *(_totals(numbers, weights, groups, squared=squared) for squared in (False, True)),
            *(add(each, groups, None) for each in counts),
        ]

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        before = into or [None] * len(parts)
        sizes = (loops.SUM_LIMBS, loops.SQUARE_LIMBS)
        counts = zip(parts[2:], before[2:], strict=True)
        return [
            *(_merged(parts[i], groups, before[i], size) for i, size in enumerate(sizes)),
            *(add(part, groups, old) for part, old in counts),
        ]

    def result(self, parts: Parts) -> pa.Array:
        counts, odd = (fixed_width.numbers(part) for part in parts[2:])
        enough = counts > 1
        mantissas, exponents = _differences(parts[0], parts[1], counts)
        mantissas = np.maximum(mantissas, 0.0)  # more was taken back than had come
        turned = exponents & 1
        mantissas, exponents = mantissas * (1 + turned), exponents - turned
        pairs = np.where(enough, counts * (counts - 1.0), 1.0)
        with np.errstate(over="ignore"):
            deviations = np.ldexp(np.sqrt(mantissas / pairs), exponents // 2)
        deviations[odd != 0] = np.nan
        return fixed_width.from_numbers(pa.float64(), deviations, enough)


class _Numbers:
    """Numbers as the kernels take them: doubles by their bits, or integers."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self.real = bool(pa.types.is_floating(array.type))
        values = fixed_width.numbers(array).astype(np.float64 if self.real else np.int64)
        self.values = values
        self.finite: Mask = np.isfinite(values)
        self.bits: Numbers = values.view(np.int64)


def _odds(numbers: _Numbers) -> list[Mask]:
    values = numbers.values
    if numbers.finite.all():
        return [~numbers.finite] * 3
    return [np.isnan(values), values == np.inf, values == -np.inf]


def _in_groups(ids: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """The rows in the order of their groups, and the bounds of each."""
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(ids, minlength=count), out=bounds[1:])
    order = np.empty(len(ids), np.int64)
    sort_by_group(frozen(ids), bounds[:-1].copy(), order)
    return frozen(order), frozen(bounds)


def _totals(numbers: _Numbers, weights: Numbers, groups: Groups, *, squared: bool) -> pa.Array:
    order, bounds = _in_groups(groups.ids, len(groups))
    limbs = np.zeros(loops.SQUARE_LIMBS if squared else loops.SUM_LIMBS, np.int64)
    valid = frozen(fixed_width.validity(numbers.array) & numbers.finite)
    bits, often = frozen(numbers.bits), frozen(weights)

    def total(first: int, out: Bytes, ends: Numbers) -> int:
        return loops.total_values(
            order, bounds, bits, often, valid, numbers.real, squared, limbs, first, out, ends
        )

    return _written(total, len(groups))


def _merged(part: pa.Array, groups: Groups, into: pa.Array | None, size: int) -> pa.Array:
    if into is None and groups.are_single:
        return part
    ids = groups.ids
    if into is not None:
        ids, part = groups.behind(len(groups)), pa.concat_arrays([into, part])
    order, bounds = _in_groups(ids, len(groups))
    data, starts, sizes = _cells(part)
    limbs = np.zeros(size, np.int64)

    def total(first: int, out: Bytes, ends: Numbers) -> int:
        return loops.total_cells(order, bounds, data, starts, sizes, limbs, first, out, ends)

    return _written(total, len(groups))


def _written(total: Callable[[int, Bytes, Numbers], int], count: int) -> pa.Array:
    """The cells of so many groups, of which `total` writes as many as there is room for."""
    ends = np.zeros(count + 1, np.int64)
    out = np.empty(_ROOM * count + 4096, np.uint8)
    done = 0
    while (done := total(done, out, ends)) < count:
        if done == loops.DAMAGED:
            raise _damaged()
        more = np.empty(2 * len(out), np.uint8)
        more[: ends[done]] = out[: ends[done]]
        out = more
    bitmap = fixed_width.bitmap_of(np.diff(ends) > 0)
    places = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(
        pa.binary(), count, [bitmap, places, pa.py_buffer(out[: ends[-1]].copy())]
    )


def _rounded(part: pa.Array) -> tuple[Doubles, Numbers]:
    """Doubles, and the powers of two by which they are to be multiplied."""
    mantissas, exponents = np.empty(len(part)), np.empty(len(part), np.int64)
    limbs = np.zeros(loops.SUM_LIMBS, np.int64)
    if not loops.round_cells(*_cells(part), limbs, mantissas, exponents):
        raise _damaged()
    return mantissas, exponents + loops.UNIT


def _differences(sums: pa.Array, squares: pa.Array, counts: Numbers) -> tuple[Doubles, Numbers]:
    mantissas, exponents = np.empty(len(sums)), np.empty(len(sums), np.int64)
    done = loops.round_differences(
        *_cells(sums),
        *_cells(squares),
        frozen(counts),
        np.zeros(loops.SUM_LIMBS, np.int64),
        np.zeros(loops.SQUARE_LIMBS, np.int64),
        np.zeros(loops.DIFFERENCE_LIMBS, np.int64),
        mantissas,
        exponents,
    )
    if not done:
        raise _damaged()
    return mantissas, exponents + 2 * loops.UNIT


def _cells(part: pa.Array) -> tuple[Bytes, Numbers, Numbers]:
    data, starts, sizes = cells.to_cells(part)
    return frozen(data), frozen(starts), frozen(sizes)


def _damaged() -> StateDamaged:
    return StateDamaged(
        "a total is not what totals are written as",
        hint="run the step again: what is kept on this host is built anew then",
    )
