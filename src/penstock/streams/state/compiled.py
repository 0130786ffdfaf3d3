"""How the kernels of this room are compiled, and the arrays they work on.

The first call of a machine compiles, which takes seconds; the result is kept on disk and loaded by
later processes. No kernel holds the interpreter's lock. Every array they are given is flat and
contiguous, and those that they only read are frozen, so that each is compiled for one signature and
never again in the middle of a run.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Number = int | np.int64
Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    # No kernel makes an array, and counting references to those it is given would double its time.
    options: dict[str, Any] = {"nogil": True, "_nrt": False}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # a read-only install and no home: compiled anew in each process
        compiled = njit(**options)(function)
    return cast(Callable[P, R], compiled)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    return cast(Callable[P, R], njit(inline="always")(function))


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """A view that cannot be written to, as which Arrow's own buffers come anyway."""
    view = array.view()
    view.flags.writeable = False
    return view
