"""`penstock state`: what a node keeps."""

import json
import sys
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.text import Text

from penstock.cli.chosen import find_node, node_folder, node_options
from penstock.cli.display import count, left, plural, right, show, size, table
from penstock.errors import InvalidInput, StateMissing
from penstock.runtime.folders import NodeFolder
from penstock.streams.state import look_up, state_info, state_schema


@click.command()
@click.argument("node")
@click.argument("key", nargs=-1, metavar="[COLUMN=VALUE]...")
@node_options
def command(node: str, key: tuple[str, ...], app: str | None, data: Path) -> None:
    """Show how much each operator of NODE keeps, or what it keeps for one key.

    A key is given by all of its columns; `null` is null, and times are ISO times. Versions are the
    batches that can be gone back to.

    \b
    Examples:
      penstock state totals
      penstock state totals customer=7
    """
    folder = node_folder(data, *find_node(data, app, node))
    operators = operators_of(folder)
    if key:
        _show_row(folder, operators, dict(_pair(each) for each in key))
    else:
        show_operators(folder, operators)


def operators_of(folder: NodeFolder) -> dict[str, str]:
    """What they are called in their order, and their state. Raises StateMissing when the node has
    none."""
    facts = folder.facts()
    if facts is None:
        raise StateMissing(
            f"{folder.node} has not begun", hint="it keeps something once it has run a batch"
        )
    if not facts["operators"]:
        raise StateMissing(
            f"{folder.node} keeps nothing: its rows pass through",
            hint="aggregations and tables are what keeps state",
        )
    return folder.operators


def show_operators(folder: NodeFolder, operators: dict[str, str]) -> None:
    buckets = folder.buckets
    listing = table(left("operator"), left("key"), right("rows"), right("bytes"), left("versions"))
    for operator, kept in operators.items():
        infos = state_info(folder.state, kept, buckets)
        newest = max((each.versions[-1] for each in infos), default=-1)
        oldest = min((each.versions[0] for each in infos), default=-1)
        names = state_schema(folder.state, kept, buckets).keys.names if infos else ["-"]
        listing.add_row(
            Text(operator),
            Text(", ".join(names)),
            count(sum(each.rows for each in infos)),
            size(sum(each.size for each in infos)),
            f"{oldest} to {newest}" if infos else "-",
        )
    click.echo(f"{folder.node}: {plural(buckets, 'bucket')}")
    click.echo()
    show(listing)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not COLUMN=VALUE.")
    return name, value


def _show_row(folder: NodeFolder, operators: dict[str, str], key: dict[str, str]) -> None:
    buckets = folder.buckets
    columns: dict[str, list[str]] = {}
    rows: dict[str, dict[str, Any] | None] = {}
    for operator, kept in operators.items():
        keys = state_schema(folder.state, kept, buckets).keys
        columns[operator] = keys.names
        if set(keys.names) == set(key):
            typed = {name: _typed(key[name], keys.field(name)) for name in keys.names}
            rows[operator] = look_up(folder.state, kept, buckets, typed)
    if not rows:
        hint = "; ".join(
            f"{operator} is keyed by {' '.join(f'{name}=...' for name in names)}"
            for operator, names in columns.items()
        )
        raise InvalidInput(f"{folder.node} keeps nothing by {', '.join(key)}", hint=hint)
    for operator, row in rows.items():
        if row is None:
            click.echo(f"{operator} has no such key", err=True)
        elif sys.stdout.isatty():
            shown = table(left(operator), left(""))
            for name, value in row.items():
                shown.add_row(Text(name), Text(_text(value)))
            show(shown)
        else:
            click.echo(json.dumps(row, default=str))
    if not any(rows.values()):
        click.get_current_context().exit(1)


def _typed(text: str, column: pa.Field) -> Any:
    if text == "null" and not pa.types.is_string(column.type):
        return None
    try:
        return pa.scalar(text).cast(column.type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidInput(
            f"{text!r} is not a value of {column.name}, which is {column.type}",
            hint=f"{column.name}=...",
        ) from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
