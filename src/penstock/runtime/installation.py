"""An app put to work: its session, its log, its folders, and its nodes, ready to start."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import InvalidInput, LogUnreachable
from penstock.log import Log
from penstock.log.owner import find, find_or_start
from penstock.runtime.app import App
from penstock.runtime.declarations import Derivation, View
from penstock.runtime.folders import NodeFolder, app_folder
from penstock.runtime.graph import downstream, unknown
from penstock.runtime.nodes import Builder, Built, ensure_topics, start, writer_name
from penstock.serve.changelog import ViewSource
from penstock.streams.spark.kafka_publishing import control_topic
from penstock.streams.spark.place import forget_warm
from penstock.streams.spark.session import check_session, open_session

logger = logging.getLogger(__name__)

_TIME_LIMIT = 10.0  # seconds that the nodes wait for each other when the log does not answer


@dataclass
class Installation:
    """`address` is where the log is over the wire, `source_log` where sources read it."""

    app: App
    session: SparkSession
    log: Log
    address: str
    source_log: str
    folders: dict[str, NodeFolder]
    nodes: list[Built]

    def start(self, built: Built, *, once: bool) -> StreamingQuery:
        _use_here(self.session)
        self.keep_log()
        return start(built, self.log, self.address, app=self.app.name, once=once)

    def views(self) -> list[ViewSource]:
        """Where the tables of the app's views come from."""
        found = []
        for built in self.nodes:
            if isinstance(built.node, View):
                assert built.output is not None
                found.append(
                    ViewSource(
                        name=built.name,
                        log=self.source_log,
                        topic=built.output.topic,
                        schema=built.output.schema,
                        key=built.key,
                        batches=built.folder,
                        generation=built.folder.generation,
                        versions_ms=built.node.versions_ms,
                    )
                )
        return found

    def keep_log(self) -> None:
        """Starts the log's own server again when it is gone.

        At the same address, where everybody looks for it; elsewhere, if that is taken, nodes find
        it when they are started again.
        """
        if self.app.log is not None or find(self.app.data) is not None:
            return
        logger.warning("the server of the log is gone, and is started again")
        try:
            found = find_or_start(self.app.data, listen=self.address)
        except LogUnreachable:
            found = find_or_start(self.app.data)
        # Also at the same address: the client takes long to believe that it is back.
        self.log.close()
        self.log, self.address = Log.connect(found, time_limit=_TIME_LIMIT), found


def folders_of(app: App) -> dict[str, NodeFolder]:
    home = app_folder(app.data, app.name)
    return {name: NodeFolder(app.name, name, home / name) for name in app.nodes}


@contextmanager
def installed(
    app: App,
    *,
    rebuild: Sequence[str] = (),
    reset: Sequence[str] = (),
    crash_points: str = "",
) -> Iterator[Installation]:
    """Checks the app, then opens its log and its session, and builds its nodes in their order."""
    order = app.ordered_nodes()
    folders = folders_of(app)
    check_renewal(app, rebuild, reset)
    address = app.log or find_or_start(app.data)
    # Before Spark, which takes long to start: a log that is out of reach is told at once, and a
    # server that was started for this does not end because nobody came.
    with Log.connect(address, time_limit=_TIME_LIMIT) as log, _session(app) as session:
        _use_here(session)
        master = session.conf.get("spark.master") or ""
        one_host = master.startswith("local")
        source_log = str(app.data.absolute()) if app.log is None and one_host else address
        for name in rebuild:
            forget_warm(folders[name].checkpoint)
            folders[name].advance()
        for name in reset:
            _forget(app, folders[name], log)
        builder = Builder(
            app.name,
            session,
            source_log,
            app.declared,
            folders,
            buckets=app.buckets or _buckets(session),
            one_host=one_host,
            crash_points=crash_points,
        )
        built = []
        for node in order:
            built.append(builder.build(node))
            ensure_topics(built[-1], app.declared, log, address, app=app.name)
        installation = Installation(app, session, log, address, source_log, folders, built)
        try:
            yield installation
        finally:
            installation.log.close()


@contextmanager
def _session(app: App) -> Iterator[SparkSession]:
    """The app's own is stopped at the end, one that was given is not."""
    if isinstance(app.spark, SparkSession):
        check_session(app.spark)
        yield app.spark
        return
    session = open_session(app.name, master=app.spark, settings=app.settings)
    try:
        yield session
    finally:
        with suppress(Py4JNetworkError, ConnectionError):  # it is gone already
            session.stop()


def _use_here(session: SparkSession) -> None:
    """Makes it this thread's session, which is where Spark looks for data sources."""
    assert session._jvm is not None
    java = SparkSession._get_j_spark_session_class(session._jvm)
    java.setActiveSession(session._jsparkSession)


def _buckets(session: SparkSession) -> int:
    return int(session.conf.get("spark.sql.shuffle.partitions") or os.cpu_count() or 1)


def check_renewal(app: App, rebuild: Sequence[str], reset: Sequence[str]) -> None:
    """Nodes that are not there are refused, and so are those that others go on reading."""
    _check_renewal(app, "--rebuild", rebuild)
    _check_renewal(app, "--reset", reset)


def _check_renewal(app: App, option: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in app.nodes:
            raise unknown(name, app.nodes, f"{option} asks for")
    left = set().union(*(downstream(app.nodes, name) for name in names)) - set(names)
    if left:
        everything = [name for name in app.nodes if name in left | set(names)]
        raise InvalidInput(
            f"{', '.join(sorted(left))} reads what {', '.join(names)} writes, "
            "and would go on with what is no more",
            hint=" ".join(f"{option} {name}" for name in everything),
        )


def _forget(app: App, folder: NodeFolder, log: Log) -> None:
    """Removes what a node has written and all it knows; its inputs are not touched."""
    node = app.nodes[folder.node]
    if isinstance(node, Derivation):
        present = log.topics()
        for topic in (folder.versioned(node.topic), control_topic(writer_name(app.name, folder))):
            if topic in present:
                log.delete(topic)
    forget_warm(folder.checkpoint)
    folder.clear()
