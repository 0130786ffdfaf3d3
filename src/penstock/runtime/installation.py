"""An app put to work: its session, its log, its folders, and its queries, ready to start."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import SparkSession

from penstock.errors import (
    ForeignCheckpoint,
    InvalidInput,
    LogUnreachable,
    PenstockError,
    TopicNotFound,
)
from penstock.log import Log
from penstock.log.owner import find, find_or_start
from penstock.runtime import membership
from penstock.runtime.app import App
from penstock.runtime.declarations import Derivation, Outlet, View
from penstock.runtime.drawing import drawn
from penstock.runtime.engine import BuiltQuery, Engine
from penstock.runtime.folders import (
    NodeFolder,
    app_folder,
    begin_generations,
    finish_generations,
)
from penstock.runtime.graph import downstream, unknown
from penstock.runtime.nodes import (
    Builder,
    Built,
    add_output,
    sql_plan,
    writer_name,
)
from penstock.runtime.query_folder import NONE, STATE, QueryFolder
from penstock.runtime.spark import AppSpark, use_here
from penstock.runtime.topics import check_unwritten, ensure_topics
from penstock.serve.changelog import ViewSource
from penstock.serve.offers import Published
from penstock.streams.spark.kafka_publishing import KafkaPublisher
from penstock.streams.spark.place import warm_claimed, warm_folder
from penstock.streams.spark.publishing import LogPublisher, Publisher
from penstock.streams.spark.query.graph import QueryGraph
from penstock.streams.spark.query.program import Program
from penstock.streams.spark.query.rejections import rejected_topic
from penstock.streams.state import restore

logger = logging.getLogger(__name__)

_TIME_LIMIT = 10.0  # seconds that the nodes wait for each other when the log does not answer


@dataclass
class Installation:
    """`address` is where the log is over the wire, `source_log` where sources read it."""

    app: App
    spark: AppSpark
    log: Log
    address: str
    source_log: str
    folders: dict[str, NodeFolder]
    queries: list[BuiltQuery] = field(default_factory=list)
    crash_points: str = ""
    offer: Callable[[str, int, Mapping[str, Published]], None] = lambda query, batch, views: None

    @property
    def session(self) -> SparkSession:
        return self.spark.session

    @property
    def nodes(self) -> list[Built]:
        """Every node after those that it reads from."""
        order = list(self.folders)
        built = [each for query in self.queries for each in query.nodes]
        return sorted(built, key=lambda each: order.index(each.name))

    def open_engine(self, query: BuiltQuery) -> Engine:
        """Goes on with a query where it was. Raises ForeignCheckpoint, TopicExists, WriterFenced
        and whatever is wrong with its topics."""
        use_here(self.session)
        self.keep_log()
        self._measure_topics(query)
        writers = {built.name: writer_name(self.app.name, built.folder) for built in query.nodes}
        publisher: Publisher
        if self.address.startswith("kafka://"):
            least = min((each.most for each in query.graph.program.outputs), default=None)
            publisher = KafkaPublisher(
                self.address, f"{self.app.name}.{query.name}", writers, batch_bytes=least
            )
        else:
            publisher = LogPublisher(self.address, writers)
        try:
            for built in query.nodes:
                self._check_published(query, built, publisher)
            return Engine(query, publisher, self.log, partial(self.offer, query.name))
        except BaseException:
            publisher.close()
            raise

    def _measure_topics(self, query: BuiltQuery) -> None:
        """Notes how large a record may be: somebody may have changed that since."""
        outputs = query.graph.program.outputs
        for number, output in enumerate(outputs):
            policy = self.log.describe(output.topic).policy
            outputs[number] = replace(output, most=policy.max_message_bytes)

    def _check_published(self, query: BuiltQuery, built: Built, publisher: Publisher) -> None:
        if built.output is None:
            return
        topic = built.output.topic
        partitions = len(self.log.describe(topic).partitions)
        published, planned = (
            publisher.last_batch(built.name, topic, partitions),
            query.folder.planned,
        )
        if published > planned:
            raise ForeignCheckpoint(
                f"topic {topic!r} has batch {published} of node {built.name!r}, whose query knows "
                f"of {planned + 1} batches",
                hint="was the data folder lost, or restored from an older copy? "
                f"--reset {built.name} writes the topic anew",
            )
        if published < 0 and not built.folder.has_begun:
            check_unwritten(self.source_log, topic, built.name)

    def detach(self, query: BuiltQuery, nodes: Sequence[Built]) -> None:
        """Has nodes of a query go on in one of their own."""
        membership.detach(query, self.source_log, nodes, self.app.name)

    def attach(self, side: BuiltQuery) -> bool:
        """Has the nodes of a query join the main one, if both can be brought to the same place."""
        main = next(each for each in self.queries if each.name == membership.MAIN)
        with closing(self.open_engine(main)) as ours, closing(self.open_engine(side)) as theirs:
            return membership.attach(ours, theirs)

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
                        group=built.query,
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
    names = [node.name for node in app.ordered_nodes()]
    return {name: NodeFolder(app.name, name, home / name) for name in names}


@contextmanager
def installed(
    app: App,
    *,
    rebuild: Sequence[str] = (),
    reset: Sequence[str] = (),
    crash_points: str = "",
) -> Iterator[Installation]:
    """Checks the app, then opens its log and its session, and builds its nodes in their order."""
    app.ordered_nodes()  # whether they can be put in order is said before Spark starts
    folders = folders_of(app)
    check_renewal(app, rebuild, reset)
    state = str(app_folder(app.data, app.name).absolute() / STATE)
    restore(state)
    finish_generations(app_folder(app.data, app.name), app.name)
    address = app.log or find_or_start(app.data)
    # Before Spark, which takes long to start: a log that is out of reach is told at once, and a
    # server that was started for this does not end because nobody came.
    with (
        Log.connect(address, time_limit=_TIME_LIMIT) as log,
        warm_claimed(state),
        AppSpark(app) as spark,
    ):
        use_here(spark.session)
        master = spark.session.conf.get("spark.master") or ""
        one_host = master.startswith("local")
        source_log = str(app.data.absolute()) if app.log is None and one_host else address
        if rebuild:
            home = app_folder(app.data, app.name)
            home.mkdir(parents=True, exist_ok=True)
            generations = {name: folders[name].generation + 1 for name in rebuild}
            begin_generations(home, app.name, generations)
        for name in reset:
            _forget(app, folders[name], log)
        installation = Installation(
            app, spark, log, address, source_log, folders, crash_points=crash_points
        )
        build_queries(installation)
        try:
            yield installation
        finally:
            installation.log.close()


def build_queries(installation: Installation, *, again: bool = False) -> None:
    """Builds the nodes in their order, each into the query that it runs in.

    Raises NodeChanged for one that was away, and what is wrong with functions and topics. When it
    is done `again`, a query whose topic is gone meanwhile says so itself.
    """
    app, session, folders = installation.app, installation.session, installation.folders
    home, order = app_folder(app.data, app.name), app.ordered_nodes()
    builder = Builder(
        session,
        installation.source_log,
        app.declared,
        folders,
        crash_points=installation.crash_points,
    )
    assigned = membership.assign(home, order, folders)
    queries: dict[str, BuiltQuery] = {}
    for node in order:
        name = assigned[node.name]
        if name not in queries:
            members = {
                each: folders[each].generation for each in assigned if assigned[each] == name
            }
            queries[name] = _begun(installation, QueryFolder(home, name), members)
        query = queries[name]
        built = builder.build(node, name, query.graph)
        with suppress(TopicNotFound) if again else nullcontext():
            ensure_topics(built, app.declared, installation.log)
        if isinstance(node, Outlet):
            frame = query.graph.hand_over_frame(built.frame)
            query.sinks.append((node.name, frame, node.sink))
        else:
            assert built.output is not None
            partitions = len(installation.log.describe(built.output.topic).partitions)
            add_output(built, query.graph, partitions)
        query.nodes.append(built)
    for query in queries.values():
        query.graph.finish()
        readers = [each for other in queries.values() if other is not query for each in other.nodes]
        read = {spec.topic for each in readers for spec in each.sources}
        query.followed = frozenset(
            each.name for each in query.nodes if each.output and each.output.topic in read
        )
        for built in query.nodes:
            try:
                _settle(built)
            except PenstockError as refused:
                query.refused[built.name] = refused
        query.folder.draw(drawn(query))
    installation.queries = list(queries.values())


def _begun(
    installation: Installation, folder: QueryFolder, members: Mapping[str, int]
) -> BuiltQuery:
    app, session = installation.app, installation.session
    buckets = folder.buckets or app.buckets or _buckets(session)
    if folder.committed == NONE:
        folder.settle(buckets, members)
    state = str((folder.app / STATE).absolute())
    one_host = (session.conf.get("spark.master") or "").startswith("local")
    warm = warm_folder(state)
    passed = warm / "passed" / folder.name if one_host else None
    handed = passed / "handed" if passed else folder.path.absolute() / "handed"
    program = Program(
        buckets,
        state,
        str(handed),
        None if passed is None else str(passed),
        crash_points=installation.crash_points,
    )
    return BuiltQuery(folder.name, folder, QueryGraph(session, program))


def _settle(built: Built) -> None:
    """Raises NodeChanged, ForeignCheckpoint."""
    built.folder.settle(built.facts() | {"cohort": built.place.cohort})
    built.folder.note(query=built.query, states=built.place.states)
    if isinstance(built.node, View) and built.node.sql:
        built.folder.plan.write_text(sql_plan(built.frame))


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
    left = set().union(*(downstream(app.nodes, name, app.declared) for name in names)) - set(names)
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
        topic = folder.versioned(node.topic)
        for each in {topic, rejected_topic(topic)}.intersection(log.topics()):
            log.delete(each)
    membership.leave(folder.path.parent, folder)
    folder.clear()
