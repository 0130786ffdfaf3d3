"""`penstock run`: the app in a file, put to work."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from penstock.cli.display import screen, show
from penstock.cli.messages import show_messages
from penstock.cli.others import SPARK_LOG, others_write_to
from penstock.cli.status import overview
from penstock.clock import now_ms
from penstock.runtime.folders import app_folder
from penstock.runtime.status import AppStatus, Life
from penstock.runtime.why import roughly
from penstock.serve.listening import PORT

logger = logging.getLogger(__name__)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--app", "name", metavar="NAME", help="This one, where the file makes several.")
@click.option("--once", is_flag=True, help="To the present end of every input, and no further.")
@click.option(
    "--rebuild",
    multiple=True,
    metavar="NODE",
    help="Build the node anew from the beginning of its inputs, beside what it wrote.",
)
@click.option(
    "--reset", multiple=True, metavar="NODE", help="The same, and forget first what it wrote."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="Where views are served over HTTP, on this machine alone; a free one if it is taken.",
)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of its log and state, instead of the one it names.",
)
@click.option(
    "--server",
    metavar="ADDRESS",
    help="Another log: HOST:PORT of a server, or kafka://HOST:PORT.",
)
@click.option(
    "--spark", metavar="MASTER", help="Where Spark runs: local[4], spark://HOST:PORT and the like."
)
def command(
    file: Path,
    name: str | None,
    once: bool,
    rebuild: tuple[str, ...],
    reset: tuple[str, ...],
    port: int,
    data: Path | None,
    server: str | None,
    spark: str | None,
) -> None:
    """Run the app that FILE makes, until Ctrl-C or SIGTERM.

    A node that fails is started again, a little later each time, while the others go on. Ends with
    status 1 when nodes are failing at the end.

    On a terminal the nodes are shown as `penstock status` shows them, and what Spark and its
    workers write goes to spark.log in the app's folder. Elsewhere all goes to standard error, with
    a line when a node starts or fails.

    \b
    Examples:
      penstock run app.py
      penstock run app.py --once --data /srv/shop
      penstock run app.py --rebuild totals
      penstock run app.py --server kafka://broker:9092 --spark spark://master:7077
    """
    # Only now: these bring Spark's Python side with them.
    from penstock.runtime.loading import load_app, users_errors
    from penstock.runtime.running import run

    app = load_app(file, name)
    app.data = data or app.data
    app.log = server or app.log
    app.spark = spark or app.spark
    app.ordered_nodes()
    log = app_folder(app.data, app.name) / SPARK_LOG
    show_it = _on_terminal(log) if sys.stdout.isatty() else _in_lines(with_result=once)
    with show_it as shown, users_errors(f"{file} cannot be run"):
        failing = run(
            app,
            once=once,
            rebuild=rebuild,
            reset=reset,
            port=port,
            file=file,
            # What nobody sees need not be brought up to date several times a second.
            watcher=shown.update if shown.is_live or once else None,
        )
    if failing:
        click.get_current_context().exit(1)


class Shown:
    """What is on the screen of a running app."""

    def __init__(self, live: Live | None = None, log: Path | None = None) -> None:
        self._live = live
        self._log = log
        self._drawn: object = None
        self.status: AppStatus | None = None

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def update(self, status: AppStatus) -> None:
        self.status = status
        now = now_ms()
        # All that can be seen; a failure also tells how long ago it was.
        drawn = status.facts(), roughly(now - status.started_ms), status.failing and now // 1_000
        if self._live is not None and drawn != self._drawn:
            self._drawn = drawn
            life: Life = "stopped" if status.stopped else "running"
            whole = overview(status, life, now)
            if status.failing:
                whole = Group(whole, Text(f"  what Spark wrote: {self._log}", style="dim"))
            self._live.update(whole)


class Screen(Live):
    """Drawn when there is something new to see. rich draws ten times a second, which for an idle
    app of 30 nodes takes a fifth of a core."""

    _drawn: object = None

    def refresh(self) -> None:
        shown = self.get_renderable()
        drawn = shown, self.console.size
        # What moves by itself, and what is left on the screen at the end, are always drawn.
        if drawn != self._drawn or isinstance(shown, Spinner) or not self.is_started:
            self._drawn = drawn
            super().refresh()


@contextmanager
def _on_terminal(log: Path) -> Iterator[Shown]:
    spinner = Spinner("dots", Text("starting Spark ...", style="dim"))
    with (
        others_write_to(log),
        Screen(spinner, console=screen(), refresh_per_second=10) as live,
    ):
        # Now, as messages go above what is live only when it has taken hold of standard error.
        show_messages(logging.WARNING)
        shown = Shown(live, log)
        try:
            yield shown
        finally:
            if shown.status is not None:
                shown.update(shown.status)
            else:
                live.update(Text())


@contextmanager
def _in_lines(*, with_result: bool) -> Iterator[Shown]:
    show_messages()
    logger.info("starting Spark")
    shown = Shown()
    yield shown
    logger.info("stopped")
    if with_result and shown.status is not None:
        show(overview(shown.status, "stopped", now_ms()))
