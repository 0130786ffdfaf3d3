"""`penstock rebuild`: a view built anew beside the one there is."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from penstock.cli.chosen import find_node, node_options
from penstock.cli.display import plural, screen
from penstock.cli.messages import show_messages
from penstock.cli.run import SPARK_LOG, others_write_to
from penstock.errors import AppError
from penstock.runtime.folders import app_folder
from penstock.runtime.status import AppStatus
from penstock.runtime.views import Views
from penstock.serve.reading import opened


@click.command()
@click.argument("view")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What makes the app.  [default: the file it was run from last]",
)
@click.option("--server", metavar="ADDRESS", help="Its log, if not the one in the folder.")
@click.option("--spark", metavar="MASTER", help="Where Spark runs, if not here.")
@node_options
def command(
    view: str,
    file: Path | None,
    server: str | None,
    spark: str | None,
    app: str | None,
    data: Path,
) -> None:
    """Build VIEW anew from the beginning of the log, and what is made of it too.

    The version there is can be read all the time, and the new one takes its place in one moment,
    when it has seen all that there is. When this is cut short, `penstock run` goes on with it.
    While the app runs, it has to be stopped first, or started anew: penstock run app.py --rebuild
    VIEW serves the old version until the new one is whole.

    \b
    Examples:
      penstock rebuild revenue
      penstock rebuild revenue --file app.py
    """
    status, _ = find_node(data, app, view)
    if status.life() in ("running", "silent"):
        raise AppError(
            f"app {status.app!r} runs, as process {status.pid}, and works on what it has",
            hint=f"stop it first; or stop it and let it do both: penstock run "
            f"{status.file or 'app.py'} --rebuild {view}",
        )
    file = file or _known_file(status)
    # Only now: these bring Spark's Python side with them.
    from penstock.runtime.graph import downstream
    from penstock.runtime.loading import load_app, users_errors
    from penstock.runtime.running import run

    made = load_app(file, status.app)
    made.data = data
    made.log = server or made.log
    made.spark = spark or made.spark
    below = downstream(made.nodes, view)
    names = [node.name for node in made.ordered_nodes() if node.name in below | {view}]
    log = app_folder(data, made.name) / SPARK_LOG
    with _progress(names, log) as watcher, users_errors(f"{file} cannot be run"):
        failing = run(made, once=True, rebuild=names, reset=(), file=file, watcher=watcher)
    is_whole = _tell(Views(data, made.name), names)
    if failing or not is_whole:
        click.get_current_context().exit(1)


def _known_file(status: AppStatus) -> Path:
    if status.file and Path(status.file).exists():
        return Path(status.file)
    raise AppError(
        f"the file that makes app {status.app!r} is not known", hint="name it: --file app.py"
    )


def _tell(views: Views, names: Sequence[str]) -> bool:
    """Says which are shown now; false when one is not whole."""
    newest = {node.name: node.generation for node in views.status().nodes}
    is_whole = True
    with opened(views.path) as reader:
        for kept in reader.views():
            if kept.name not in names:
                continue
            if kept.generation == newest[kept.name]:
                [(rows,)] = reader.select(f"SELECT count(*) FROM {kept.table}")[1]
                said = f"version {kept.generation} is shown, {plural(rows, 'row')}"
                click.echo(f"{kept.name}: {said}")
            else:
                is_whole = False
                click.echo(
                    f"{kept.name}: version {kept.generation} is still shown, as "
                    f"{newest[kept.name]} is not whole; penstock run goes on with it",
                    err=True,
                )
    return is_whole


@contextmanager
def _progress(names: Sequence[str], log: Path) -> Iterator[Callable[[AppStatus], None]]:
    """A bar for each node on a terminal, with the time it is going to take; lines elsewhere."""
    if not sys.stdout.isatty():
        show_messages()
        yield lambda status: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeRemainingColumn(),
    )
    with others_write_to(log), Progress(*columns, console=screen()) as bars:
        show_messages(logging.WARNING)
        starting = bars.add_task("starting Spark", total=None)
        tasks: dict[str, TaskID] = {}

        def watch(status: AppStatus) -> None:
            bars.update(starting, visible=False)
            for node in status.nodes:
                if node.name not in names or node.state == "starting":
                    continue
                if node.name not in tasks:
                    tasks[node.name] = bars.add_task(node.name, total=None)
                ends = sum(sum(each.end.values()) for each in node.inputs)
                done = sum(sum(each.next.values()) for each in node.inputs)
                bars.update(tasks[node.name], total=ends or None, completed=done)

        yield watch
