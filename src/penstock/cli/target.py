"""Which log a command works on: the one in a folder, by its server, or the one at an address."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.errors import GroupNotFound, InvalidInput, PartitionNotFound, TopicNotFound
from penstock.log.contract import Bounds, GroupDescription, Log, TopicDescription
from penstock.log.engine import IDENTITY_FILE
from penstock.log.storage.files import storage_error

DEFAULT_FOLDER = "penstock-data"
_KEY = "penstock.target."

Function = TypeVar("Function", bound=Callable[..., Any])


def log_options(function: Function) -> Function:
    """Adds --data and --server, which may stand behind a group's name or behind its command's."""
    data = click.option(
        "--data",
        metavar="DIR",
        type=click.Path(file_okay=False),
        expose_value=False,
        callback=_remember,
        help=f"The log in this folder, by its server.  [default: {DEFAULT_FOLDER}]",
    )
    server = click.option(
        "--server",
        metavar="HOST:PORT",
        expose_value=False,
        callback=_remember,
        help="The log at this address, penstock's or Apache Kafka's.",
    )
    return data(server(function))


def _remember(context: click.Context, option: click.Parameter, given: str | None) -> None:
    # A context shares its `meta` with those of its subcommands.
    if given is not None:
        context.meta[f"{_KEY}{option.name}"] = given


def open_log(*, make: bool = False) -> Log:
    """The log that the current command's options name; only with `make` is a missing one made."""
    meta = click.get_current_context().meta
    folder, address = meta.get(f"{_KEY}data"), meta.get(f"{_KEY}server")
    if folder and address:
        raise click.UsageError("--data and --server name two logs; give one of them.")
    if address:
        return Log.connect(address)
    path = Path(folder or DEFAULT_FOLDER)
    if not make and not (path / IDENTITY_FILE).exists():
        raise InvalidInput(
            f"there is no log in {path}",
            hint="name one with --data or --server, or make one: penstock topics create NAME",
        )
    try:
        return Log.join(path)
    except OSError as error:
        raise storage_error(error, f"opening the log in {path}") from error


def find_topic(log: Log, name: str) -> TopicDescription:
    """Raises TopicNotFound with the names that are nearly the same."""
    try:
        return log.describe(name)
    except TopicNotFound:
        hint = _near(name, log.topics()) or f"make it: penstock topics create {name}"
        raise TopicNotFound(f"there is no topic {name!r}", hint=hint) from None


def choose_partitions(topic: TopicDescription, only: int | None) -> dict[int, Bounds]:
    """All partitions of the topic, or `only` one."""
    bounds = dict(enumerate(topic.partitions))
    if only is None:
        return bounds
    if only not in bounds:
        raise PartitionNotFound(
            f"topic {topic.name!r} has no partition {only}",
            hint=f"it has {len(bounds)}, numbered from 0",
        )
    return {only: bounds[only]}


def find_group(log: Log, name: str) -> GroupDescription:
    """Raises GroupNotFound with the names that are nearly the same."""
    try:
        return log.describe_group(name)
    except GroupNotFound:
        hint = _near(name, log.groups()) or "see the list: penstock groups"
        raise GroupNotFound(f"there is no group {name!r}", hint=hint) from None


def _near(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
