"""A node of an app, built: its DataFrame, what that depends on, and the query that runs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import (
    AppError,
    DataLost,
    ForeignCheckpoint,
    InvalidInput,
    TopicExists,
    TopicNotFound,
)
from penstock.log import Log
from penstock.runtime.declarations import (
    Declaration,
    Derivation,
    Node,
    Outlet,
    Rejected,
    Topic,
    View,
    source_spec,
)
from penstock.runtime.folders import NodeFolder
from penstock.streams.source.event_time import Rule
from penstock.streams.source.spec import SourceSpec
from penstock.streams.spark.kafka_publishing import (
    KafkaPublisher,
    control_topic,
    create_control_topic,
)
from penstock.streams.spark.operators import changes
from penstock.streams.spark.origin import origin_of, source_frame, time_column
from penstock.streams.spark.place import QueryPlace, building, claim_warm
from penstock.streams.spark.sink import SinkSpec
from penstock.streams.spark.source import register
from penstock.streams.spark.staging import WEIGHT
from penstock.streams.state import EMPTY


@dataclass
class Built:
    """A node whose function was called: `frame` is what it gives, `output` how others read it."""

    node: Node
    frame: DataFrame
    place: QueryPlace
    folder: NodeFolder
    sources: list[SourceSpec] = field(default_factory=list)
    alarms: dict[str, float | None] = field(default_factory=dict)  # of the sources, by name
    output: Topic | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that become the key of the records it writes."""
        if self.output is not None and self.output.key:
            return self.output.key
        return self.node.key if isinstance(self.node, Derivation) else ()

    def facts(self) -> dict[str, Any]:
        """What cannot change without the node's state or checkpoint losing its meaning."""
        facts: dict[str, Any] = {
            "buckets": self.place.buckets,
            "sources": {each.name: each.topic for each in self.sources},
            "operators": self.place.operators,
            "key": list(self.output.key) if self.output else [],
        }
        if isinstance(self.node, View) and self.node.sql:
            from penstock.streams.sql import statement

            facts["sql"] = statement(self.node.sql)
        return facts


class Builder:
    """Builds the nodes of an app in their order, for streaming or, to compare with, as batches."""

    def __init__(
        self,
        app: str,
        session: SparkSession,
        source_log: str,
        declared: Mapping[str, Declaration],
        folders: Mapping[str, NodeFolder],
        *,
        buckets: int,
        one_host: bool,
        streaming: bool = True,
        crash_points: str = "",
    ) -> None:
        self._app = app
        self._session = session
        self._source_log = source_log
        self._declared = declared
        self._folders = folders
        self._buckets = buckets
        self._one_host = one_host
        self._streaming = streaming
        self._crash_points = crash_points
        self._topics: dict[str, Topic] = {}  # what derivations give, as others read it
        self._frames: dict[str, DataFrame] = {}  # as batches

    def build(self, node: Node) -> Built:
        folder = self._folders[node.name]
        known = folder.facts()
        buckets = known["buckets"] if known else self._buckets
        crash_points = self._crash_points and f"{self._crash_points}/{node.name}"
        place = QueryPlace(folder.checkpoint, buckets, self._one_host, crash_points)
        built = Built(node, None, place, folder)  # type: ignore[arg-type]
        register(self._session)
        with building(place):
            inputs = [self._input(name, built) for name in node.inputs]
            built.frame = node.function(*inputs) if isinstance(node, Derivation) else inputs[0]
            if isinstance(node, View) and node.sql and not node.key:
                from penstock.streams.spark.sql import keyed

                built.frame, key = keyed(built.frame)
                node = built.node = replace(node, key=key)
        if not isinstance(built.frame, DataFrame):
            raise AppError(
                f"the function of node {node.name!r} gave {type(built.frame).__name__}",
                hint="it has to return a DataFrame",
            )
        if isinstance(node, Derivation):
            built.output = self._output(node, built, folder)
            self._topics[node.name] = built.output
            self._frames[node.name] = built.frame
        return built

    def _input(self, name: str, reader: Built) -> DataFrame:
        if not self._streaming and name in self._frames:
            frame, key = self._frames[name], self._topics[name].key
            return changes(frame, key) if key and WEIGHT not in frame.columns else frame
        declared = self._declared[name]
        topic = self._topic(declared)
        rejected = isinstance(declared, Rejected)
        spec = source_spec(
            topic,
            self._source_log,
            name=name,
            rejected=rejected,
            ticks=topic.rule is not None and not rejected,
            checkpoint=reader.folder.checkpoint if self._streaming else "",
        )
        reader.sources.append(spec)
        reader.alarms[name] = None if rejected else topic.rejected_alarm
        frame = source_frame(self._session, spec, streaming=self._streaming)
        return changes(frame, topic.key) if topic.key and not spec.rejected else frame

    def _topic(self, declared: Declaration) -> Topic:
        match declared:
            case Topic():
                return declared
            case Rejected():
                return self._topic(self._declared[declared.stream])
            case Derivation():
                return self._topics[declared.name]

    def _output(self, node: Derivation, built: Built, folder: NodeFolder) -> Topic:
        schema = to_arrow_schema(built.frame.schema, timezone="UTC")
        is_table = WEIGHT in schema.names or isinstance(node, View)
        key = node.key
        if is_table and not key:
            how = "app.view" if isinstance(node, View) else "@app.derive"
            raise InvalidInput(
                f"node {node.name!r} gives a table, and needs a key to be written by",
                hint=f'{how}("{node.name}", key=...), the columns that name a row',
            )
        for name in key:
            if name not in schema.names:
                raise InvalidInput(
                    f"node {node.name!r} gives no column {name!r} to be its key",
                    hint=f"it gives: {', '.join(schema.names)}",
                )
        columns = pa.schema([each for each in schema if not each.name.startswith("_")])
        time = time_column(built.frame)
        rule = None
        if time is not None:
            # The node says how far its clock is; nobody downstream has to wait beyond that.
            column = time.name if time.name in columns.names else None
            rule = Rule(column=column, correct_for=time.correct_for)
        return Topic(
            name=node.name,
            topic=folder.versioned(node.topic),
            schema=columns.remove_metadata(),
            key=key if is_table else (),
            rule=rule,
            partitions=node.partitions,
        )


