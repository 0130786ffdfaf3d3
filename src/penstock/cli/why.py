"""`penstock why`: what a node waits for, why it failed, and what it rejected."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.chosen import find_node, node_options
from penstock.cli.display import left, show, table
from penstock.clock import now_ms
from penstock.errors import PenstockError
from penstock.runtime.rejects import first_rejected
from penstock.runtime.status import NodeStatus
from penstock.runtime.why import explain

_MOST = 5
_WITHIN = 3.0  # seconds
_SHOWN = 60  # characters of a value


@click.command()
@click.argument("node")
@node_options
def command(node: str, app: str | None, data: Path) -> None:
    """Say in sentences how NODE is doing and why.

    What it waits for, what its clock is held back by, how far it is behind, what it failed with and
    when it is tried again, and how many rows it rejected, with the first of them.

    \b
    Examples:
      penstock why totals
      penstock why totals --app shop --data /srv/shop
    """
    status, found = find_node(data, app, node)
    for sentence in explain(status, found, life=status.life(), now=now_ms()):
        text = sentence.lstrip()
        show(Padding(Text(text), (0, 0, 0, len(sentence) - len(text)), expand=False))
    for part in _rejected(found):
        click.echo()
        show(part)


def _rejected(node: NodeStatus) -> Iterator[Table]:
    for told in node.inputs:
        if not told.rejected:
            continue
        try:
            rows = first_rejected(told, most=_MOST, within=_WITHIN)
        except PenstockError as error:  # the log may be out of reach, and the rest is still true
            click.echo(f"the rejected rows cannot be shown: {error}", err=True)
            continue
        if rows:
            yield _table(rows)


def _table(rows: list[dict[str, Any]]) -> Table:
    shown = table(left("rejected"), left("place"), left("detail"), left("value"))
    for row in rows:
        place = f"{row['topic']}/{row['partition']}, offset {row['offset']}"
        facts = [row["detail"], row["event_time"] and f"{row['event_time']:%Y-%m-%dT%H:%M:%SZ}"]
        detail = ": ".join(fact for fact in facts if fact)
        shown.add_row(row["reason"], Text(place), Text(detail), Text(_value(row["value"])))
    return shown


def _value(value: bytes | None) -> str:
    if value is None:
        return "-"
    text = value.decode(errors="backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
