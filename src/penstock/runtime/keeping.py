"""The views of an app that runs: kept up to date in its file, and served over HTTP."""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.runtime.folders import VIEWS_FILE, app_folder
from penstock.runtime.installation import Installation
from penstock.runtime.reach import Hop, Reach, ends_in
from penstock.serve.changelog import Offsets
from penstock.serve.listening import listening
from penstock.serve.offers import Published
from penstock.serve.projector import Projector

if TYPE_CHECKING:
    from fastapi import FastAPI

logger = logging.getLogger(__name__)


class KeptViews:
    """Keeps the tables of an app's views up to date, by a thread of its own."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._projector: Projector | None = None
        self.renew()

    def renew(self) -> None:
        """Begins anew, after nodes came, went or moved to another query."""
        self.close()
        if self._installation.views():
            self._projector = projector(self._installation)
            self._projector.start()

    def offer(self, query: str, batch: int, views: Mapping[str, Published]) -> None:
        """Hands over the rows that a batch has published, before it is committed."""
        if self._projector is not None:
            self._projector.offer(query, batch, views)

    def wake(self) -> None:
        """A batch was committed."""
        if self._projector is not None:
            self._projector.wake()

    @property
    def error(self) -> str:
        return self._projector.error if self._projector is not None else ""

    def finish(self) -> None:
        """Applies all that is committed. Raises what keeps it from that."""
        if self._projector is not None:
            self._projector.finish()

    def close(self) -> None:
        """What is committed by now is applied first, if it can be."""
        if self._projector is not None:
            self._projector.close()
            self._projector = None


@contextmanager
def views_kept(installation: Installation) -> Iterator[KeptViews]:
    views = KeptViews(installation)
    try:
        yield views
    finally:
        views.close()


@contextmanager
def views_served(installation: Installation, port: int | None) -> Iterator[str]:
    """Yields the address, "" where there are no views to be read or no port to do it on."""
    if port is None or not installation.views():
        yield ""
        return
    views = installation.app.views

    def web(stop: threading.Event) -> "FastAPI":
        from penstock.serve.http import web_app

        return web_app(
            views.app,
            views.path,
            installation.source_log,
            wait=lambda name, after, timeout: views.wait([name], after, timeout),
            batch_at=views.batch_at,
            stop=stop,
        )

    with listening(web, port) as address:
        logger.info("views are served at %s/views", address)
        yield address


def projector(installation: Installation) -> Projector:
    app = installation.app
    goals = _Goals(installation)
    return Projector(app_folder(app.data, app.name) / VIEWS_FILE, installation.views(), goals)


class _Goals:
    """When a view that is built anew is whole: once it has seen all that there is now in the
    topics which the app only reads."""

    def __init__(self, installation: Installation) -> None:
        hops = [
            Hop(
                built.name,
                built.folder,
                built.topics,
                built.output.topic if built.output else "",
            )
            for built in installation.nodes
        ]
        written = {hop.output for hop in hops}
        ends = ends_in(installation.source_log)
        wanted = {
            topic: ends(topic) for hop in hops for topic in hop.inputs if topic not in written
        }
        self._reaches = {
            view.name: Reach(hops, wanted, view.name, ends) for view in installation.views()
        }

    def __call__(self, view: str) -> Offsets | None:
        return self._reaches[view].goal()
