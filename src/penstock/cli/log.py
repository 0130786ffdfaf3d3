"""`penstock log`: the log server itself, and a look at its files without it."""

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.messages import show_messages
from penstock.clock import duration_ms
from penstock.errors import InvalidDuration, InvalidInput
from penstock.log.storage.files import storage_error

if TYPE_CHECKING:
    from penstock.log.server.settings import ServerSettings

DATA = click.option(
    "--data",
    default="penstock-data",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the log.",
)


def seconds(duration: str) -> float:
    try:
        return duration_ms(duration) / 1_000
    except InvalidDuration as error:
        raise click.BadParameter(f"{error.message}: {error.hint}.") from None


@click.group()
def command() -> None:
    """Serve a log to Kafka clients, or check its files.

    \b
    Example:
      penstock log serve --data ./penstock-data --listen 127.0.0.1:9092
    """


@command.command()
@DATA
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Port 0 takes a free one.",
)
@click.option(
    "--auto-create/--no-auto-create",
    default=True,
    show_default=True,
    help="Whether clients make a topic by naming it.",
)
@click.option(
    "--partitions",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Of a topic that is made without a number.",
)
@click.option(
    "--idle-exit",
    type=seconds,
    metavar="DURATION",
    help="End once nobody has been connected for so long.",
)
@click.option(
    "--idle-timeout",
    type=seconds,
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="Hang up on a client that has said nothing for so long.",
)
@click.option(
    "--max-connections", default=4096, show_default=True, type=click.IntRange(1), metavar="N"
)
@click.option(
    "--max-request-bytes",
    default=100 * 1024 * 1024,
    show_default="100 MiB",
    type=click.IntRange(1024),
    metavar="N",
    help="A larger request is refused before it is read.",
)
def serve(
    data: Path,
    listen: str,
    auto_create: bool,
    partitions: int,
    idle_exit: float | None,
    idle_timeout: float,
    max_connections: int,
    max_request_bytes: int,
) -> None:
    """Serve the log in a folder until Ctrl-C or SIGTERM.

    The first line on standard output is `listening on HOST:PORT`; messages go to standard error.

    \b
    Example:
      penstock log serve --data ./penstock-data --listen 127.0.0.1:9092
    """
    show_messages()
    # kio offers strategies to hypothesis where that is installed, and imports it for that, which
    # takes longer than everything else a server does before it listens.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from penstock.log.server.settings import ServerSettings

    settings = ServerSettings(
        auto_create=auto_create,
        partitions=partitions,
        max_frame_bytes=max_request_bytes,
        max_connections=max_connections,
        idle_seconds=idle_timeout,
        exit_when_idle_seconds=idle_exit,
    )
    asyncio.run(_serve(data, listen, settings))


async def _serve(data: Path, listen: str, settings: "ServerSettings") -> None:
    from penstock.log.engine import Engine
    from penstock.log.server.server import Server

    log = logging.getLogger(__name__)
    stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(why: str) -> None:
        if not stop.done():
            stop.set_result(why)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number.name)
    engine = Engine(data)
    try:
        server = Server(engine, settings)
        server.when_idle = lambda: end("nobody is connected")
        click.echo(f"listening on {await server.start(listen)}")
        log.info("serving %s with %d topics", data, len(engine.topics.names()))
        log.info("ending: %s", await stop)
        await server.stop()
    finally:
        engine.close()


@command.command()
@DATA
def verify(data: Path) -> None:
    """Check every byte of a log that no server has open.

    Walks all segments, compares checksums and offsets, and reports damage with file and position.
    Changes nothing. Ends with status 1 when there is damage.

    \b
    Example:
      penstock log verify --data ./penstock-data
    """
    from penstock.cli.display import plural, size
    from penstock.log.engine import IDENTITY_FILE
    from penstock.log.owner import Ownership
    from penstock.log.verification import check_partition, partition_folders

    if not (data / IDENTITY_FILE).exists():
        raise InvalidInput(f"there is no log in {data}", hint="name its folder with --data")
    ownership = Ownership(data)
    try:
        folders = partition_folders(data)
        findings = [finding for folder in folders for finding in check_partition(folder)]
    except OSError as error:
        raise storage_error(error, f"reading {error.filename or data}") from error
    finally:
        ownership.release()
    for finding in findings:
        for damage in finding.damage:
            click.secho(damage.message, fg="red")
        if finding.lost_bytes:
            lost = size(finding.lost_bytes)
            click.echo(f"  no sound batch is found in the {lost} from there to the end")
        if finding.torn_bytes:
            click.echo(
                f"{finding.path} ends with {size(finding.torn_bytes)} that were never "
                "acknowledged; the next start cuts them off"
            )
    damaged = sum(len(finding.damage) for finding in findings)
    click.echo(
        f"checked {plural(len(folders), 'partition')}, {plural(len(findings), 'segment')}, "
        f"{size(sum(finding.size for finding in findings))}: "
        + (f"{plural(damaged, 'damaged place')}" if damaged else "sound")
    )
    if damaged:
        click.get_current_context().exit(1)
