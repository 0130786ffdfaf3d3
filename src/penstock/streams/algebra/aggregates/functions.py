"""What can be asked of the rows of a key.

    aggregate(orders, by="customer", n=count(), total=sum("amount"), latest=last("status"))

Nulls are left out, as in SQL; of no values at all, a count is 0 and everything else is null.
"""

from collections.abc import Sequence

from penstock.streams.algebra.aggregates import distributions as specs
from penstock.streams.algebra.aggregates.basic import (
    Aggregate,
    Count,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
)
from penstock.streams.algebra.aggregates.own import Aggregation

__all__ = [
    "Aggregate",
    "Aggregation",
    "approx_distinct",
    "approx_quantile",
    "approx_top",
    "collect",
    "count",
    "distinct",
    "first",
    "histogram",
    "last",
    "max",
    "mean",
    "min",
    "quantile",
    "stddev",
    "sum",
    "top",
]


def count(column: str | None = None) -> Aggregate:
    """How many rows there are, or how many values of a column that are not null; an int64."""
    return Count(column)


def sum(column: str) -> Aggregate:  # noqa: A001
    """Of integers an int64, of decimals one with ten digits more, else a double.

    A sum that leaves its type raises KernelError when it is computed. Over a table, a sum of
    doubles is exact and rounded once, so that rows that go leave nothing behind.
    """
    return Sum(column)


def mean(column: str) -> Aggregate:
    """A double; of decimals, a decimal with four digits more."""
    return Mean(column)


def min(column: str) -> Aggregate:  # noqa: A001
    """In Spark's order, in which NaN is the highest number; of a table, every value is kept."""
    return Min(column)


def max(column: str) -> Aggregate:  # noqa: A001
    """In Spark's order, in which NaN is the highest number; of a table, every value is kept."""
    return Max(column)


def first(column: str) -> Aggregate:
    """The first value that is not null: by event time, partition and offset, then the lowest.

    Over a table it is by event time alone, and every value of a key is kept.
    """
    return First(column)


def last(column: str) -> Aggregate:
    """The last value that is not null: by event time, partition and offset, then the highest.

    Over a table it is by event time alone, and every value of a key is kept.
    """
    return Last(column)


def stddev(column: str) -> Aggregate:
    """The standard deviation of a sample, a double; null of less than two values.

    Over a stream it is computed with twice the bits of a double: all but the last few bits are good
    while it is above the mean divided by 2^26, and below the mean divided by 2^45 it is 0; values
    beyond 1e140 make it NaN. Over a table it is computed exactly. It is NaN while there is a value
    that is not finite. Decimals are taken as doubles.
    """
    return specs.StdDev(column)


def collect(column: str, limit: int = 1000) -> Aggregate:
    """The values by event time, partition and offset, then ascending: `{values: [...], more: 0}`.

    Beyond the limit the first ones are kept; `more` says how many others there are. Of a table all
    are kept, as those beyond may come in when others go, and the order is by event time alone.
    """
    return specs.Collect(column, limit)


def distinct(column: str) -> Aggregate:
    """How many different values there are, exactly, an int64. All NaN are one, and so are zeros.

    The state of a key has every value once; `approx_distinct` has a bound.
    """
    return specs.Distinct(column)


def approx_distinct(column: str, error: float = 0.01) -> Aggregate:
    """How many different values there are, about, an int64: HyperLogLog, the twin of `distinct`.

    `error` is the standard error, relative to the number: two thirds of all answers are nearer than
    that, 95 % nearer than twice that. Up to some values, 4096 at 1 %, it is as good as exact. A key
    takes 4 bytes a value at first, then 16 KiB at 1 %. Tables are refused.
    """
    return specs.ApproxDistinct(column, error)


def quantile(column: str, q: float | Sequence[float]) -> Aggregate:
    """The lowest value that a share `q` of all values does not exceed, exactly; NaN is the highest.

    It is one of the values, of their type: 0.5 is the lower median, 0 the lowest and 1 the highest.
    Several `q`, which are taken to six digits, give a list. The state of a key has every different
    value once with its count; `approx_quantile` has a bound.
    """
    return specs.Quantile(column, q)


def approx_quantile(column: str, q: float | Sequence[float], error: float = 0.01) -> Aggregate:
    """A double that is not further from `quantile` than the share `error` of its size: DDSketch.

    Negative numbers are as good, and what is nearer to 0 than 2.3e-308 is 0. A key keeps a count
    for each bin that has values, at 1 % of 116 for every factor of ten that these span, so that it
    cannot have more than 143,000 in all, and nothing has to be left out. Tables are followed.
    """
    return specs.ApproxQuantile(column, q, error)


def top(column: str, k: int = 10, by: str | None = None) -> Aggregate:
    """The `k` most frequent values, exactly: a list of `{value, count}`, the highest count first.

    With `by`, those with the highest sum of that column: `{value, sum}`. Of values as high the
    lower one comes first. The state of a key has every different value once; `approx_top` has a
    bound.
    """
    return specs.Top(column, k, by)


def approx_top(column: str, k: int = 10, error: float = 0.001) -> Aggregate:
    """The `k` most frequent values, about, as `top` gives them: Misra and Gries.

    A count is never too high, and too low by at most `error` times the rows of the key, so that
    every value is considered whose share is above `error`. A key keeps 1 / `error` values. As long
    as it has no more, it is exact; after that, which of all answers within these bounds it is, may
    depend on how rows are cut into batches. Tables are refused.
    """
    return specs.ApproxTop(column, k, error)


def histogram(column: str, edges: Sequence[float]) -> Aggregate:
    """How many values are below the first edge, from each edge to below the next, from the last on.

    A list of int64, one more than edges. Values are compared as doubles, and NaN is above all.
    Tables are followed.
    """
    return specs.Histogram(column, edges)
