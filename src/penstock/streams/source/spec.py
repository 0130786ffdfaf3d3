"""What a source reads and what its rows look like, as its options say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from penstock.errors import InvalidInput, MissingSchema, UnknownName
from penstock.events.schema import parse_schema, schema_text
from penstock.streams.source.event_time import Rule

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))

# Columns about a record, beside those of its value; a name of the user's never begins with "_".
METADATA = {
    "key": pa.field("_key", pa.binary()),
    "partition": pa.field("_partition", pa.int32()),
    "offset": pa.field("_offset", pa.int64()),
    "timestamp": pa.field("_timestamp", TIME),
    "headers": pa.field("_headers", HEADERS),
}
EVENT_TIME = pa.field("_time", TIME)
DELETED = pa.field("_deleted", pa.bool_())

REJECTED = pa.schema(
    {
        "reason": pa.string(),
        "detail": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIME,
        "event_time": TIME,
        "key": pa.binary(),
        "value": pa.binary(),
    }
)

# Rows on their way to the buckets of a kernel: in the JVM's hands, or in a file on this host.
PACKED = pa.schema({"_bucket": pa.int32(), "_payload": pa.binary(), "_file": pa.string()})

DEFAULT_MAX_ROWS = 1_000_000


@dataclass(frozen=True)
class SourceSpec:
    """`log` and `topic` say where; `checkpoint` is the folder of the query that reads.

    With `key` the topic is one of upserts: a record without a value deletes its key. With
    `rejected` the rows are those that are not among the rows otherwise. `ticks` lets the clock
    move without rows, which only stateful operators need. A batch has at most `max_rows`, and
    about `rate` a second since the one before, but never less than one.
    """

    log: str
    topic: str
    schema: pa.Schema
    format: str = "json"
    format_options: Mapping[str, str] = field(default_factory=dict)
    rule: Rule | None = None
    start: str = "earliest"
    metadata: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    rejected: bool = False
    ticks: bool = False
    max_rows: int = DEFAULT_MAX_ROWS
    rate: int | None = None
    checkpoint: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        for name in self.metadata:
            if name not in METADATA:
                raise InvalidInput(
                    f"there is no metadata {name!r}", hint=f"some of: {', '.join(METADATA)}"
                )
        for name, number in {"max_rows": self.max_rows, "rate": self.rate}.items():
            if number is not None and number < 1:
                raise InvalidInput(f"{name}={number} is not a number of rows", hint="1 or more")
        wanted = (*self.key, *(self.rule.columns if self.rule else ()))
        for name in wanted:
            if name not in self.schema.names:
                raise UnknownName(
                    f"the schema of {self.topic!r} has no column {name!r}",
                    hint=f"it has: {', '.join(self.schema.names)}",
                )
        if len(set(self.row_schema.names)) < len(self.row_schema.names):
            raise InvalidInput(
                f"rows of {self.topic!r} have two columns of the same name",
                hint="a column of the schema is named as one that the source adds; rename it",
            )
        for name in self.rule.columns if self.rule else ():
            kind = self.schema.field(name).type
            if not pa.types.is_timestamp(kind) and not pa.types.is_int64(kind):
                raise InvalidInput(
                    f"the event time {name!r} of {self.topic!r} is of type {kind}",
                    hint="declare it as timestamp, or as long in milliseconds since 1970",
                )

    @property
    def time_column(self) -> str | None:
        """The column of the rows that says when each happened."""
        if self.rule is None:
            return None
        column = self.rule.column
        if column is not None and pa.types.is_timestamp(self.schema.field(column).type):
            return column
        return str(EVENT_TIME.name)

    @property
    def row_schema(self) -> pa.Schema:
        if self.rejected:
            return REJECTED
        fields = [*self.schema, *(METADATA[name] for name in self.metadata)]
        if self.key:  # a row that is deleted has nothing but its key
            fields = [field.with_nullable(True) for field in fields]
        if self.time_column == EVENT_TIME.name:
            fields.append(EVENT_TIME)
        if self.key:
            fields.append(DELETED)
        return pa.schema(fields)

    def options(self) -> dict[str, str]:
        """As Spark takes options: texts by name, the same that `parse` reads."""
        return {
            "log": self.log,
            "topic": self.topic,
            "schema": schema_text(self.schema),
            "format": self.format,
            "format_options": json.dumps(dict(self.format_options)),
            "start": self.start,
            "metadata": ",".join(self.metadata),
            "key": ",".join(self.key),
            "rejected": str(self.rejected).lower(),
            "ticks": str(self.ticks).lower(),
            "max_rows": str(self.max_rows),
            "checkpoint": self.checkpoint,
            "name": self.name or self.topic,
            **({"rate": str(self.rate)} if self.rate else {}),
            **({"event_time": self.rule.text()} if self.rule else {}),
        }

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: pa.Schema | None = None) -> Self:
        for name in ("log", "topic"):
            if not options.get(name):
                raise InvalidInput(
                    f"the source penstock needs the option {name!r}",
                    hint='.option("log", "penstock-data").option("topic", "orders")',
                )
        if "schema" in options:
            schema = parse_schema(options["schema"])
        kind = options.get("format", "json")
        if schema is None:
            if kind not in WHOLE:
                raise MissingSchema(
                    f"nobody said what the rows of {options['topic']!r} look like",
                    hint='.option("schema", "id long, amount double, at timestamp")',
                )
            schema = pa.schema([WHOLE[kind]])
        rate = options.get("rate")
        return cls(
            log=options["log"],
            topic=options["topic"],
            schema=schema,
            format=kind,
            format_options=_texts(options, "format_options"),
            rule=Rule.parse(options["event_time"]) if "event_time" in options else None,
            start=options.get("start", "earliest"),
            metadata=_names(options.get("metadata")),
            key=_names(options.get("key")),
            rejected=_flag(options, "rejected"),
            ticks=_flag(options, "ticks"),
            max_rows=_number(options, "max_rows", DEFAULT_MAX_ROWS),
            rate=None if rate is None else _number(options, "rate", 0),
            checkpoint=options.get("checkpoint", ""),
            name=options.get("name", options["topic"]),
        )


# The formats that say themselves what a row looks like.
WHOLE: dict[str, Any] = {
    "text": pa.field("value", pa.string()),
    "bytes": pa.field("value", pa.binary()),
}


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"{name}={text!r} says neither yes nor no", hint="true or false")
    return text == "true"


def _texts(options: Mapping[str, str], name: str) -> dict[str, str]:
    text = options.get(name, "{}")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidInput(f"{name}={text!r} is no JSON of texts", hint='such as {"sep": ";"}')
    return found


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise InvalidInput(f"{name}={text!r} is not a number of rows", hint="1 or more")
    return int(text)
