"""Kernels: stateful operators as functions of state and changes, without Spark."""

from penstock.streams.algebra.aggregates.functions import (
    Aggregate,
    Aggregation,
    approx_distinct,
    approx_quantile,
    approx_top,
    collect,
    count,
    distinct,
    first,
    histogram,
    last,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    quantile,
    stddev,
    sum,  # noqa: A004
    top,
)
from penstock.streams.algebra.aggregates.summary import Summary
from penstock.streams.algebra.kernel import Kernel
from penstock.streams.algebra.kernels import kernel_from_spec, kernel_over
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.algebra.keyed.upserts import UpsertKernel
from penstock.streams.algebra.windows.window import Window, hopping, session, sliding, tumbling

__all__ = [
    "Aggregate",
    "AggregateKernel",
    "Aggregation",
    "Kernel",
    "Summary",
    "UpsertKernel",
    "Window",
    "approx_distinct",
    "approx_quantile",
    "approx_top",
    "collect",
    "count",
    "distinct",
    "first",
    "histogram",
    "hopping",
    "kernel_from_spec",
    "kernel_over",
    "last",
    "max",
    "mean",
    "min",
    "quantile",
    "session",
    "sliding",
    "stddev",
    "sum",
    "top",
    "tumbling",
]
