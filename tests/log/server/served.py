"""A log server on a thread of this process, with its engine within a test's reach."""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.log.engine import Engine
from penstock.log.server.server import Server
from penstock.log.server.settings import ServerSettings


class Served:
    def __init__(self, folder: Path | None, settings: ServerSettings | None = None) -> None:
        """Serves the log in `folder`, or one in memory, on a free port of loopback."""
        self.engine = Engine(folder)
        self._settings = settings
        self._ready: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self.address = self._ready.result(20)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            self.server = Server(self.engine, self._settings)
            self._ready.set_result(await self.server.start("127.0.0.1:0"))
            await self._stop.wait()
            await self.server.stop()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise
        finally:
            self.engine.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
