"""Runs an app in a test: rows go in as dictionaries, and what it makes of them comes out so.

    with Run(app) as run:
        run.feed("orders", [{"id": 1, "customer": 7, "amount": 2.5, "at": "2026-01-31T10:00:00Z"}])
        run.drain()
        assert run.view("totals") == [{"customer": 7, "total": 2.5}]

The log is a real one in a temporary folder, and Spark runs in this process, one session for all
runs. Whatever a node read is accounted for after every drain: kept, or rejected with a reason.
"""

import copy
import json
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock import clock
from penstock.errors import InvalidInput, NodeFailed, UnknownName
from penstock.events.formats import format_for
from penstock.events.record import Position, Record
from penstock.log import Log
from penstock.runtime.app import App
from penstock.runtime.declarations import Derivation, Topic
from penstock.runtime.folders import app_folder
from penstock.runtime.installation import Installation, build_queries, installed
from penstock.runtime.keeping import projector
from penstock.runtime.nodes import Builder, Built
from penstock.runtime.status import AppStatus, NodeStatus
from penstock.runtime.views import Views
from penstock.runtime.watch import PATIENCE, Watch
from penstock.serve.projector import Projector
from penstock.streams.source.keys import encode_keys
from penstock.streams.source.progress import Progress
from penstock.streams.source.punctuation import punctuation
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import open_topic
from penstock.streams.spark.crash import POINTS
from penstock.streams.spark.place import forget_warm
from penstock.streams.spark.query.rejections import REJECTED_ROWS, rejected_topic
from penstock.streams.spark.session import open_session

Row = Mapping[str, Any]
_PARTITIONS = 2
_PRODUCER = "test"


