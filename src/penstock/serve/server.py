"""The server of HTTP as uvicorn has it, but asleep while nobody asks anything."""

import asyncio
from contextlib import suppress

import uvicorn

_TICK = 1.0  # seconds; each answer tells the date, which is written anew that often


class Server(uvicorn.Server):
    """uvicorn looks ten times a second whether it is to end. This one is told."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()  # before it looks: `end` tells it from now on
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _TICK)

    def end(self) -> None:
        """Has it end, also before it has begun. Thread-safe."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._ended.set)
