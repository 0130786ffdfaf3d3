"""`penstock explain`: how a view is computed."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
from rich.text import Text

from penstock.cli.chosen import find_node, node_folder, node_options
from penstock.cli.display import plural, show, size
from penstock.cli.rendering import printable
from penstock.cli.state import buckets_of, show_operators
from penstock.errors import StateMissing
from penstock.runtime.folders import NodeFolder

_KEEPS = re.compile(r"(.*)  \[([^\[\]]+)\]")


@click.command()
@click.argument("view")
@node_options
def command(view: str, app: str | None, data: Path) -> None:
    """Show how VIEW is computed: its operators, those below feeding those above.

    Behind each that keeps state stands how much that is, after the last batch. A view that is a
    function has no plan of its own; what it reads and keeps is shown.

    \b
    Example:
      penstock explain timelines
    """
    folder = node_folder(data, *find_node(data, app, view))
    facts = folder.facts()
    if facts is None:
        raise StateMissing(f"{view} has not begun", hint="it has a plan once it has run")
    if not folder.plan.exists():
        click.echo(f"{view} is a function of {', '.join(facts['sources'])}")
        if facts["operators"]:
            click.echo()
            show_operators(folder, list(facts["operators"]))
        return
    for line in folder.plan.read_text().splitlines():
        show(Text.assemble(*_parts(folder, printable(line), set(facts["operators"]))))


def _parts(folder: NodeFolder, line: str, known: set[str]) -> Iterator[str | tuple[str, str]]:
    found = _KEEPS.fullmatch(line)
    operators = found[2].split(", ") if found else []
    if found is None or not known.issuperset(operators):
        yield line
        return
    yield found[1]
    yield f"  {_kept(folder, operators)}", "cyan"


def _kept(folder: NodeFolder, operators: list[str]) -> str:
    """The rows and bytes of the operators, in brackets."""
    from penstock.streams.state import state_info

    infos = [
        info for each in operators for info in state_info(folder.state, each, buckets_of(folder))
    ]
    rows, held = sum(info.rows for info in infos), sum(info.size for info in infos)
    return f"[{plural(rows, 'row')}, {size(held)}]"
