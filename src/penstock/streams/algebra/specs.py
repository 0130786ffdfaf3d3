"""Kernels by name, as they travel to the processes that run them."""

from typing import Any

from penstock.errors import InvalidInput
from penstock.streams.algebra.aggregate import AggregateKernel
from penstock.streams.algebra.kernel import Kernel
from penstock.streams.algebra.upserts import UpsertKernel

_KERNELS: dict[str, type[AggregateKernel] | type[UpsertKernel]] = {
    "aggregate": AggregateKernel,
    "upsert": UpsertKernel,
}


def kernel_from_spec(spec: dict[str, Any]) -> Kernel:
    made = _KERNELS.get(spec["kernel"])
    if made is None:
        raise InvalidInput(
            f"there is no kernel {spec['kernel']!r}", hint=f"there are {', '.join(_KERNELS)}"
        )
    return made.from_spec(spec)