def start(built: Built, log: Log, address: str, *, app: str, once: bool) -> StreamingQuery:
    """Starts the query of a node. Raises NodeChanged, ForeignCheckpoint."""
    built.folder.settle(built.facts())
    if isinstance(built.node, View) and built.node.sql:
        built.folder.plan.write_text(_plan(built.frame))
    built.folder.sweep()
    claim_warm(built.folder.checkpoint)
    name = writer_name(app, built.folder)
    if isinstance(built.node, Outlet):
        writer = built.node.sink.writer(built.frame, node=built.name)
    else:
        assert built.output is not None
        frame = _distributed(built)
        partitions = len(log.describe(built.output.topic).partitions)
        epoch, published = _opened_writer(log, address, name, built.output.topic, partitions)
        if published > built.folder.planned:
            raise ForeignCheckpoint(
                f"topic {built.output.topic!r} has batch {published} of node {built.name!r}, whose "
                f"checkpoint knows of {built.folder.planned + 1} batches",
                hint="was the data folder lost, or restored from an older copy? "
                f"--reset {built.name} writes the topic anew",
            )
        time = time_column(built.frame)
        if published < 0 and built.folder.planned == EMPTY:
            _check_unwritten(log, built, partitions)
        sink = SinkSpec(
            log=address,
            topic=built.output.topic,
            partitions=partitions,
            writer=name,
            epoch=epoch,
            checkpoint=built.folder.checkpoint,
            key=built.key,
            time=time.name if time else None,
            crash_points=built.place.crash_points,
        )
        register(frame.sparkSession)
        writer = frame.writeStream.format("penstock").options(**sink.options())
    writer = writer.option("checkpointLocation", built.folder.checkpoint).queryName(name)
    writer = (
        writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
    )
    return writer.start()


def _plan(frame: DataFrame) -> str:
    from penstock.streams.spark.sql import operators_of, view_of
    from penstock.streams.sql import explain

    view, operators = view_of(frame), operators_of(frame)
    assert view is not None
    return explain(view, lambda plan: ", ".join(operators.get(plan, ())))


def _check_unwritten(log: Log, built: Built, partitions: int) -> None:
    """A node that begins has its topic to itself: rows of two writers would be one table."""
    assert built.output is not None
    topic = built.output.topic
    records = sum(log.bounds(topic, number).end for number in range(partitions))
    if records:
        raise TopicExists(
            f"topic {topic!r} has {records:,} records that node {built.name!r} has not written",
            hint=f'another app may write it: @app.derive("{built.name}", topic=...) names another '
            "topic, or delete this one first",
        )


def _opened_writer(
    log: Log, address: str, name: str, topic: str, partitions: int
) -> tuple[int, int]:
    """The epoch in which the node writes from now on, and the last batch that it has published."""
    if address.startswith("kafka://"):
        return 0, KafkaPublisher(address, topic, partitions, name).last_batch()
    writer = log.open_writer(name)
    return writer.epoch, max(writer.last_batch(topic, each) for each in range(partitions))


def writer_name(app: str, folder: NodeFolder) -> str:
    """By which the log knows a node: as a consumer group, and as the writer of its batches.

    Another generation is another one, whose batches begin at 0 again.
    """
    return folder.versioned(f"{app}.{folder.node}")


def _distributed(built: Built) -> DataFrame:
    """All changes of one key in one task, where the last of them is known."""
    assert built.output is not None
    keys = built.output.key
    spread = origin_of(built.frame).keys
    if WEIGHT not in built.frame.columns:
        return built.frame  # rows as they come, those of a partition in their order
    if not keys or (spread and set(spread) <= set(keys)):
        return built.frame
    return built.frame.repartition(built.place.buckets, *keys)


def ensure_topics(
    built: Built, declared: Mapping[str, Declaration], log: Log, address: str, *, app: str
) -> None:
    """Makes the topics that the node may make; the others have to be there."""
    present = set(log.topics())
    for name in built.node.inputs:
        found = declared[name]
        topic = declared[found.stream] if isinstance(found, Rejected) else found
        if not isinstance(topic, Topic) or topic.topic in present:
            continue
        if topic.partitions is None:
            raise TopicNotFound(
                f"node {built.name!r} reads topic {topic.topic!r}, which is not there",
                hint=f"penstock topics create {topic.topic}, or declare it with partitions=4 "
                "to have it made",
            )
        # The rows of a table are there until they are deleted, however old they are.
        kept = {"retention_ms": -1} if topic.key else {}
        log.create(topic.topic, partitions=topic.partitions, **kept)
    if built.output is None:
        return
    if built.output.topic not in present:
        if built.folder.planned != EMPTY:
            raise DataLost(
                f"topic {built.output.topic!r}, which node {built.name!r} has written, is gone",
                hint=f"--reset {built.name} writes it anew from the beginning of its inputs",
            )
        partitions = built.output.partitions or built.place.buckets
        # Its records have the time of their events, which may be long ago: retention by time would
        # take what was written a moment ago.
        log.create(built.output.topic, partitions=partitions, retention_ms=-1)
    writer = writer_name(app, built.folder)
    if address.startswith("kafka://") and control_topic(writer) not in present:
        create_control_topic(address, writer)