class Run:
    """`max_rows` cuts what is drained into batches of at most so many rows of each stream."""

    def __init__(
        self,
        app: App,
        *,
        spark: SparkSession | None = None,
        partitions: int = _PARTITIONS,
        max_rows: int | None = None,
    ) -> None:
        self._given = app
        self._spark = spark
        self._partitions = partitions
        self._max_rows = max_rows
        self._opened = ExitStack()
        self._installation: Installation | None = None
        self._watches: list[Watch] = []
        self._projector: Projector | None = None
        self._ordered: Counter[str] = Counter()  # crashes that are yet to come, by node
        self.crashes = 0

    def __enter__(self) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="penstock-run-"))
        self._opened.callback(shutil.rmtree, folder, ignore_errors=True)
        app = self.app = copy.copy(self._given)
        app.data = folder / "data"
        app.log = None
        app.spark = (
            self._spark
            or SparkSession.getActiveSession()
            or open_session("penstock tests", master="local[2]")
        )
        app.buckets = app.buckets or 2
        app.declared = dict(app.declared)
        if self._max_rows is not None:
            for name, topic in app.declared.items():
                if isinstance(topic, Topic):
                    app.declared[name] = replace(topic, max_rows=self._max_rows)
        self._points = folder / "crash"
        self._points.mkdir()
        self.log = self._opened.enter_context(Log.open(app.data))
        self.log.serve()  # type: ignore[attr-defined]
        for topic in app.declared.values():
            if isinstance(topic, Topic):
                self.log.create(
                    topic.topic, partitions=topic.partitions or self._partitions, retention_ms=-1
                )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    # In

    def feed(
        self,
        stream: str,
        rows: Iterable[Row | bytes],
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> list[Position]:
        """Appends rows to a stream; bytes are appended as they are, however broken. Returns where
        each stands.

        A row's own `_partition`, `_key` (bytes) and `_timestamp` (milliseconds) go before the
        arguments; all else are columns. Missing ones are null.
        """
        topic = self._declared(stream)
        records = []
        for row in rows:
            about: dict[str, Any] = {"partition": partition, "timestamp": timestamp}
            if isinstance(row, bytes):
                value = row
            else:
                about |= {n[1:]: row[n] for n in ("_partition", "_timestamp", "_key") if n in row}
                value = self._encoded(topic, row)
            records.append(Record(value=value, **about))
        return self.log.append(topic.topic, records)

    def upsert(self, table: str, **row: Any) -> Position:
        topic = self._declared(table)
        record = Record(key=self._key(topic, row), value=self._encoded(topic, row))
        return self.log.append(topic.topic, [record])[0]

    def delete(self, table: str, key: Any) -> Position:
        """`key` is the value of the key column, or a dictionary where there are several."""
        topic = self._declared(table)
        row = key if isinstance(key, Mapping) else {topic.key[0]: key}
        return self.log.append(topic.topic, [Record(key=self._key(topic, row), value=None)])[0]

    def advance(self, time: datetime | int) -> None:
        """Says on every partition of every stream with event time that nothing before `time`, a
        moment or microseconds since 1970, follows."""
        micros = time if isinstance(time, int) else round(time.timestamp() * 1_000_000)
        for topic in self.app.declared.values():
            if isinstance(topic, Topic) and topic.rule is not None:
                for number in range(len(self.log.describe(topic.topic).partitions)):
                    said = punctuation(_PRODUCER, micros, partition=number)
                    self.log.append(topic.topic, [said])

    def crash(self, point: str, node: str | None = None) -> None:
        """Kills the process of a derivation that next comes by "before-commit", "after-commit"
        (published, and not noted by Spark yet) or "in-worker"; of the first one unless named.

        The next drain starts the node again and goes on.
        """
        if point not in POINTS:
            raise InvalidInput(f"there is no point {point!r}", hint=f"one of: {', '.join(POINTS)}")
        known = [each.name for each in self.app.ordered_nodes() if isinstance(each, Derivation)]
        if node is not None and node not in known:
            raise UnknownName(f"there is no node {node!r}", hint=f"there are: {', '.join(known)}")
        node = node or known[0]
        (self._points / node).mkdir(exist_ok=True)
        (self._points / node / point).touch()
        self._ordered[node] += 1

    # On

    def drain(self) -> None:
        """Brings every node to the end of its inputs. Raises NodeFailed with the reason, when the
        others are there.

        Queries are started by the first drain and go on by themselves after it.
        """
        if not self._watches:
            self._watches = self._fresh_watches()
            self._opened.callback(self._stop)
        failed = [status for watch in self._in_turn() for status in self._drained(watch)]
        self._keep_views()
        if failed:
            raise NodeFailed(
                f"node {failed[0].name!r} failed: {failed[0].error}",
                hint="what its function or its input did is above",
            )

    def _fresh_watches(self) -> list[Watch]:
        before = {each.name: each for watch in self._watches for each in watch.statuses}
        installation = self._installed()
        return [Watch(installation, query, statuses=before) for query in installation.queries]

    def _in_turn(self) -> Iterator[Watch]:
        """The queries, those among them that come about while others are drained."""
        seen: set[str] = set()
        while left := [each for each in self._watches if each.query.name not in seen]:
            seen.add(left[0].query.name)
            yield left[0]
            if left[0].culprits:
                seen.remove(left[0].query.name)
                self._move(lambda: self._detach(left[0]))
            elif left[0].query.is_beside and not left[0].is_failed:
                self._move(lambda: self._installed().attach(left[0].query))

    def _drained(self, watch: Watch) -> list[NodeStatus]:
        """The nodes that failed on the way, unless they are detached next."""
        while not watch.drain():
            if not self._count_crashes(watch) and watch.failures >= PATIENCE:
                return [] if watch.culprits else [each for each in watch.statuses if each.error]
        self._check_conservation(watch)
        self._count_crashes(watch)
        return []

    def _detach(self, watch: Watch) -> None:
        nodes = [built for built in watch.query.nodes if built.name in watch.culprits]
        self._installed().detach(watch.query, nodes)

    def _move(self, change: Callable[[], object]) -> None:
        for watch in self._watches:
            watch.stop(patience=0.0)
        change()
        build_queries(self._installed(), again=True)
        self._watches = self._fresh_watches()

    def _keep_views(self) -> None:
        """Brings the tables of the views up to date, and tells of the nodes as a running app."""
        installation = self._installed()
        if not installation.views():
            return
        if self._projector is None:
            self._projector = self._opened.enter_context(projector(installation))
        self._projector.catch_up()
        now = clock.now_ms()
        told = [status for watch in self._watches for status in watch.statuses]
        status = AppStatus(self.app.name, os.getpid(), now, now, told)
        status.write(app_folder(self.app.data, self.app.name))

    def _count_crashes(self, watch: Watch) -> int:
        """How many of those that were ordered have come about since the last look."""
        came = 0
        for built in watch.query.nodes:
            left = sum(1 for _ in (self._points / built.name).glob("*"))
            came += self._ordered[built.name] - left
            self._ordered[built.name] = left
        self.crashes += came
        return came

    def _stop(self) -> None:
        for watch in self._watches:
            watch.stop(patience=0.0)
            forget_warm(watch.query.graph.program.state)

    def _installed(self) -> Installation:
        if self._installation is None:
            opening = installed(self.app, crash_points=str(self._points))
            self._installation = self._opened.enter_context(opening)
        return self._installation

    def _nodes(self) -> list[Built]:
        return self._installed().nodes

    def _check_conservation(self, watch: Watch) -> None:
        for status in watch.statuses:
            for told in status.inputs:
                rejected = sum(told.rejected.values())
                span = sum(told.next.values())
                assert told.read == told.kept + rejected, (
                    f"{status.name} lost rows of {told.name}: {told}"
                )
                assert told.read + told.marks == span, f"{status.name} skipped records: {told}"

    # Out

    def topic(self, name: str) -> list[dict[str, Any]]:
        """All rows of a stream or of a derived topic, partition after partition."""
        return list(self._read(self._spec(name)))

    def view(self, name: str) -> list[dict[str, Any]]:
        """The rows that a table has now, in the order of their keys."""
        spec = self._spec(name)
        if not spec.key:
            raise InvalidInput(f"{name!r} is not a table", hint="topic() has its rows")
        rows: dict[Any, dict[str, Any]] = {}
        for row in self._read(spec):
            key = tuple(_ranked(row[column]) for column in spec.key)
            if row.pop("_deleted"):
                rows.pop(key, None)
            else:
                rows[key] = _plain(row)
        return [rows[key] for key in sorted(rows)]

    @property
    def views(self) -> Views:
        """The views of the app as they are after the last drain, to be read as users read them."""
        return self.app.views

    def rejected(self, name: str) -> list[dict[str, Any]]:
        """The rows that were rejected of a stream, or by a node, with reason, detail and place."""
        spec = self._spec(name)
        if not isinstance(self.app.declared[name], Derivation):
            return list(self._read(replace(spec, rejected=True)))
        topic = rejected_topic(spec.topic)
        if topic not in self.log.topics():  # it is made with the first of them
            return []
        return list(self._read(SourceSpec(log=spec.log, topic=topic, schema=REJECTED_ROWS)))

    def batch(self, name: str) -> list[dict[str, Any]]:
        """What the node gives when its code runs once over all that the log holds."""
        installation = self._installed()
        builder = Builder(
            installation.session,
            installation.source_log,
            self.app.declared,
            installation.folders,
        )
        for node in self.app.ordered_nodes():
            built = builder.build(node)
            if node.name == name:
                return [_plain(row) for row in built.frame.toArrow().to_pylist()]
        raise UnknownName(f"there is no node {name!r}", hint=f"there are: {list(self.app.nodes)}")

    def _read(self, spec: SourceSpec) -> Iterator[dict[str, Any]]:
        topic = open_topic(spec.log, spec.topic)
        reader = RowReader(spec)
        for number in range(topic.partitions()):
            start, end = topic.bounds(number)
            whole = Range(number, end, Progress(start), clock.now_ms())
            for rows in reader.read(topic, whole):
                for row in rows.to_pylist():
                    yield row if spec.key or spec.rejected else _plain(row)

    def _spec(self, name: str) -> SourceSpec:
        declared = self.app.declared.get(name)
        if isinstance(declared, Derivation):
            (topic,) = [b.output for b in self._nodes() if b.name == name]
        else:
            topic = self._declared(name)
        assert topic is not None
        return SourceSpec(
            log=str(self.app.data),
            topic=topic.topic,
            schema=topic.schema,
            format=topic.format,
            format_options=topic.format_options,
            rule=topic.rule,
            key=topic.key,
        )

    def _declared(self, name: str) -> Topic:
        found = self.app.declared.get(name)
        if not isinstance(found, Topic):
            raise UnknownName(
                f"{name!r} is not a stream or table that this app reads",
                hint=f"there are: {', '.join(self.app.declared)}",
            )
        return found

    def _encoded(self, topic: Topic, row: Row) -> bytes:
        columns = {name: value for name, value in row.items() if not name.startswith("_")}
        if topic.format == "json":  # as a producer would write it, which may not fit the schema
            return json.dumps(columns, default=_text).encode()
        batch = pa.RecordBatch.from_pylist([columns], schema=topic.schema)
        encoded: bytes = (
            format_for(topic.format, topic.schema, topic.format_options).encode(batch)[0].as_py()
        )
        return encoded

    def _key(self, topic: Topic, row: Row) -> bytes:
        fields = pa.schema([topic.schema.field(name) for name in topic.key])
        batch = pa.RecordBatch.from_pylist([{n: row.get(n) for n in topic.key}], schema=fields)
        key: bytes = encode_keys(batch, topic.key)[0].as_py()
        return key


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _text(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
    raise InvalidInput(f"{value!r} cannot be written as JSON", hint="give text or numbers")


def _ranked(value: Any) -> tuple[bool, Any]:
    """A value as it is compared: null before all else, NaN after all numbers, structs field by
    field."""
    match value:
        case float():
            is_nan = math.isnan(value)
            value = (is_nan, 0.0 if is_nan else value)
        case dict():
            value = tuple(map(_ranked, value.values()))
        case list():
            value = tuple(map(_ranked, value))
    return (value is not None, value)
