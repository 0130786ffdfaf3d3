"""`penstock log`: the log server itself."""

import asyncio
import logging
import signal
import sys
from pathlib import Path

import click

from penstock.clock import duration_ms

# kio offers strategies to hypothesis when it is installed, and imports it for that, which takes
# longer than everything else a server does before it listens.
if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]

from penstock.log.engine import Engine  # noqa: E402
from penstock.log.server.server import Server  # noqa: E402
from penstock.log.server.settings import ServerSettings  # noqa: E402


@click.group()
def command() -> None:
    """Serve a log to Kafka clients."""


@command.command()
@click.option("--data", default="penstock-data", show_default=True, type=click.Path(path_type=Path))
@click.option("--listen", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT")
@click.option("--auto-create/--no-auto-create", default=True, show_default=True)
@click.option("--partitions", default=1, show_default=True, help="Of topics created without a number.")
@click.option("--idle-exit", metavar="DURATION", help="End when nobody was connected for so long.")
def serve(
    data: Path, listen: str, auto_create: bool, partitions: int, idle_exit: str | None
) -> None:
    """Serve the log in a folder until Ctrl-C.

    Example: penstock log serve --data ./penstock-data --listen 127.0.0.1:9092
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    settings = ServerSettings(
        auto_create=auto_create,
        partitions=partitions,
        exit_when_idle_seconds=None if idle_exit is None else duration_ms(idle_exit) / 1000,
    )
    asyncio.run(_serve(data, listen, settings))


async def _serve(data: Path, listen: str, settings: ServerSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    engine = Engine(data)
    try:
        server = Server(engine, settings)
        server.when_idle = stop.set
        click.echo(f"listening on {await server.start(listen)}")
        await stop.wait()
        await server.stop()
    finally:
        engine.close()
