"""How far nodes are that are being built: bars for people, nothing in a pipe."""

import logging
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.display import count, screen
from penstock.cli.messages import show_messages
from penstock.cli.others import SPARK_LOG, others_write_to
from penstock.runtime.status import AppStatus

Watcher = Callable[[AppStatus], None]


@contextmanager
def bars(names: Collection[str], here: Path | None = None) -> Iterator[Watcher]:
    """A bar for each node on a terminal, with the time it is going to take; messages elsewhere.
    `here` is the app's folder if it is this process that runs it."""
    if not sys.stdout.isatty():
        if here is not None:
            show_messages()
        yield lambda status: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeRemainingColumn(),
    )
    with (
        others_write_to(here / SPARK_LOG) if here is not None else nullcontext(),
        Progress(*columns, console=screen()) as shown,
    ):
        if here is not None:
            show_messages(logging.WARNING)
        first = shown.add_task("starting Spark" if here is not None else "starting", total=None)
        tasks: dict[str, TaskID] = {}

        def watch(status: AppStatus) -> None:
            for node in status.nodes:
                if node.name not in names or node.state == "starting":
                    continue
                shown.update(first, visible=False)
                if node.name not in tasks:
                    tasks[node.name] = shown.add_task(node.name, total=None)
                done = node.built if node.state in ("building", "failed") else node.to_build
                shown.update(tasks[node.name], total=node.to_build or None, completed=done)

        yield watch


def building_lines(status: AppStatus) -> list[Table | Text]:
    """For each query that is building: its nodes, and how far it is; they all are as far as it."""
    lines: list[Table | Text] = []
    building = [node for node in status.nodes if node.state == "building"]
    for query in dict.fromkeys(node.query for node in building):
        nodes = [node for node in building if node.query == query]
        names = ", ".join(node.name for node in nodes)
        first = nodes[0]
        said = f"{count(first.built)} of {count(first.to_build)} rows"
        if not sys.stdout.isatty():
            lines.append(Text(f"building {names}: {said}"))
            continue
        line = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=first.to_build or None, completed=first.built, width=24)
        line.add_row(Text(f"building {names}", style="yellow"), bar, Text(said))
        lines.append(line)
    return lines
