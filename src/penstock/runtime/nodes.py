"""A node of an app, built: its DataFrame, and what that depends on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import AppError, InvalidInput
from penstock.runtime.declarations import (
    Declaration,
    Derivation,
    Node,
    Rejected,
    Topic,
    View,
    source_spec,
)
from penstock.runtime.folders import NodeFolder
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.source.event_time import Rule
from penstock.streams.source.spec import SourceSpec
from penstock.streams.spark.call_sites import without_call_sites
from penstock.streams.spark.operators import changes
from penstock.streams.spark.origin import (
    Origin,
    mark_time,
    source_frame,
    time_column,
    with_origin,
)
from penstock.streams.spark.place import QueryPlace, building
from penstock.streams.spark.query.graph import QueryGraph
from penstock.streams.spark.query.outputs import Output
from penstock.streams.spark.query.rejections import REJECTED_ROWS, rejected_topic
from penstock.streams.spark.source import register


@dataclass
class Built:
    """A node whose function was called: `frame` is what it gives, `output` how others read it.

    `sources` are the topics that it reads, and `inner` the nodes of the same query; its clock goes
    by `clock_sources`, which are numbers among the query's own.
    """

    node: Node
    frame: DataFrame
    place: QueryPlace
    folder: NodeFolder
    query: str = ""
    sources: list[SourceSpec] = field(default_factory=list)
    inner: list[Topic] = field(default_factory=list)
    alarms: dict[str, float | None] = field(default_factory=dict)  # of the sources, by name
    output: Topic | None = None
    clock_sources: tuple[int, ...] = ()
    crash_points: Path | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that become the key of the records it writes."""
        if self.output is not None and self.output.key:
            return self.output.key
        return self.node.key if isinstance(self.node, Derivation) else ()

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that it reads."""
        outer = [each.topic for each in self.sources]
        return (*outer, *(each.topic for each in self.inner))

    def facts(self) -> dict[str, Any]:
        """What cannot change without the node's state losing its meaning."""
        sources = {each.name: each.topic for each in self.sources}
        sources |= {each.name: each.topic for each in self.inner}
        facts: dict[str, Any] = {
            "sources": dict(sorted(sources.items())),
            "operators": self.place.operators,
            "key": list(self.output.key) if self.output else [],
        }
        if isinstance(self.node, View) and self.node.sql:
            from penstock.streams.sql import statement

            facts["sql"] = statement(self.node.sql)
        return facts


