"""Sums and means: of integers, of decimals, and of doubles, each exact as far as its type goes.

Those of doubles of which rows can be taken back are in `exact`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.compiled import Number, Numbers, frozen
from penstock.streams.algebra.folds import fold_loops
from penstock.streams.algebra.folds.fold import (
    Overflow,
    Parts,
    add,
    any_valid,
    integers,
    presence,
    start,
)
from penstock.streams.algebra.folds.fold_loops import FITS, Doubles
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.state import fixed_width

_WIDE = 38  # digits of a decimal of 128 bits
_COUNT = ("count", pa.int64())


@dataclass(frozen=True)
class IntegerSum:
    column: str
    weighted: bool
    kind = pa.int64()
    order_free = True

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        return [("", pa.int64()), *[_COUNT][: self.weighted]]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        array = rows.column(self.column).cast(pa.int64())
        if weights is None:
            return self.merge([array], groups, None)
        products = np.empty(len(array), np.int64)
        values = frozen(fixed_width.numbers(array))
        row = fold_loops.multiply_numbers(values, frozen(weights), products)
        if row != FITS:
            raise Overflow(pa.int64(), groups.ids[row])
        each = [integers(products, fixed_width.validity(array)), presence(array, weights)]
        return self.merge(each, groups, None)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        before = into or [None] * len(parts)
        return [add(part, groups, old) for part, old in zip(parts, before, strict=True)]

    def result(self, parts: Parts) -> pa.Array:
        return _unless_none(parts[0], parts[1]) if self.weighted else parts[0]


def _unless_none(values: pa.Array, counts: pa.Array) -> pa.Array:
    """Null where there is no value to be counted."""
    valid = fixed_width.validity(values) & (fixed_width.numbers(counts) != 0)
    return fixed_width.from_numbers(values.type, fixed_width.numbers(values), valid)


@dataclass(frozen=True)
class DecimalSum:
    """The sum of decimals, or their mean, rounded half up, with four digits more."""

    column: str
    precision: int
    scale: int
    mean: bool
    weighted: bool
    order_free = True

    @property
    def kind(self) -> pa.DataType:
        if self.mean:
            return pa.decimal128(min(_WIDE, self.precision + 4), min(_WIDE, self.scale + 4))
        return pa.decimal128(min(_WIDE, self.precision + 10), self.scale)

    @property
    def _total(self) -> pa.DataType:
        return pa.decimal128(_WIDE, self.scale)

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        counted = self.mean or self.weighted
        return [("sum" if self.mean else "", self._total), *[_COUNT][:counted]]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        array = rows.column(self.column).cast(self._total)
        counts = presence(array, weights)
        if weights is not None:
            products = np.zeros((len(array), 2), np.int64)
            row = self._add_up(np.arange(len(array)), array, weights, products)
            if row != FITS:
                raise Overflow(self.kind, groups.ids[row])
            valid = fixed_width.validity(array)
            array = fixed_width.from_numbers(self._total, products, valid)
        return self.merge([array, counts][: len(self.parts)], groups, None)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        before = into or [None] * len(parts)
        part, *counts = parts
        totals = start(part, groups, before[0])
        once = np.ones(len(part), np.int64)
        group = self._add_up(groups.ids, part, once, totals)
        if group != FITS:
            raise Overflow(self.kind, group)
        merged = fixed_width.from_numbers(self._total, totals, any_valid(part, groups, before[0]))
        return [merged, *(add(count, groups, before[1]) for count in counts)]

    def _add_up(
        self, groups: Numbers, array: pa.Array, weights: Numbers, totals: fixed_width.Values
    ) -> Number:
        values = np.ascontiguousarray(fixed_width.numbers(array)).reshape(-1)
        return fold_loops.add_wide(
            frozen(groups), frozen(values), frozen(weights), totals.reshape(-1)
        )

    def result(self, parts: Parts) -> pa.Array:
        total = parts[0]
        if len(parts) == 2:
            total = _unless_none(total, parts[1])
        if self.mean:
            # Cut off far behind the digits that are kept, which leaves halves where they are.
            counts = pc.if_else(pc.is_null(total), None, parts[1]).cast(pa.decimal256(19, 0))
            exact = pc.divide(total.cast(pa.decimal256(_WIDE, self.scale)), counts)
            total = pc.round(exact, self.kind.scale, "half_towards_infinity")
        try:
            result = total.cast(self.kind)
            result.validate(full=True)  # a cast to the same digits does not look
        except pa.ArrowInvalid:
            limit = 10 ** (self.kind.precision - self.kind.scale)
            sizes = [0 if each is None else each.copy_abs() for each in total.to_pylist()]
            group = next(i for i, size in enumerate(sizes) if size >= limit)
            raise Overflow(self.kind, group) from None
        return result


@dataclass(frozen=True)
class DoubleSum:
    """The sum or the mean of numbers that come to stay as a double, by way of twice its bits.

    So the order of adding hardly ever shows, unless numbers that cancel each other are 2^50 times
    as large as their sum, or add up to more than a double can be on the way.
    """

    column: str
    mean: bool
    kind = pa.float64()
    order_free = True

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        return [("high", pa.float64()), ("low", pa.float64()), *[_COUNT][: self.mean]]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        array = rows.column(self.column)
        valid = fixed_width.validity(array)
        doubles = [
            fixed_width.from_numbers(pa.float64(), each, valid)
            for each in in_two(fixed_width.numbers(array))
        ]
        counts = [presence(array, None)][: self.mean]
        return self.merge(doubles + counts, groups, None)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        if into is None and groups.are_single:
            return parts
        before = into or [None] * len(parts)
        highs, lows = (start(parts[i], groups, before[i]) for i in (0, 1))
        fold_loops.add_doubles(
            groups.ids,
            frozen(fixed_width.numbers(parts[0])),
            frozen(fixed_width.numbers(parts[1])),
            highs,
            lows,
        )
        valid = any_valid(parts[0], groups, before[0])
        merged = [fixed_width.from_numbers(pa.float64(), each, valid) for each in (highs, lows)]
        rest = zip(parts[2:], before[2:], strict=True)
        return merged + [add(part, groups, old) for part, old in rest]

    def result(self, parts: Parts) -> pa.Array:
        totals = fixed_width.numbers(parts[0]) + fixed_width.numbers(parts[1])
        valid = fixed_width.validity(parts[0])
        if self.mean:
            counts = fixed_width.numbers(parts[2])
            valid = valid & (counts != 0)
            totals = np.divide(totals, counts, where=valid, out=np.zeros(len(totals)))
        return fixed_width.from_numbers(pa.float64(), totals, valid)


def in_two(values: fixed_width.Values) -> tuple[Doubles, Doubles]:
    """Numbers as doubles, and what these lack of an integer of 64 bits."""
    if values.dtype != np.int64:
        return values.astype(np.float64), np.zeros(len(values))
    return sum_in_two(
        (values >> 32).astype(np.float64) * 2.0**32, (values & 0xFFFFFFFF).astype(np.float64)
    )


def sum_in_two(high: Doubles, low: Doubles) -> tuple[Doubles, Doubles]:
    """The sum of a number and a smaller one, and what rounding took from it."""
    total = high + low
    return total, low - (total - high)
