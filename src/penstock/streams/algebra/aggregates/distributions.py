"""Aggregates of how values are distributed, as they are asked for: exact ones and their twins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.streams.algebra.aggregates.basic import OfColumn, Sum
from penstock.streams.algebra.folds import histograms
from penstock.streams.algebra.folds.deviations import Deviation
from penstock.streams.algebra.folds.exact import ExactDeviation
from penstock.streams.algebra.folds.fold import Fold
from penstock.streams.algebra.multisets import answers
from penstock.streams.algebra.rows.order import is_ordered
from penstock.streams.algebra.rows.shape import RowShape
from penstock.streams.algebra.sketches.heavy_hitters import HeavyHitters
from penstock.streams.algebra.sketches.hyperloglog import DistinctSketch
from penstock.streams.algebra.sketches.log_bins import BinQuantile

_HLL = 1.04  # the standard error of one register
_COARSEST, _FINEST = 4, 18  # of HyperLogLog, in powers of two


class _OfNumbers(OfColumn):
    def checked(self, rows: RowShape) -> None:
        kind = rows.kind_of(self.column)
        decimal = pa.types.is_decimal(kind) and kind.bit_width <= 128
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or decimal):
            raise self.refused(rows, "cast it to a number: an integer, a double, a decimal")


class StdDev(_OfNumbers):
    name = "stddev"

    def fold(self, rows: RowShape) -> Fold:
        self.checked(rows)
        return ExactDeviation(self.column) if rows.weighted else Deviation(self.column)


@dataclass(frozen=True)
class Collect(OfColumn):
    limit: int
    name: ClassVar[str] = "collect"

    def __post_init__(self) -> None:
        _check_positive("limit", self.limit)

    def columns(self, rows: RowShape) -> Sequence[str]:
        return [self.column, *rows.order.values()]

    def fold(self, rows: RowShape) -> Fold:
        order, kind = tuple(rows.order.values()), rows.kind_of(self.column)
        return answers.Collection(
            self.column, kind, order, limit=self.limit, weighted=rows.weighted
        )


class Distinct(OfColumn):
    name = "distinct"

    def fold(self, rows: RowShape) -> Fold:
        kind = rows.kind_of(self.column)
        return answers.Distinct(self.column, kind, counted=rows.weighted)


@dataclass(frozen=True)
class ApproxDistinct(OfColumn):
    error: float
    name: ClassVar[str] = "approx_distinct"

    def __post_init__(self) -> None:
        finest, coarsest = (_HLL / math.sqrt(1 << bits) for bits in (_FINEST, _COARSEST))
        _check_between("error", self.error, finest, coarsest)

    def fold(self, rows: RowShape) -> Fold:
        rows.kind_of(self.column)
        _check_stays(self, rows, "distinct")
        registers = math.ceil((_HLL / self.error) ** 2)
        return DistinctSketch(self.column, max(_COARSEST, (registers - 1).bit_length()))


@dataclass(frozen=True)
class Quantile(OfColumn):
    q: float | Sequence[float]
    name: ClassVar[str] = "quantile"

    def __post_init__(self) -> None:
        for share in self.shares:
            _check_between("q", share, 0.0, 1.0)
        if not self.shares:
            raise InvalidInput("no quantile is asked for", hint="give q=0.5, or q=[0.5, 0.99]")
        if not self.single:
            object.__setattr__(self, "q", self.shares)

    @property
    def single(self) -> bool:
        return isinstance(self.q, float | int)

    @property
    def shares(self) -> tuple[float, ...]:
        return (self.q,) if isinstance(self.q, float | int) else tuple(self.q)

    def fold(self, rows: RowShape) -> Fold:
        kind = rows.kind_of(self.column)
        if not is_ordered(kind):
            raise self.refused(rows, "maps and intervals have no order: take a part of them")
        return answers.Quantile(self.column, kind, shares=self.shares, single=self.single)


@dataclass(frozen=True)
class ApproxQuantile(Quantile, _OfNumbers):
    error: float = 0.01
    name: ClassVar[str] = "approx_quantile"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_between("error", self.error, 0.0005, 0.5)

    def fold(self, rows: RowShape) -> Fold:
        self.checked(rows)
        return BinQuantile(
            self.column, pa.int32(), shares=self.shares, single=self.single, error=self.error
        )


@dataclass(frozen=True)
class Top(OfColumn):
    k: int
    by: str | None = None
    name: ClassVar[str] = "top"

    def __post_init__(self) -> None:
        _check_positive("k", self.k)

    def columns(self, rows: RowShape) -> Sequence[str]:
        return [self.column] if self.by is None else [self.column, self.by]

    def fold(self, rows: RowShape) -> Fold:
        sums = None if self.by is None else Sum(self.by).fold(rows)
        return answers.Top(self.column, rows.kind_of(self.column), sums=sums, k=self.k)


@dataclass(frozen=True)
class ApproxTop(OfColumn):
    k: int
    error: float
    name: ClassVar[str] = "approx_top"

    def __post_init__(self) -> None:
        _check_positive("k", self.k)
        _check_between("error", self.error, 1e-6, 1 / self.k)

    def fold(self, rows: RowShape) -> Fold:
        kind = rows.kind_of(self.column)
        _check_stays(self, rows, "top")
        return HeavyHitters(self.column, kind, k=self.k, room=math.ceil(1 / self.error))


@dataclass(frozen=True)
class Histogram(_OfNumbers):
    edges: Sequence[float]
    name: ClassVar[str] = "histogram"

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(map(float, self.edges)))
        pairs = zip(self.edges, self.edges[1:], strict=False)
        if (
            not self.edges
            or not all(map(math.isfinite, self.edges))
            or any(a >= b for a, b in pairs)
        ):
            raise InvalidInput(
                f"{list(self.edges)} are no edges of a histogram",
                hint="give at least one finite number, each higher than the one before",
            )

    def fold(self, rows: RowShape) -> Fold:
        self.checked(rows)
        return histograms.Histogram(self.column, tuple(self.edges))


def _check_positive(what: str, value: int) -> None:
    if value < 1:
        raise InvalidInput(f"{what} is {value}", hint=f"{what} is at least 1")


def _check_between(what: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidInput(f"{what} is {value}", hint=f"{what} is from {low:.4g} to {high:.4g}")


def _check_stays(aggregate: OfColumn, rows: RowShape, twin: str) -> None:
    if rows.weighted:
        raise aggregate.refused(
            rows, f"a table's rows can go, which a sketch does not follow; {twin} is exact and does"
        )
