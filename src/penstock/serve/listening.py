"""The HTTP server of a running app, on this machine alone."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from penstock.serve.server import Server

logger = logging.getLogger(__name__)

PORT = 8333
_HOST = "127.0.0.1"
_HEAD_BYTES = 16 * 1024  # of a request, its address among them
_END_WITHIN = 2  # seconds for what is being answered


@contextmanager
def listening(make: Callable[[threading.Event], "FastAPI"], port: int = PORT) -> Iterator[str]:
    """Serves what `make` gives, in a thread of its own, and yields its address. The event that
    `make` gets is set at the end.

    Where the port is taken, it is another one, and says so.
    """
    place = _bound(port)
    address = f"http://{_HOST}:{place.getsockname()[1]}"
    stop = threading.Event()
    serving = _Serving(make, place, stop)
    serving.start()
    try:
        yield address
    finally:
        stop.set()
        serving.end()


def _bound(port: int) -> socket.socket:
    # Without the name of its protocol, asyncio does not set TCP_NODELAY on what it accepts, and
    # small answers wait for the client to acknowledge those before.
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((_HOST, port))
    except OSError:
        place.bind((_HOST, 0))
        logger.warning(
            "port %s is taken, perhaps by another app: views are served on %s instead",
            port,
            place.getsockname()[1],
        )
    place.listen(128)
    return place


class _Serving(threading.Thread):
    def __init__(
        self,
        make: Callable[[threading.Event], "FastAPI"],
        place: socket.socket,
        stop: threading.Event,
    ) -> None:
        super().__init__(name="penstock-http", daemon=True)
        self._make = make
        self._place = place
        self._stop_event = stop
        self._server: Server | None = None

    def run(self) -> None:
        # Brought by this thread, as it takes long, and Spark is starting meanwhile.
        import uvicorn

        from penstock.serve.protocol import Protocol
        from penstock.serve.server import Server

        config = uvicorn.Config(
            self._make(self._stop_event),
            http=Protocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            timeout_graceful_shutdown=_END_WITHIN,
        )
        server = Server(config)
        self._server = server
        if self._stop_event.is_set():
            server.end()
        server.run(sockets=[self._place])

    def end(self) -> None:
        if self._server is not None:
            self._server.end()
        self.join(timeout=2 * _END_WITHIN)
        self._place.close()
