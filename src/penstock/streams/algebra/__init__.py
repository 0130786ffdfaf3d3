"""Kernels: stateful operators as functions of state and changes, without Spark."""

from penstock.streams.algebra.aggregate import AggregateKernel
from penstock.streams.algebra.aggregates import Aggregate, count, first, last, max, mean, min, sum  # noqa: A004
from penstock.streams.algebra.kernel import Kernel
from penstock.streams.algebra.specs import kernel_from_spec
from penstock.streams.algebra.upserts import UpsertKernel

__all__ = [
    "Aggregate",
    "AggregateKernel",
    "Kernel",
    "UpsertKernel",
    "count",
    "first",
    "kernel_from_spec",
    "last",
    "max",
    "mean",
    "min",
    "sum",
]
