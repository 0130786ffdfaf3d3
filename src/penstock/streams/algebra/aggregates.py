"""What can be asked of the rows of a key.

    aggregate(orders, by="customer", n=count(), total=sum("amount"), latest=last("status"))

Nulls are left out, as in SQL; of no values at all, a count is 0 and everything else is null.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.errors import InvalidInput, UnknownName
from penstock.streams.algebra.folds import Counting, Extreme, Fold
from penstock.streams.algebra.order import is_ordered
from penstock.streams.algebra.sums import DecimalSum, DoubleSum, IntegerSum


class Folded(Protocol):
    """An aggregate whose parts are merged; any class like this one can be given to a kernel."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> Sequence[str]:
        """Those that it reads."""
        ...

    def fold(self, schema: pa.Schema, *, weighted: bool) -> Fold:
        """How it is computed over rows of this schema, of which some are taken back if `weighted`.

        Raises InvalidInput when it has no answer for the type of its column.
        """
        ...


@dataclass(frozen=True)
class _OfColumn:
    column: str
    name: ClassVar[str]

    @property
    def columns(self) -> Sequence[str]:
        return [self.column]

    def _kind(self, schema: pa.Schema) -> pa.DataType:
        return column_type(schema, self.column)

    def _refused(self, kind: pa.DataType, hint: str) -> InvalidInput:
        return InvalidInput(f"there is no {self.name} of {self.column!r} ({kind})", hint=hint)


def column_type(schema: pa.Schema, column: str) -> pa.DataType:
    if column not in schema.names:
        raise UnknownName(
            f"there is no column {column!r}", hint=f"the rows have {', '.join(schema.names)}"
        )
    return schema.field(column).type


@dataclass(frozen=True)
class Count:
    column: str | None = None
    name: ClassVar[str] = "count"

    @property
    def columns(self) -> Sequence[str]:
        return [] if self.column is None else [self.column]

    def fold(self, schema: pa.Schema, *, weighted: bool) -> Fold:
        for column in self.columns:
            column_type(schema, column)
        return Counting(self.column)


class Sum(_OfColumn):
    name = "sum"

    def fold(self, schema: pa.Schema, *, weighted: bool) -> Fold:
        kind = self._kind(schema)
        if pa.types.is_integer(kind) and kind != pa.uint64():
            return IntegerSum(self.column, weighted)
        return self._of_fractions(kind, weighted, mean=False)

    def _of_fractions(self, kind: pa.DataType, weighted: bool, *, mean: bool) -> Fold:
        if pa.types.is_decimal(kind) and kind.bit_width <= 128:
            return DecimalSum(self.column, kind.precision, kind.scale, mean, weighted)
        if pa.types.is_floating(kind):
            return DoubleSum(self.column, mean, weighted)
        raise self._refused(kind, "cast it to a number: an integer of 64 bits, a double, a decimal")


class Mean(Sum):
    name = "mean"

    def fold(self, schema: pa.Schema, *, weighted: bool) -> Fold:
        kind = self._kind(schema)
        if pa.types.is_integer(kind) and kind != pa.uint64():
            return DoubleSum(self.column, True, weighted)
        return self._of_fractions(kind, weighted, mean=True)


class Max(_OfColumn):
    name = "max"
    highest: ClassVar[bool] = True

    def fold(self, schema: pa.Schema, *, weighted: bool) -> Fold:
        kind = self._kind(schema)
        if weighted:
            raise self._refused(kind, "a table's rows can go; only count, sum and mean follow that")
        if not is_ordered(kind):
            raise self._refused(kind, "maps and intervals have no order: take a part of them")
        return Extreme(self.column, kind, self.highest)


class Min(Max):
    name = "min"
    highest = False


class Last(_OfColumn):
    name = "last"


class First(_OfColumn):
    name = "first"


Aggregate = Folded | Last | First


def count(column: str | None = None) -> Aggregate:
    """How many rows there are, or how many values of a column that are not null; an int64."""
    return Count(column)


def sum(column: str) -> Aggregate:  # noqa: A001
    """Of integers an int64, of decimals one with ten digits more, else a double.

    A sum that leaves its type raises KernelError when it is computed.
    """
    return Sum(column)


def mean(column: str) -> Aggregate:
    """A double; of decimals, a decimal with four digits more."""
    return Mean(column)


def min(column: str) -> Aggregate:  # noqa: A001
    """In Spark's order, in which NaN is the highest number."""
    return Min(column)


def max(column: str) -> Aggregate:  # noqa: A001
    """In Spark's order, in which NaN is the highest number."""
    return Max(column)


def first(column: str) -> Aggregate:
    """The first value that is not null: by event time, partition and offset, then the lowest."""
    return First(column)


def last(column: str) -> Aggregate:
    """The last value that is not null: by event time, partition and offset, then the highest."""
    return Last(column)


_KINDS: dict[str, type[Any]] = {
    each.name: each for each in (Count, Sum, Mean, Min, Max, First, Last)
}


def aggregate_spec(aggregate: Aggregate) -> dict[str, Any]:
    return {"aggregate": aggregate.name, **vars(aggregate)}


def aggregate_from_spec(spec: dict[str, Any]) -> Aggregate:
    options = dict(spec)
    made: Aggregate = _KINDS[options.pop("aggregate")](**options)
    return made
