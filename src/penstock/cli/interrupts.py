"""Ctrl-C and SIGTERM, taken between two steps of a command rather than in the middle of one."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """While it is entered, either signal raises KeyboardInterrupt, at the end of a held-back block.

    A second signal does not wait for that end.
    """

    def __init__(self) -> None:
        self._holding = False
        self._pending = False

    @contextmanager
    def held_back(self) -> Iterator[None]:
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._holding or self._pending:
            raise KeyboardInterrupt
        self._pending = True

    def __enter__(self) -> Self:
        signals = (signal.SIGINT, signal.SIGTERM)
        self._before = {each: signal.signal(each, self._handle) for each in signals}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
