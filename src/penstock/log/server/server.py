"""The server: accepts clients, bounds them, and does what is due from time to time."""

import asyncio
import contextlib
import ipaddress
import logging
import resource
from collections.abc import Callable

from penstock.clock import monotonic
from penstock.errors import InvalidInput, LogError
from penstock.log.engine import Engine
from penstock.log.server import handlers as _handlers  # noqa: F401  fills the table
from penstock.log.server.broker import Broker
from penstock.log.server.connection import SCRATCH_BYTES, Connection
from penstock.log.server.settings import ServerSettings

BACKLOG = 1024
TICK_SECONDS = 5.0
log = logging.getLogger(__name__)


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9092"; loopback only, as nobody is asked who they are yet."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        number = int(port)
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise InvalidInput(
            f"{listen!r} is not an address", hint="write HOST:PORT, such as 127.0.0.1:9092"
        ) from None
    if not local or not 0 <= number < 65536:
        raise InvalidInput(
            f"{listen} is not a loopback address",
            hint="listen on 127.0.0.1; other hosts need TLS and a password, which are to come",
        )
    return host, number


class Server:
    def __init__(self, engine: Engine, settings: ServerSettings | None = None) -> None:
        """To be made on the event loop that serves."""
        self.settings = settings or ServerSettings()
        self.engine = engine
        self.broker = Broker(engine, self.settings)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.address = ""
        self.when_idle: Callable[[], None] = lambda: None
        self._connections: dict[Connection, None] = {}  # in the order they came
        self._max_connections = self.settings.max_connections
        self._last_busy = monotonic()
        self._listener: asyncio.Server
        self._ticks: asyncio.Task[None]

    async def start(self, listen: str) -> str:
        """Accepts clients from now on; returns the address, with the port that was free for 0."""
        host, port = split_address(listen)
        # The other half is for the segments; a server out of files could let in nobody at all.
        self._max_connections = min(self.settings.max_connections, _raise_file_limit() // 2)
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                lambda: Connection(self), host, port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            raise LogError(
                f"cannot listen on {listen}: {error.strerror}",
                hint="another program has the port; choose one with --listen, 0 for any free one",
            ) from error
        port = self._listener.sockets[0].getsockname()[1]
        self.broker.advertised = (host, port)
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self.engine.ownership is not None:
            self.engine.ownership.announce(self.address)
        self.engine.topics.when_deleted = self.broker.forget
        self._ticks = asyncio.create_task(self._tick())
        return self.address

    async def stop(self) -> None:
        """Lets no one in and hangs up; the engine stays open."""
        self.engine.topics.when_deleted = None
        self._ticks.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticks
        self._listener.close()
        for connection in list(self._connections):
            connection.hang_up()
        await self._listener.wait_closed()
        self.broker.groups.close()

    def welcome(self, connection: Connection) -> None:
        """Makes room for a new client at the cost of the oldest one that never said anything."""
        if len(self._connections) >= self._max_connections:
            silent = next((c for c in self._connections if not c.has_spoken), None)
            (silent or connection).refuse("too many connections")
            if silent is None:
                return
            self._connections.pop(silent, None)
        self._connections[connection] = None

    def farewell(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._last_busy = monotonic()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = monotonic()
            for connection in list(self._connections):
                if now - connection.last_heard > self.settings.idle_seconds:
                    connection.refuse("idle")
            patience = self.settings.exit_when_idle_seconds
            if patience is not None and not self._connections and now - self._last_busy > patience:
                self.when_idle()


def _raise_file_limit() -> int:
    """How many files may be open from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return 2**31 if soft == resource.RLIM_INFINITY else soft
