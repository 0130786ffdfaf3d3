"""Kernels by name, as they travel to the processes that run them."""

from typing import Any

from penstock.errors import InvalidInput
from penstock.streams.algebra.kernel import Kernel
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.algebra.keyed.held import HeldKernel
from penstock.streams.algebra.keyed.upserts import UpsertKernel
from penstock.streams.algebra.windows.hopping import WindowKernel
from penstock.streams.algebra.windows.sessions import SessionKernel
from penstock.streams.algebra.windows.window import Session, Window

_KERNELS: dict[str, Any] = {
    "aggregate": AggregateKernel,
    "held": HeldKernel,
    "session": SessionKernel,
    "upsert": UpsertKernel,
    "window": WindowKernel,
}


def kernel_over(by: Any, window: Window, *arguments: Any, **options: Any) -> Kernel:
    """The kernel for windows of this kind, with the arguments that each takes."""
    if isinstance(window, Session):
        return SessionKernel(by, window, *arguments, **options)
    return WindowKernel(by, window, *arguments, **options)


def kernel_from_spec(spec: dict[str, Any]) -> Kernel:
    made = _KERNELS.get(spec["kernel"])
    if made is None:
        raise InvalidInput(
            f"there is no kernel {spec['kernel']!r}", hint=f"there are {', '.join(_KERNELS)}"
        )
    kernel: Kernel = made.from_spec(spec)
    return kernel
