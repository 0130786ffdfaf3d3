"""Aggregates as they are asked for: each knows the columns it reads and how it is folded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.streams.algebra.changes import TIME_TYPE
from penstock.streams.algebra.folds.exact import ExactSum
from penstock.streams.algebra.folds.fold import Counting, Extreme, Fold
from penstock.streams.algebra.folds.sums import DecimalSum, DoubleSum, IntegerSum
from penstock.streams.algebra.multisets.answers import End
from penstock.streams.algebra.rows.order import is_ordered
from penstock.streams.algebra.rows.shape import RowShape


class Aggregate(Protocol):
    @property
    def name(self) -> str: ...

    def columns(self, rows: RowShape) -> Sequence[str]:
        """Those that it reads."""
        ...

    def fold(self, rows: RowShape) -> Fold:
        """How it is computed over such rows, of which some are taken back if they are weighted.

        Raises InvalidInput when it has no answer for them, UnknownName when a column is not there.
        """
        ...

    def options(self) -> dict[str, Any]:
        """What it was made with, as JSON can hold it."""
        ...


@dataclass(frozen=True)
class OfColumn:
    column: str
    name: ClassVar[str]

    def columns(self, rows: RowShape) -> Sequence[str]:
        return [self.column]

    def options(self) -> dict[str, Any]:
        return vars(self)

    def refused(self, rows: RowShape, hint: str) -> InvalidInput:
        kind = rows.kind_of(self.column)
        return InvalidInput(f"there is no {self.name} of {self.column!r} ({kind})", hint=hint)


@dataclass(frozen=True)
class Count:
    column: str | None = None
    name: ClassVar[str] = "count"

    def columns(self, rows: RowShape) -> Sequence[str]:
        return [] if self.column is None else [self.column]

    def fold(self, rows: RowShape) -> Fold:
        for column in self.columns(rows):
            rows.kind_of(column)
        return Counting(self.column)

    def options(self) -> dict[str, Any]:
        return vars(self)


class Sum(OfColumn):
    name = "sum"

    def fold(self, rows: RowShape) -> Fold:
        kind = rows.kind_of(self.column)
        if pa.types.is_integer(kind) and kind != pa.uint64():
            return IntegerSum(self.column, rows.weighted)
        return self._of_fractions(rows, mean=False)

    def _of_fractions(self, rows: RowShape, *, mean: bool) -> Fold:
        kind = rows.kind_of(self.column)
        if pa.types.is_decimal(kind) and kind.bit_width <= 128:
            return DecimalSum(self.column, kind.precision, kind.scale, mean, rows.weighted)
        if pa.types.is_floating(kind):
            return _of_doubles(self.column, rows, mean=mean)
        raise self.refused(rows, "cast it to a number: an integer of 64 bits, a double, a decimal")


def _of_doubles(column: str, rows: RowShape, *, mean: bool) -> Fold:
    return ExactSum(column, mean) if rows.weighted else DoubleSum(column, mean)


class Mean(Sum):
    name = "mean"

    def fold(self, rows: RowShape) -> Fold:
        kind = rows.kind_of(self.column)
        if pa.types.is_integer(kind) and kind != pa.uint64():
            return _of_doubles(self.column, rows, mean=True)
        return self._of_fractions(rows, mean=True)


class Max(OfColumn):
    name = "max"
    highest: ClassVar[bool] = True

    def fold(self, rows: RowShape) -> Fold:
        kind = rows.kind_of(self.column)
        if not is_ordered(kind):
            raise self.refused(rows, "maps and intervals have no order: take a part of them")
        if rows.weighted:
            return End(self.column, kind, last=self.highest)
        return Extreme(self.column, kind, self.highest)


class Min(Max):
    name = "min"
    highest = False


class Latest(OfColumn):
    """The highest event time of all rows, also of those that were taken back."""

    name = "latest"

    def fold(self, rows: RowShape) -> Fold:
        rows.kind_of(self.column)
        return Extreme(self.column, TIME_TYPE, highest=True)


class Last(OfColumn):
    """Over a stream all of them are picked together (Picks), over a table each is a fold."""

    name = "last"
    last: ClassVar[bool] = True

    def columns(self, rows: RowShape) -> Sequence[str]:
        return [self.column, *rows.order.values()]

    def fold(self, rows: RowShape) -> Fold:
        order = tuple(rows.order.values())
        return End(self.column, rows.kind_of(self.column), order, last=self.last)


class First(Last):
    name = "first"
    last = False
