"""Ctrl-C, SIGTERM and a terminal that is closed: how an app is told to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """It was told to stop before it had begun."""


class Stop(threading.Event):
    """Set when it is time to stop; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        super().__init__()
        self._begins = False

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While in here, what is being done is interrupted by Stopped: as Spark takes long to
        start, and nothing has begun that should come to an end in order."""
        self._begins = True
        try:
            yield
        finally:
            self._begins = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        is_second = self.is_set()
        self.set()
        if self._begins and not is_second:
            raise Stopped
        if is_second and number == signal.SIGINT:
            raise KeyboardInterrupt


@contextmanager
def told_to_stop() -> Iterator[Stop]:
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {each: signal.signal(each, stop.handle) for each in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
