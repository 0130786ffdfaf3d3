"""What an app declares: streams, tables, derivations and sinks, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.sinks.contract import Sink
from penstock.streams.source.event_time import Rule
from penstock.streams.source.spec import SourceSpec

Function = Callable[..., DataFrame]


@dataclass(frozen=True)
class Topic:
    """A stream, or with a `key` a table, that is read from a topic somebody else writes."""

    name: str
    topic: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    rule: Rule | None = None
    format: str = "json"
    format_options: Mapping[str, str] = field(default_factory=dict)
    start: str = "earliest"
    metadata: tuple[str, ...] = ()
    partitions: int | None = None  # the topic is made with so many when it is missing
    max_rows: int | None = None
    rate: int | None = None
    rejected_alarm: float | None = None  # the share of rejected rows that is too much


def source_spec(topic: Topic, log: str, **more: Any) -> SourceSpec:
    """How a topic is read. Raises InvalidInput and UnknownName for what cannot be right."""
    facts = {each.name: getattr(topic, each.name) for each in fields(Topic)}
    del facts["partitions"], facts["name"], facts["rejected_alarm"]
    if topic.max_rows is None:
        del facts["max_rows"]
    return SourceSpec(log=log, **{**facts, **more})


@dataclass(frozen=True)
class Rejected:
    """The rows of a stream that could not be processed, or of a node that could not be computed."""

    name: str
    stream: str


@dataclass(frozen=True)
class Derivation:
    """A node that writes what its function makes of its inputs to a topic of its own."""

    name: str
    function: Function
    inputs: tuple[str, ...]
    topic: str
    key: tuple[str, ...] = ()
    partitions: int | None = None
    alone: bool = False  # in a query of its own, instead of with the others


@dataclass(frozen=True)
class View(Derivation):
    """A derivation whose topic is a table's changelog, and is kept as a table that can be read.

    Its key may be left to its SQL, which tells it when it is built.
    """

    versions_ms: int | None = None  # how long old versions of its rows are kept
    sql: str = ""


@dataclass(frozen=True)
class Outlet:
    """A node that gives a stream or a table to a sink."""

    name: str
    source: str
    sink: Sink

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.source,)


Node = Derivation | Outlet
Declaration = Topic | Rejected | Derivation
