"""Which app a command asks about, and which of its nodes: those that have run in a data folder."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.errors import AppError, UnknownName, did_you_mean
from penstock.runtime.folders import NodeFolder, app_folder, apps_in
from penstock.runtime.status import AppStatus, NodeStatus
from penstock.runtime.views import Views

DEFAULT_FOLDER = "penstock-data"

Function = TypeVar("Function", bound=Callable[..., Any])

DATA = click.option(
    "--data",
    default=DEFAULT_FOLDER,
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the app's state.",
)


def node_options(function: Function) -> Function:
    """Adds --app and --data, as all commands about one node have them."""
    app = click.option("--app", metavar="NAME", help="Of this app, where the folder has several.")
    return app(DATA(function))


def statuses(data: Path, app: str | None) -> list[AppStatus]:
    """That of the app, or of all there are. Raises AppError when none has run."""
    names = apps_in(data)
    if app is not None and app not in names:
        raise _unknown(f"no app {app!r} has run in {data}", app, names)
    found = [AppStatus.read(app_folder(data, name)) for name in ([app] if app else names)]
    told = [status for status in found if status is not None]
    if not told:
        raise AppError(f"no app has run in {data}", hint="penstock run app.py, or name --data")
    return told


def find_node(data: Path, app: str | None, node: str) -> tuple[AppStatus, NodeStatus]:
    """The only app that has such a node, or that of the app named. Raises UnknownName."""
    told = statuses(data, app)
    found = [(status, each) for status in told for each in status.nodes if each.name == node]
    if not found:
        nodes = sorted({each.name for status in told for each in status.nodes})
        raise _unknown(f"there is no node {node!r} in {_listed(told)}", node, nodes)
    if len(found) > 1:
        names = " or ".join(f"--app {status.app}" for status, _ in found)
        raise AppError(f"{len(found)} apps have a node {node!r}", hint=f"choose: {names}")
    return found[0]


def views_of(data: Path, app: str | None) -> Views:
    """Those of the app, or of the only one that keeps any. Raises AppError, UnknownName."""
    if app is not None:
        (status,) = statuses(data, app)
        return Views(data, status.app)
    kept = [name for name in apps_in(data) if any(Views(data, name))]
    if len(kept) > 1:
        names = " or ".join(f"--app {name}" for name in kept)
        raise AppError(f"{len(kept)} apps keep views in {data}", hint=f"choose: {names}")
    return Views(data, kept[0] if kept else statuses(data, None)[0].app)


def node_folder(data: Path, status: AppStatus, node: NodeStatus) -> NodeFolder:
    return NodeFolder(status.app, node.name, app_folder(data, status.app) / node.name)


def _listed(told: Sequence[AppStatus]) -> str:
    return ", ".join(status.app for status in told)


def _unknown(message: str, name: str, names: Iterable[str]) -> UnknownName:
    names = list(names)
    there = f"there are: {', '.join(names)}" if names else "none has run there"
    return UnknownName(message, hint=did_you_mean(name, names) or there)
