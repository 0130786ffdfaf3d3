"""An app: streams, tables and the nodes between them, declared by name and run together.

app = App("shop")
app.stream("orders", "id long, customer long, amount double, at timestamp",
           event_time=EventTime("at", wait="10s"))

@app.derive("totals", key="customer")
def totals(orders):
    return aggregate(orders, by="customer", total=sum("amount"), n=count())

app.run()
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import overload

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.clock import Duration, duration_ms
from penstock.errors import InvalidInput, MissingSchema
from penstock.events.formats import format_for
from penstock.events.schema import parse_schema
from penstock.log.policy import check_topic_name
from penstock.runtime.declarations import (
    Declaration,
    Derivation,
    Function,
    Node,
    Outlet,
    Rejected,
    Topic,
    View,
    source_spec,
)
from penstock.runtime.graph import (
    check_name,
    check_topics,
    check_view_name,
    in_order,
    parameters_of,
    sql_function,
    unknown,
)
from penstock.runtime.views import Views
from penstock.serve.listening import PORT
from penstock.sinks.contract import Sink
from penstock.streams.source.event_time import EventTime
from penstock.streams.source.spec import WHOLE
from penstock.streams.source.starts import check_start

Columns = str | Sequence[str]
DEFAULT_DATA = "penstock-data"


class App:
    """`data` is the folder of the app's log and state. `log` is another log instead: `host:port`
    of a server, or `kafka://host:port`.

    `spark` is a session, or the address of a master; without one Spark runs here, on all cores.
    `settings` are Spark's own, and go before penstock's. `buckets` is the number of parts that
    state is kept in, fixed when a node first starts; as many as cores unless given.
    """

    def __init__(
        self,
        name: str,
        *,
        data: str | Path = DEFAULT_DATA,
        log: str | None = None,
        spark: SparkSession | str | None = None,
        settings: Mapping[str, str] | None = None,
        buckets: int | None = None,
    ) -> None:
        check_topic_name(name)
        if buckets is not None and buckets < 1:
            raise InvalidInput(f"{buckets} buckets cannot hold anything", hint="use at least 1")
        self.name = name
        self.data = Path(data)
        self.log = log
        self.spark = spark
        self.settings = dict(settings or {})
        self.buckets = buckets
        self.declared: dict[str, Declaration] = {}
        self.nodes: dict[str, Node] = {}

    def stream(
        self,
        name: str,
        schema: str | pa.Schema | None = None,
        *,
        event_time: EventTime | None = None,
        topic: str | None = None,
        format: str = "json",  # noqa: A002
        format_options: Mapping[str, str] | None = None,
        start: str | int | Mapping[int, int] = "earliest",
        metadata: Sequence[str] = (),
        partitions: int | None = None,
        max_rows: int | None = None,
        rate: int | None = None,
        rejected_alarm: float | None = 0.05,
    ) -> Topic:
        """A topic of events. With `partitions` it is made when it is missing.

        `metadata` are columns about the records: key, partition, offset, timestamp, headers, each
        under its name with an underscore before. `start` is "earliest", "latest", milliseconds
        since 1970, or offsets by partition. `max_rows` bounds a batch, `rate` the rows a second.
        When more than the share `rejected_alarm` of the rows read lately is rejected, `penstock
        status` gives the alarm.
        """
        return self._read(
            name,
            schema,
            rule=event_time.rule() if event_time else None,
            topic=topic or name,
            format=format,
            format_options=format_options or {},
            start=_start_text(start),
            metadata=tuple(metadata),
            partitions=partitions,
            max_rows=max_rows,
            rate=rate,
            rejected_alarm=rejected_alarm,
        )

    def table(
        self,
        name: str,
        schema: str | pa.Schema | None = None,
        *,
        key: Columns,
        event_time: EventTime | None = None,
        topic: str | None = None,
        format: str = "json",  # noqa: A002
        format_options: Mapping[str, str] | None = None,
        partitions: int | None = None,
        max_rows: int | None = None,
    ) -> Topic:
        """A topic of upserts: each record replaces the row of its key, one without a value
        deletes it. Nodes get its changes, rows with a `_weight` of +1 or -1.

        `event_time` says from when a row is valid, for `enrich`; a record without a value counts
        from its timestamp. Nothing that goes by it is finished before the table is read to its end.
        """
        return self._read(
            name,
            schema,
            key=_names(key),
            rule=event_time.of_table() if event_time else None,
            topic=topic or name,
            format=format,
            format_options=format_options or {},
            partitions=partitions,
            max_rows=max_rows,
        )

    def _read(self, name: str, schema: str | pa.Schema | None, **facts: object) -> Topic:
        check_name(name, self.declared)
        check_topic_name(str(facts["topic"]))
        if schema is None:
            kind = str(facts["format"])
            if kind not in WHOLE:
                raise MissingSchema(
                    f"nobody said what the rows of {name!r} look like",
                    hint=f'app.stream("{name}", "id long, amount double, at timestamp")',
                )
            schema = pa.schema([WHOLE[kind]])
        columns = parse_schema(schema) if isinstance(schema, str) else schema
        for column in columns.names:
            if column.startswith("_"):
                raise InvalidInput(
                    f"column {column!r} of {name!r} begins with an underscore",
                    hint="those are penstock's own, as _weight and _time",
                )
        topic = Topic(name=name, schema=columns, **facts)  # type: ignore[arg-type]
        # Refuses columns and options that cannot be right, before anything runs.
        source_spec(topic, log="-")
        check_start(topic.start)
        format_for(topic.format, columns, topic.format_options)
        if topic.rejected_alarm is not None and not 0 <= topic.rejected_alarm <= 1:
            raise InvalidInput(
                f"rejected_alarm={topic.rejected_alarm} is no share",
                hint="0.05 is 5 %, None never gives the alarm",
            )
        if topic.partitions is not None and topic.partitions < 1:
            raise InvalidInput(f"{topic.partitions} partitions hold nothing", hint="1 or more")
        self.declared[name] = topic
        return topic

    def rejected(self, stream: str | Topic, name: str | None = None) -> Rejected:
        """The rows of a stream that could not be processed, or the rows that a node could not
        compute its own from, with their reason and their place.

        It is a stream called `rejected_<stream>` unless named, with the columns reason, detail,
        topic, partition, offset, timestamp, event_time, key and value; of a node with reason,
        detail, topic, partition, offset, operator, batch and row, which is JSON. `operator` has
        made rows that do not come straight from a topic.
        """
        of = stream if isinstance(stream, str) else stream.name
        if not isinstance(self.declared.get(of), Topic | Derivation):
            raise unknown(
                of,
                [known for known, it in self.declared.items() if not isinstance(it, Rejected)],
                "rejected rows are asked for of",
            )
        name = name or f"rejected_{of}"
        found = self.declared.get(name)
        if isinstance(found, Rejected):
            return found
        check_name(name, self.declared)
        rejected = Rejected(name, of)
        self.declared[name] = rejected
        return rejected

    def derive(
        self,
        name: str,
        *,
        key: Columns = (),
        topic: str | None = None,
        partitions: int | None = None,
        alone: bool = False,
    ) -> Callable[[Function], Function]:
        """A node that writes what the function returns to a topic, exactly once.

        The function's parameters are the names of the streams and tables it gets, as DataFrames.
        `key` are the columns that become the records' key; a table is written by it as upserts
        and tombstones, and read so by other nodes.

        Nodes run together, and what one writes the others have in the same batch. A node that is
        `alone` has a query and a rhythm of its own, and reads others by their topics: for a
        function that is slow, or may fail.
        """

        def declare(function: Function) -> Function:
            check_name(name, self.declared)
            inputs = parameters_of(function, name)
            check_topic_name(topic or name)
            topic_name = topic or name
            node = Derivation(name, function, inputs, topic_name, _names(key), partitions, alone)
            self.declared[name] = node
            self.nodes[name] = node
            return function

        return declare

    @overload
    def view(
        self,
        name: str,
        *,
        key: Columns,
        versions: Duration | None = None,
        topic: str | None = None,
        partitions: int | None = None,
        alone: bool = False,
    ) -> Callable[[Function], Function]: ...

    @overload
    def view(
        self,
        name: str,
        *,
        sql: str,
        key: Columns = (),
        versions: Duration | None = None,
        topic: str | None = None,
        partitions: int | None = None,
        alone: bool = False,
    ) -> None: ...

    def view(
        self,
        name: str,
        *,
        sql: str | None = None,
        key: Columns = (),
        versions: Duration | None = None,
        topic: str | None = None,
        partitions: int | None = None,
        alone: bool = False,
    ) -> Callable[[Function], Function] | None:
        """A derivation that gives a table, or a stream of which the last row of each `key` counts,
        and that can be read while the app runs: `app.views[name]`, `penstock query`, HTTP.

        With `sql` it is what the statement gives, kept up to date, and not a decorator; its key is
        told by the statement unless given. `versions` is how long versions of rows are kept after
        they changed, so that the view can be read as it was.
        """
        kept_ms = None if versions is None else duration_ms(versions)

        def declare(function: Function, inputs: tuple[str, ...]) -> None:
            check_name(name, self.declared)
            check_view_name(name, versions=kept_ms is not None, declared=self.declared)
            check_topic_name(topic or name)
            node = View(
                *(name, function, inputs, topic or name, _names(key), partitions, alone),
                versions_ms=kept_ms,
                sql=sql or "",
            )
            self.declared[name] = node
            self.nodes[name] = node

        if sql is not None:
            if not isinstance(sql, str):
                raise InvalidInput(f"{sql!r} is no SQL", hint='app.view(name, sql="SELECT ...")')
            declare(*sql_function(sql))
            return None
        if not key:
            raise InvalidInput(
                f"view {name!r} has no key", hint="key= are the columns that name a row"
            )

        def decorate(function: Function) -> Function:
            declare(function, parameters_of(function, name))
            return function

        return decorate

    @property
    def views(self) -> Views:
        """What the app's views hold, by their names; they are built while the app runs."""
        return Views(self.data, self.name)

    def sink(self, source: str, sink: Sink, *, name: str | None = None) -> None:
        """Gives a stream or a table to a sink, by a node called `<source>_to_<kind>` unless named.

        A table comes as its changes, with their `_weight`.
        """
        name = name or f"{source}_to_{sink.kind}"
        check_name(name, {**self.declared, **self.nodes})
        self.nodes[name] = Outlet(name, source, sink)

    def ordered_nodes(self) -> list[Node]:
        """Every node after those that it reads from. Raises UnknownName and CyclicNodes."""
        if not self.nodes:
            raise InvalidInput(
                f"app {self.name!r} has no nodes", hint="@app.derive and app.sink make some"
            )
        check_topics(self.declared)
        return in_order(self.nodes, self.declared)

    def run(
        self,
        *,
        once: bool = False,
        rebuild: Sequence[str] = (),
        reset: Sequence[str] = (),
        port: int | None = PORT,
    ) -> int:
        """Runs all nodes until the process is told to stop, or with `once` to the present end.

        Returns the number of nodes that are failing at the end. `rebuild` nodes are built anew
        from the beginning of their inputs, beside what they wrote; `reset` nodes forget it first.
        Views are served over HTTP on `port` of this machine, or on a free one where that is taken;
        with None they are not.
        """
        from penstock.runtime.loading import refuse_while_loading
        from penstock.runtime.running import run

        refuse_while_loading()
        return run(self, once=once, rebuild=tuple(rebuild), reset=tuple(reset), port=port)


def _names(columns: Columns) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _start_text(start: str | int | Mapping[int, int]) -> str:
    if isinstance(start, Mapping):
        return json.dumps({str(partition): offset for partition, offset in start.items()})
    return str(start)
