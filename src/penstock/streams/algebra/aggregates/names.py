"""Aggregates by name, as they travel to the processes that compute them."""

from typing import Any

from penstock.streams.algebra.aggregates import basic, distributions
from penstock.streams.algebra.aggregates.basic import Aggregate

_KINDS: dict[str, type[Any]] = {
    each.name: each
    for each in (
        basic.Count,
        basic.Sum,
        basic.Mean,
        basic.Min,
        basic.Max,
        basic.Latest,
        basic.First,
        basic.Last,
        distributions.StdDev,
        distributions.Collect,
        distributions.Distinct,
        distributions.ApproxDistinct,
        distributions.Quantile,
        distributions.ApproxQuantile,
        distributions.Top,
        distributions.ApproxTop,
        distributions.Histogram,
    )
}


def aggregate_spec(aggregate: Aggregate) -> dict[str, Any]:
    return {"aggregate": aggregate.name, **aggregate.options()}


def is_portable(aggregate: Aggregate) -> bool:
    """Whether `aggregate_from_spec` makes it from its spec again."""
    return _KINDS.get(aggregate.name) is type(aggregate)


def aggregate_from_spec(spec: dict[str, Any]) -> Aggregate:
    """JSON makes lists of tuples, which aggregates take as well."""
    options = dict(spec)
    made: Aggregate = _KINDS[options.pop("aggregate")](**options)
    return made
