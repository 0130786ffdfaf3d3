"""Waiting for a condition instead of for a while."""

from collections.abc import Callable
from typing import Literal, TypeVar

from penstock import clock

Answer = TypeVar("Answer")

_PAUSE = 0.005


def wait_until(
    condition: Callable[[], Answer | Literal[False] | None], *, within: float = 10.0, what: str = ""
) -> Answer:
    """The first true answer of a condition that is asked again every few milliseconds.

    Raises TimeoutError after `within` seconds; `what` says in its message what was waited for.
    """
    deadline = clock.monotonic() + within
    while not (answer := condition()):
        if clock.monotonic() >= deadline:
            raise TimeoutError(f"waited {within:g} s for {what or 'a condition'}")
        clock.sleep(_PAUSE)
    return answer
