"""Aggregates by name, as they travel to the processes that compute them."""

from typing import Any

from penstock.streams.algebra import aggregate_specs, distribution_specs
from penstock.streams.algebra.aggregate_specs import Aggregate

_KINDS: dict[str, type[Any]] = {
    each.name: each
    for each in (
        aggregate_specs.Count,
        aggregate_specs.Sum,
        aggregate_specs.Mean,
        aggregate_specs.Min,
        aggregate_specs.Max,
        aggregate_specs.Latest,
        aggregate_specs.First,
        aggregate_specs.Last,
        distribution_specs.StdDev,
        distribution_specs.Collect,
        distribution_specs.Distinct,
        distribution_specs.ApproxDistinct,
        distribution_specs.Quantile,
        distribution_specs.ApproxQuantile,
        distribution_specs.Top,
        distribution_specs.ApproxTop,
        distribution_specs.Histogram,
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
