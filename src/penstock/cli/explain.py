"""`penstock explain`: how a view is computed, or a whole app."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.chosen import find_node, node_folder, node_options, statuses
from penstock.cli.display import count, left, plural, right, show, size, table
from penstock.cli.rendering import printable
from penstock.cli.state import show_operators
from penstock.errors import StateMissing
from penstock.runtime.folders import NodeFolder, app_folder, apps_in
from penstock.runtime.query_folder import STATE, QueryFolder
from penstock.runtime.status import AppStatus

_FEW = 4  # nodes that are named; of more, how many
_KEEPS = re.compile(r"(.*)  \[([^\[\]]+)\]")


@click.command()
@click.argument("view", metavar="VIEW|APP")
@node_options
def command(view: str, app: str | None, data: Path) -> None:
    """Show how VIEW is computed: its operators, those below feeding those above.

    Behind each that keeps state stands how much that is, after the last batch. A view that is a
    function has no plan of its own; what it reads and keeps is shown.

    The name of an app shows its queries: what they read, their operators by level, which nodes
    share them, and what they keep.

    \b
    Examples:
      penstock explain timelines
      penstock explain shop
    """
    if view in apps_in(data) and not any(
        node.name == view for status in statuses(data, view) for node in status.nodes
    ):
        (status,) = statuses(data, view)
        _show_app(data, status)
        return
    folder = node_folder(data, *find_node(data, app, view))
    facts = folder.facts()
    if facts is None:
        raise StateMissing(f"{view} has not begun", hint="it has a plan once it has run")
    if not folder.plan.exists():
        click.echo(f"{view} is a function of {', '.join(facts['sources'])}")
        if folder.operators:
            click.echo()
            show_operators(folder, folder.operators)
        return
    for line in folder.plan.read_text().splitlines():
        show(Text.assemble(*_parts(folder, printable(line))))


def _show_app(data: Path, status: AppStatus) -> None:
    home = app_folder(data, status.app)
    names = sorted({node.query for node in status.nodes if node.query})
    click.echo(f"{status.app}: {plural(len(status.nodes), 'node')} in {_queries(len(names))}")
    for name in names:
        query = QueryFolder(home, name)
        if (drawing := query.drawing) is not None:
            click.echo()
            _show_query(name, drawing, f"{home.absolute()}/{STATE}")


def _queries(count: int) -> str:
    return f"{count:,} {'query' if count == 1 else 'queries'}"


def _show_query(name: str, drawing: dict[str, Any], state: str) -> None:
    jobs = f", {plural(drawing['jobs'], 'job')} a batch" if drawing["jobs"] > 1 else ""
    levels, buckets = plural(drawing["levels"], "level"), plural(drawing["buckets"], "bucket")
    click.echo(f"query {name}: {levels}{jobs}, {buckets}")
    click.echo(f"  reads {', '.join(each['name'] for each in drawing['sources'])}")
    if drawing["operators"]:
        show(Padding(_operators(drawing, state), (1, 0, 1, 2)))
    for each in drawing["through_spark"]:
        click.echo(f"  through Spark: {', '.join(each['nodes'])}")
    if drawing["outputs"]:
        click.echo(f"  writes {', '.join(each['topic'] for each in drawing['outputs'])}")
    if drawing["sinks"]:
        click.echo(f"  gives to sinks: {', '.join(drawing['sinks'])}")


def _operators(drawing: dict[str, Any], state: str) -> Table:
    from penstock.streams.state import state_info

    listing = table(
        *(right("level"), left("operator"), left("key"), left("reads"), left("for")),
        *(right("rows"), right("bytes")),
    )
    for each in drawing["operators"]:
        infos = state_info(state, each["name"], drawing["buckets"])
        listing.add_row(
            str(each["level"]),
            Text(each["name"]),
            Text(", ".join(each["key"])),
            Text(", ".join(each["reads"])),
            Text(_few(each["nodes"])),
            count(sum(info.rows for info in infos)),
            size(sum(info.size for info in infos)),
        )
    return listing


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:_FEW])
    return shown if len(names) <= _FEW else f"{shown} and {len(names) - _FEW} more"


def _parts(folder: NodeFolder, line: str) -> Iterator[str | tuple[str, str]]:
    found = _KEEPS.fullmatch(line)
    operators = found[2].split(", ") if found else []
    if found is None or not folder.operators.keys() >= set(operators):
        yield line
        return
    yield found[1]
    yield f"  {_kept(folder, operators)}", "cyan"


def _kept(folder: NodeFolder, operators: list[str]) -> str:
    """The rows and bytes of the operators, in brackets."""
    from penstock.streams.state import state_info

    infos = [
        info
        for each in operators
        for info in state_info(folder.state, folder.operators[each], folder.buckets)
    ]
    rows, held = sum(info.rows for info in infos), sum(info.size for info in infos)
    return f"[{plural(rows, 'row')}, {size(held)}]"
