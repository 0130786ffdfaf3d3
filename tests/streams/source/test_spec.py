from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidInput, InvalidSchema, MissingSchema, UnknownName
from penstock.events.schema import parse_schema
from penstock.streams.source.event_time import EventTime, Rule
from penstock.streams.source.spec import REJECTED, SourceSpec

SCHEMA = parse_schema("id long, name string, at timestamp, millis long, amount double")


def spec(**more: Any) -> SourceSpec:
    return SourceSpec("penstock-data", "orders", **{"schema": SCHEMA, **more})


@pytest.mark.parametrize(
    "told",
    [
        spec(name="orders"),
        spec(
            name="left",
            format="csv",
            format_options={"sep": ";"},
            rule=EventTime("at", wait="10s").rule(),
            start='{"0": 42}',
            metadata=("key", "offset"),
            key=("id", "name"),
            rejected=True,
            ticks=True,
            max_rows=7,
            rate=100,
            checkpoint="/somewhere/else",
        ),
    ],
)
def test_options_say_all_of_it(told: SourceSpec) -> None:
    options = told.options()
    assert all(isinstance(text, str) for text in options.values())
    assert SourceSpec.parse(options) == told


def test_defaults() -> None:
    told = SourceSpec.parse({"log": "x", "topic": "t", "schema": "id long"})
    assert (told.format, told.start, told.name, told.rule, told.rate) == (
        "json",
        "earliest",
        "t",
        None,
        None,
    )
    assert SourceSpec.parse({"log": "x", "topic": "t"}, SCHEMA).schema == SCHEMA


@pytest.mark.parametrize(("kind", "type_"), [("text", pa.string()), ("bytes", pa.binary())])
def test_formats_that_need_no_schema(kind: str, type_: pa.DataType) -> None:
    told = SourceSpec.parse({"log": "x", "topic": "t", "format": kind})
    assert told.row_schema == pa.schema({"value": type_})


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"topic": ""}, InvalidInput, "option 'topic'"),
        ({"log": ""}, InvalidInput, "option 'log'"),
        ({"schema": "id lung"}, InvalidSchema, "lung"),
        ({"max_rows": "0"}, InvalidInput, "max_rows='0'"),
        ({"max_rows": "many"}, InvalidInput, "max_rows='many'"),
        ({"rate": "-5"}, InvalidInput, "rate='-5'"),
        ({"ticks": "perhaps"}, InvalidInput, "ticks='perhaps'"),
        ({"format_options": ";"}, InvalidInput, "format_options="),
        ({"format_options": '{"sep": 1}'}, InvalidInput, "format_options="),
        ({"event_time": "at"}, InvalidInput, "event_time="),
        ({"event_time": '{"column": "when"}'}, UnknownName, "'when'"),
        ({"event_time": '{"column": "name"}'}, InvalidInput, "of type string"),
        ({"event_time": '{"occurred": "at", "sent": "amount"}'}, InvalidInput, "of type double"),
        ({"key": "id, nobody"}, UnknownName, "'nobody'"),
        ({"metadata": "offset,color"}, InvalidInput, "'color'"),
        ({"metadata": "offset,offset"}, InvalidInput, "two columns"),
        ({"schema": "_offset long", "metadata": "offset"}, InvalidInput, "two columns"),
    ],
)
def test_options_that_cannot_be_right(
    more: dict[str, str], error: type[Exception], message: str
) -> None:
    plain = {
        "log": "x",
        "topic": "t",
        "schema": "id long, name string, at timestamp, amount double",
    }
    with pytest.raises(error, match=message):
        SourceSpec.parse({**plain, **more})


def test_nobody_said_what_the_rows_look_like() -> None:
    with pytest.raises(MissingSchema, match="'t'"):
        SourceSpec.parse({"log": "x", "topic": "t"})


@pytest.mark.parametrize(
    ("more", "added"),
    [
        ({}, []),
        ({"metadata": ("offset", "key")}, ["_offset", "_key"]),
        ({"rule": Rule("at")}, []),
        ({"rule": Rule("millis")}, ["_time"]),
        ({"rule": Rule()}, ["_time"]),
        ({"rule": Rule(occurred="at", sent="millis")}, ["_time"]),
        ({"key": ("id",)}, ["_deleted"]),
        (
            {"metadata": ("partition",), "rule": Rule(), "key": ("id",)},
            ["_partition", "_time", "_deleted"],
        ),
    ],
)
def test_the_columns_of_rows(more: dict[str, Any], added: list[str]) -> None:
    told = spec(**more)
    assert told.row_schema.names == [*SCHEMA.names, *added]
    if told.rule is None:
        assert told.time_column is None
    else:
        assert told.row_schema.field(told.time_column).type == pa.timestamp("us", tz="UTC")


def test_rejected_rows_look_the_same_everywhere() -> None:
    assert spec(rejected=True, metadata=("offset",)).row_schema == REJECTED
