"""The Spark of an app: one of its own, or a session that was given to it."""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.runtime.app import App
from penstock.streams.spark.gateway import death_of_java, forget_java
from penstock.streams.spark.session import check_session, open_session

_WORKERS_WITHIN = 10.0


class AppSpark:
    """Raises JavaMissing, SparkDied and InvalidInput when it is made."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._workers: threading.Thread | None = None
        self.is_own = not isinstance(app.spark, SparkSession)
        self.session = self._opened()

    def _opened(self) -> SparkSession:
        given = self._app.spark
        if isinstance(given, SparkSession):
            check_session(given)
            return given
        session = open_session(self._app.name, master=given, settings=self._app.settings)
        self._workers = _start_workers(session)
        return session

    def death(self, within: float = 0.0) -> str:
        """How Spark's Java ended, "" while it is there; its end may be waited for."""
        return death_of_java(within)

    def start_again(self) -> None:
        """After its death. What was built on the session before is of no use any more."""
        forget_java()
        self.session = self._opened()
        use_here(self.session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A session that was given goes on."""
        if not self.is_own:
            return
        # A call of Java that was interrupted has taken the connection with it.
        if self.death() or isinstance(error, KeyboardInterrupt):
            forget_java()
            return
        if self._workers is not None:  # Spark tells of a job that is cut off, with a stack trace
            self._workers.join(_WORKERS_WITHIN)
        with suppress(Py4JError, ConnectionError):  # it is gone already
            self.session.stop()


def use_here(session: SparkSession) -> None:
    """Makes it this thread's session, which is where Spark looks for data sources."""
    assert session._jvm is not None
    java = SparkSession._get_j_spark_session_class(session._jvm)
    java.setActiveSession(session._jsparkSession)


def _start_workers(session: SparkSession) -> threading.Thread:
    """Has Spark start its Python workers, which takes seconds, while nodes are built."""

    def start() -> None:
        with suppress(Exception):  # who needs them says what is wrong
            cores = session.sparkContext.defaultParallelism
            tasks = session.range(0, cores, 1, cores)
            tasks.mapInArrow(lambda batches: batches, "id long").collect()

    thread = threading.Thread(target=start, name="penstock-workers", daemon=True)
    thread.start()
    return thread
