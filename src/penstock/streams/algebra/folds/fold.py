"""How values are folded into one: parts of groups of rows, merged, and results.

A fold turns the rows of each group into parts, which are Arrow columns, merges parts of the same
group, and makes the result from the parts of all rows. Merging in any order and in any cuts gives
a result that is as right, and of most folds (`order_free`) the same. A part that is null adds
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.compiled import Mask, Number, Numbers, frozen
from penstock.streams.algebra.folds import fold_loops
from penstock.streams.algebra.folds.fold_loops import FITS
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.algebra.rows.order import extreme_rows
from penstock.streams.state import fixed_width

Parts = list[pa.Array]


class Overflow(Exception):
    """The total of the group of this number leaves a type."""

    def __init__(self, kind: pa.DataType, group: Number) -> None:
        super().__init__(kind, group)
        self.kind = kind
        self.group = int(group)


class Failure(Exception):
    """A user's function failed on the group of this number."""

    def __init__(self, group: int, cause: Exception) -> None:
        super().__init__(group, cause)
        self.group = group
        self.cause = cause


class Fold(Protocol):
    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        """Names and types of the parts; the name of the one that stands for the result is empty."""
        ...

    @property
    def kind(self) -> pa.DataType:
        """The type of the result."""
        ...

    @property
    def order_free(self) -> bool:
        """Whether it does not show in the result in what order and in what cuts parts are merged.

        Of other folds a result is only found again by merging the same parts in the same order.
        """
        ...

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        """The parts of each group, of which every row counts as often as its weight, or once.

        Raises Overflow or Failure, as the others do.
        """
        ...

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        """The parts of each group: those given of it together, and with what was there before."""
        ...

    def result(self, parts: Parts) -> pa.Array: ...


def is_nothing(parts: Parts) -> Mask:
    """Where the parts are all null, or zero if they are numbers, as if no row had ever been."""
    nothing = np.ones(len(parts[0]), np.bool_)
    for part in parts:
        if fixed_width.dtype_of(part.type) is None:
            nothing &= ~fixed_width.validity(part)
            continue
        values = fixed_width.numbers(part)
        nothing &= (values == 0).all(axis=1) if values.ndim == 2 else values == 0
    return nothing


def integers(values: Numbers, valid: Mask | None = None) -> pa.Array:
    everywhere = np.ones(len(values), np.bool_) if valid is None else valid
    return fixed_width.from_numbers(pa.int64(), values, everywhere)


def start(part: pa.Array, groups: Groups, into: pa.Array | None) -> fixed_width.Values:
    if into is not None:
        return fixed_width.numbers(into).copy()
    values = fixed_width.numbers(part)
    return np.zeros((len(groups), *values.shape[1:]), values.dtype)


def any_valid(part: pa.Array, groups: Groups, into: pa.Array | None) -> Mask:
    """Which groups have a part that is not null."""
    if part.null_count == 0:
        return np.ones(len(groups), np.bool_)
    marks = np.zeros(len(groups), np.bool_) if into is None else fixed_width.validity(into).copy()
    fold_loops.mark(groups.ids, frozen(fixed_width.validity(part)), marks)
    return marks


def add(part: pa.Array, groups: Groups, into: pa.Array | None) -> pa.Array:
    if into is None and groups.are_single:
        return part
    totals = start(part, groups, into)
    group = fold_loops.add_numbers(groups.ids, frozen(fixed_width.numbers(part)), totals)
    if group != FITS:
        raise Overflow(pa.int64(), group)
    return integers(totals, any_valid(part, groups, into))


def presence(array: pa.Array, weights: Numbers | None) -> pa.Array:
    """How often each row counts: not at all where it is null."""
    valid = fixed_width.validity(array).astype(np.int64)
    return integers(valid if weights is None else valid * weights)


@dataclass(frozen=True)
class Counting:
    """Rows, or the values of a column that are not null."""

    column: str | None
    parts = (("", pa.int64()),)
    kind = pa.int64()
    order_free = True

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        if self.column is not None:
            once = presence(rows.column(self.column), weights)
        else:
            once = integers(np.ones(rows.num_rows, np.int64) if weights is None else weights)
        return self.merge([once], groups, None)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        return [add(parts[0], groups, into and into[0])]

    def result(self, parts: Parts) -> pa.Array:
        return pc.fill_null(parts[0], 0)


@dataclass(frozen=True)
class Extreme:
    """The highest value of a column, or the lowest."""

    column: str
    kind: pa.DataType
    highest: bool
    order_free = True

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        return [("", self.kind)]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        return self.merge([rows.column(self.column).cast(self.kind)], groups, None)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        values = parts[0]
        if into is None:
            if groups.are_single:
                return parts
            rows = extreme_rows(groups.ids, len(groups), values, highest=self.highest)
            return [take(values, rows)]
        both = pa.concat_arrays([into[0], values])
        ids = groups.behind(len(groups))
        rows = extreme_rows(ids, len(groups), both, highest=self.highest)
        return [take_behind(into[0], values, rows)]

    def result(self, parts: Parts) -> pa.Array:
        return parts[0]


def take_behind(before: pa.Array, values: pa.Array, rows: Numbers) -> pa.Array:
    """The same from two arrays of which the rows of one come behind those of the other.

    All rows mostly come from the second, and often are that, one by one.
    """
    if len(rows) == 0 or rows.min() < len(before):
        return take(pa.concat_arrays([before, values]), rows)
    rows = rows - len(before)
    if len(rows) == len(values) and np.array_equal(rows, np.arange(len(rows))):
        return values
    return values.take(pa.array(rows))


def take(values: pa.Array, rows: Numbers) -> pa.Array:
    """The values of these rows, null for -1."""
    missing = rows < 0
    return values.take(pa.array(rows, mask=missing if missing.any() else None))


def spread(columns: Sequence[pa.Array], there: Mask) -> list[pa.Array]:
    """The values of each column in the places where they are there, null in the others."""
    rows = np.where(there, np.cumsum(there) - 1, -1)
    return [take(column, rows) for column in columns]