class Builder:
    """Builds the nodes of an app in their order: into the graphs of queries, or as batches."""

    def __init__(
        self,
        session: SparkSession,
        source_log: str,
        declared: Mapping[str, Declaration],
        folders: Mapping[str, NodeFolder],
        *,
        crash_points: str = "",
    ) -> None:
        self._session = session
        self._source_log = source_log
        self._declared = declared
        self._folders = folders
        self._crash_points = crash_points
        self._topics: dict[str, Topic] = {}  # what derivations give, as others read it
        self._frames: dict[tuple[str, str], Callable[[], DataFrame]] = {}  # by query and node
        self._sources: dict[tuple[str, str], DataFrame] = {}  # by query and source

    def build(self, node: Node, query: str = "", graph: QueryGraph | None = None) -> Built:
        """As part of this query, or as a batch if there is no graph."""
        folder = self._folders[node.name]
        buckets = graph.program.buckets if graph else 1
        cohort = folder.cohort or query
        place = QueryPlace("", buckets, one_host=True, graph=graph, cohort=cohort)
        built = Built(node, None, place, folder, query)  # type: ignore[arg-type]
        if graph is not None:
            graph.building = node.name
        if self._crash_points:
            built.crash_points = Path(self._crash_points) / node.name
        with building(place):
            with without_call_sites():
                inputs = [self._input(name, built, graph) for name in node.inputs]
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
            frame = built.frame
            self._frames[query, node.name] = (
                (lambda: frame) if graph is None else graph.node(self._identity(node.name), frame)
            )
        return built

    def _input(self, name: str, reader: Built, graph: QueryGraph | None) -> DataFrame:
        if not isinstance(self._declared[name], Derivation):
            return self._read(name, reader, graph)
        topic = self._topics[name]
        if (reader.query, name) in self._frames:
            reader.inner.append(topic)
            frame = self._frames[reader.query, name]()
        else:
            frame = self._followed(name, reader, graph)
        if topic.key and WEIGHT not in frame.columns:
            return changes(frame, topic.key)
        if topic.key:
            # What it had at a time is in its topic alone.
            origin = Origin(keys=topic.key, reread=lambda: self._read(name, reader, graph))
            return with_origin(frame, origin)
        return frame

    def _followed(self, name: str, reader: Built, graph: QueryGraph | None) -> DataFrame:
        """What a node of another query gives, read from its topic; to those who read it, it is the
        same as in the same query."""
        assert graph is not None
        # What it takes to read it is no part of the node.
        with building(QueryPlace("", 1, one_host=True, graph=graph, cohort=reader.query)):
            frame = self._read(name, reader, graph)
        return graph.node(self._identity(name), frame)()

    def _identity(self, node: str) -> str:
        return f"{node}/{self._folders[node].generation}"

    def _read(self, name: str, reader: Built, graph: QueryGraph | None) -> DataFrame:
        """From its topic."""
        declared = self._declared[name]
        topic = self._topic(declared)
        # A node's are in a topic of their own, a stream's are told from the others as it is read.
        rejected = isinstance(declared, Rejected) and topic.name != name
        spec = source_spec(
            topic,
            self._source_log,
            name=name,
            rejected=rejected,
            ticks=topic.rule is not None and not rejected,
        )
        if spec not in reader.sources:
            reader.sources.append(spec)
        reader.alarms[name] = None if rejected else topic.rejected_alarm
        if graph is None:
            register(self._session)
            frame = source_frame(self._session, spec, streaming=False)
        else:
            frame = self._source(spec, reader.query, graph)
        return changes(frame, topic.key) if topic.key and not spec.rejected else frame

    def _source(self, spec: SourceSpec, query: str, graph: QueryGraph) -> DataFrame:
        """One frame for all nodes of a query, as Spark takes its time to make it."""
        if (query, spec.name) not in self._sources:
            frame = graph.source(spec)
            if spec.time_column is not None and not spec.rejected:
                assert spec.rule is not None
                frame = mark_time(frame, spec.time_column, spec.rule.correct_for)
            origin = Origin(spec, self._session, streaming=True)
            self._sources[query, spec.name] = with_origin(frame, origin)
        return self._sources[query, spec.name]

    def _topic(self, declared: Declaration) -> Topic:
        match declared:
            case Topic():
                return declared
            case Rejected():
                of = self._topic(self._declared[declared.stream])
                if isinstance(self._declared[declared.stream], Topic):
                    return of
                return Topic(declared.name, rejected_topic(of.topic), REJECTED_ROWS)
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


def add_output(built: Built, graph: QueryGraph, partitions: int) -> None:
    """Has the query write what the node gives to its topic."""
    assert built.output is not None
    time = time_column(built.frame)
    output = Output(
        built.name,
        built.output.topic,
        partitions,
        built.key,
        time.name if time else None,
        view=isinstance(built.node, View),
    )
    is_table = WEIGHT in built.frame.columns
    sources = graph.output(built.frame, output, is_table=is_table)
    built.clock_sources = tuple(sorted(sources)) if built.output.rule is not None else ()


def sql_plan(frame: DataFrame) -> str:
    from penstock.streams.spark.sql import operators_of, view_of
    from penstock.streams.sql import explain

    view, operators = view_of(frame), operators_of(frame)
    assert view is not None
    return explain(view, lambda plan: ", ".join(operators.get(plan, ())))


def writer_name(app: str, folder: NodeFolder) -> str:
    """By which the log knows a node: as a consumer group, and as the writer of its batches.

    Another generation is another one, whose batches begin at 0 again.
    """
    return folder.versioned(f"{app}.{folder.node}")
