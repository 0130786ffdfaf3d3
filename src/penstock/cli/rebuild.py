"""`penstock rebuild`: nodes built anew beside the ones there are."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from penstock.cli.building import bars
from penstock.cli.chosen import find_node, node_options, statuses
from penstock.cli.display import plural
from penstock.cli.interrupts import Interrupts
from penstock.clock import sleep
from penstock.errors import AppError, UnknownName
from penstock.runtime.asking import Answer, Asking
from penstock.runtime.folders import app_folder
from penstock.runtime.query_folder import BESIDE
from penstock.runtime.status import AppStatus, NodeStatus
from penstock.runtime.views import Views
from penstock.serve.catalog import Kept
from penstock.serve.reading import is_kept, opened

_LOOK_EVERY = 0.25  # seconds
_TRIES = 2  # a node that has failed so often may go on failing


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What makes the app.  [default: the file it was run from last]",
)
@click.option("--server", metavar="ADDRESS", help="Its log, if not the one in the folder.")
@click.option("--spark", metavar="MASTER", help="Where Spark runs, if not here.")
@node_options
def command(
    nodes: tuple[str, ...],
    file: Path | None,
    server: str | None,
    spark: str | None,
    app: str | None,
    data: Path,
) -> None:
    """Build each NODE anew from the beginning of the log, and what is made of it too.

    The code counts that is in the app's file now. The version there is can be read all the time,
    and the new one takes its place in one moment, when it has seen all that there is.

    An app that runs is asked to do it: it loads its file anew and builds these nodes beside the
    others, which go on. A node that the file has and the app has not is added. If the file cannot
    be loaded, or more than these nodes has changed, all stays as it is. Ctrl-C ends the waiting,
    and not the building. If the app does not run, it is run here to the present end of its inputs;
    --server and --spark are for that.

    \b
    Examples:
      penstock rebuild revenue
      penstock rebuild revenue customers --file app.py
    """
    status = _app_of(nodes, data, app)
    if status.life() in ("running", "silent"):
        if server or spark:
            raise click.UsageError("--server and --spark are for an app that does not run.")
        _ask(status, list(nodes), file, data)
    else:
        for name in nodes:
            find_node(data, status.app, name)
        _run(status, nodes, file or _known_file(status), data, server, spark)


def _app_of(nodes: Sequence[str], data: Path, app: str | None) -> AppStatus:
    """That of the nodes; or the only one that runs, which may find them in its file."""
    for name in nodes:
        try:
            return find_node(data, app, name)[0]
        except UnknownName:
            running = [each for each in statuses(data, app) if each.life() == "running"]
            if name == nodes[-1] and len(running) != 1:
                raise
    return running[0]


def _known_file(status: AppStatus) -> Path:
    if status.file and Path(status.file).exists():
        return Path(status.file)
    raise AppError(
        f"the file that makes app {status.app!r} is not known", hint="name it: --file app.py"
    )


# An app that runs


def _ask(status: AppStatus, nodes: list[str], file: Path | None, data: Path) -> None:
    home = app_folder(data, status.app)
    asking = Asking(home, nodes, str(file.absolute()) if file else "")
    names = ", ".join(nodes)
    if status.life() == "silent":
        click.echo(f"app {status.app} has told nothing for a while; waiting for it", err=True)
    answer: Answer | None = None
    try:
        with Interrupts():
            while (answer := asking.answer()) is None:
                _told(home, status, asked=nodes)
                sleep(_LOOK_EVERY)
            names = ", ".join(answer.building)
            _say(answer, status)
            _await(home, status, answer, Views(data, status.app))
    except KeyboardInterrupt:
        if answer is None and asking.withdraw():
            click.echo("nothing was begun", err=True)
        else:
            click.echo(
                f"app {status.app} goes on building {names}; penstock status shows how far it is",
                err=True,
            )
        raise
    if not _tell(data, status.app, answer.building):
        click.get_current_context().exit(1)


def _say(answer: Answer, status: AppStatus) -> None:
    if answer.removed:
        removed = ", ".join(answer.removed)
        click.echo(f"{removed}: no longer in the file, and no longer in the app", err=True)
    if not sys.stdout.isatty():
        names = ", ".join(answer.building)
        click.echo(f"app {status.app} builds {names} beside the others", err=True)


def _await(home: Path, status: AppStatus, answer: Answer, views: Views) -> None:
    """Until all of them are where the others are. Raises AppError for one that keeps failing."""
    building = answer.building
    with bars(building) as watcher:
        while True:
            told = _told(home, status)
            nodes = [each for each in told.nodes if building.get(each.name) == each.generation]
            watcher(told)
            for node in nodes:
                if node.state == "failed" and (node.retry_at is None or node.restarts >= _TRIES):
                    before = node.generation - 1
                    said = f", and version {before} is kept" if before else ""
                    raise AppError(
                        f"{node.name} fails{said}: {node.error}",
                        hint=f"mend it and rebuild it again; penstock why {node.name} says more",
                    )
            if len(nodes) == len(building) and all(map(_has_joined, nodes)):
                shown = _shown(views)
                if all(shown.get(name) == building[name] for name in answer.views):
                    return
            sleep(_LOOK_EVERY)


def _has_joined(node: NodeStatus) -> bool:
    return node.state in ("running", "waiting") and not node.query.startswith(BESIDE)


def _shown(views: Views) -> dict[str, int]:
    """The generation of each view that can be read."""
    if not is_kept(views.path):
        return {}
    with opened(views.path) as reader:
        return {kept.name: kept.generation for kept in reader.views()}


def _told(home: Path, status: AppStatus, asked: Sequence[str] = ()) -> AppStatus:
    """What the app tells now. Raises AppError when its process is not the same any more; `asked`
    are nodes that it has not said to have begun."""
    told = AppStatus.read(home)
    if told is None or told.pid != status.pid or told.life() in ("stopped", "gone"):
        why = f": {told.error}" if told is not None and told.error else ""
        run = f"penstock run {status.file or 'app.py'}"
        again = "".join(f" --rebuild {name}" for name in asked)
        raise AppError(
            f"app {status.app} has ended meanwhile{why}",
            hint=f"it has not said that it began; {run}{again} does"
            if asked
            else f"{run} goes on with what was begun; penstock status shows it",
        )
    return told


# An app that does not run


def _run(
    status: AppStatus,
    nodes: Sequence[str],
    file: Path,
    data: Path,
    server: str | None,
    spark: str | None,
) -> None:
    # Only now: these bring Spark's Python side with them.
    from penstock.runtime.graph import downstream
    from penstock.runtime.loading import load_app, users_errors
    from penstock.runtime.running import run

    made = load_app(file, status.app)
    made.data = data
    made.log = server or made.log
    made.spark = spark or made.spark
    wanted = set(nodes).union(*(downstream(made.nodes, name, made.declared) for name in nodes))
    names = [node.name for node in made.ordered_nodes() if node.name in wanted]
    with (
        bars(names, app_folder(data, made.name)) as watcher,
        users_errors(f"{file} cannot be run"),
    ):
        failing = run(made, once=True, rebuild=names, reset=(), file=file, watcher=watcher)
    is_whole = _tell(data, made.name, names)
    if failing or not is_whole:
        click.get_current_context().exit(1)


def _tell(data: Path, app: str, names: Collection[str]) -> bool:
    """Says which are shown now; false when one is not whole."""
    views = Views(data, app)
    newest = {node.name: node for node in views.status().nodes if node.name in names}
    is_whole = True
    shown: list[Kept] = []
    if is_kept(views.path):
        with opened(views.path) as reader:
            shown = [kept for kept in reader.views() if kept.name in newest]
            for kept in shown:
                generation = newest[kept.name].generation
                if kept.generation == generation:
                    [(rows,)] = reader.select(f"SELECT count(*) FROM {kept.table}")[1]
                    click.echo(f"{kept.name}: version {generation} is shown, {plural(rows, 'row')}")
                else:
                    is_whole = False
                    click.echo(
                        f"{kept.name}: version {kept.generation} is still shown, as "
                        f"{generation} is not whole; penstock run goes on with it",
                        err=True,
                    )
    for node in newest.values():
        if node.name not in [kept.name for kept in shown] and not node.error:
            click.echo(f"{node.name}: version {node.generation} is built")
    return is_whole
