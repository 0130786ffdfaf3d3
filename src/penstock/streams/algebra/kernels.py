"""Kernels by name, as they travel to the processes that run them."""

from typing import Any

from penstock.errors import InvalidInput
from penstock.streams.algebra.analytics.bloom import BloomKernel
from penstock.streams.algebra.analytics.dedup import DedupKernel
from penstock.streams.algebra.analytics.gaps import GapKernel
from penstock.streams.algebra.analytics.in_order import InOrderKernel
from penstock.streams.algebra.analytics.latest import LatestKernel
from penstock.streams.algebra.analytics.seen import SeenKernel
from penstock.streams.algebra.analytics.series import SeriesKernel
from penstock.streams.algebra.joins.sides import Side
from penstock.streams.algebra.kernel import Kernel
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.algebra.keyed.copies import CopiesKernel
from penstock.streams.algebra.keyed.distinct import DistinctKernel
from penstock.streams.algebra.keyed.held import HeldKernel
from penstock.streams.algebra.keyed.history import HistoryKernel
from penstock.streams.algebra.keyed.top import TopKernel
from penstock.streams.algebra.keyed.upserts import UpsertKernel
from penstock.streams.algebra.windows.hopping import HoppingKernel
from penstock.streams.algebra.windows.rolling import RollingKernel
from penstock.streams.algebra.windows.sessions import SessionKernel
from penstock.streams.algebra.windows.sliding import SlidingKernel
from penstock.streams.algebra.windows.window import Session, Sliding, Window

_KERNELS: dict[str, Any] = {
    "aggregate": AggregateKernel,
    "bloom": BloomKernel,
    "copies": CopiesKernel,
    "dedup": DedupKernel,
    "distinct": DistinctKernel,
    "gaps": GapKernel,
    "held": HeldKernel,
    "history": HistoryKernel,
    "hopping": HoppingKernel,
    "in_order": InOrderKernel,
    "latest": LatestKernel,
    "rolling": RollingKernel,
    "seen": SeenKernel,
    "series": SeriesKernel,
    "session": SessionKernel,
    "side": Side,
    "sliding": SlidingKernel,
    "top": TopKernel,
    "upsert": UpsertKernel,
}


def kernel_over(by: Any, window: Window, *arguments: Any, **options: Any) -> Kernel:
    """The kernel for windows of this kind, with the arguments that each takes."""
    if isinstance(window, Session):
        return SessionKernel(by, window, *arguments, **options)
    if isinstance(window, Sliding):
        return SlidingKernel(by, window, *arguments, **options)
    return HoppingKernel(by, window, *arguments, **options)


def kernel_from_spec(spec: dict[str, Any]) -> Kernel:
    made = _KERNELS.get(spec["kernel"])
    if made is None:
        raise InvalidInput(
            f"there is no kernel {spec['kernel']!r}", hint=f"there are {', '.join(_KERNELS)}"
        )
    kernel: Kernel = made.from_spec(spec)
    return kernel
