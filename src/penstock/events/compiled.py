"""How kernels are compiled, and the arrays they work on.

The first call of a machine compiles, which takes seconds; the result is kept on disk and loaded by
later processes. No kernel holds the interpreter's lock. Every array that they are given is flat and
contiguous, and those that they only read are frozen, as Arrow's own buffers are, so that each is
compiled for one signature and never again in the middle of a run.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

Number = int | np.int64
Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Positions = NDArray[np.int32]  # the offsets of Arrow's binary and list arrays

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)

# No kernel makes an array, and counting references to those it is given would double its time.
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    try:
        compiled = njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # a read-only install and no home: compiled anew in each process
        compiled = njit(**_OPTIONS)(function)
    return cast(Callable[P, R], compiled)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that kernels call, compiled with each of them.

    What is kept on disk is kept per file: after a change to a part, the kernels in other files
    that call it are only compiled anew once these are touched too.
    """
    return cast(Callable[P, R], njit(**_OPTIONS)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """As `part`, put where it is called: for one that is given many arrays, which costs a call."""
    return cast(Callable[P, R], njit(inline="always")(function))


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    view = array.view()
    view.flags.writeable = False
    return view


def binary_parts(values: pa.BinaryArray) -> tuple[Bytes, Positions]:
    """The bytes among which the values are, and where each begins and the last ends."""
    if not len(values):  # there may be no buffers then
        return frozen(np.zeros(1, np.uint8)), frozen(np.zeros(1, np.int32))
    _, positions, content = values.buffers()
    places = np.frombuffer(positions, np.int32)[values.offset : values.offset + len(values) + 1]
    return frozen(np.frombuffer(content or b" ", np.uint8)), frozen(places)
