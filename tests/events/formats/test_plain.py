"""The formats text and bytes, and how formats are asked for."""

import subprocess
import sys

import pyarrow as pa
import pytest

from penstock.errors import InvalidInput, InvalidSchema
from penstock.events.formats import FORMATS, Refused, format_for
from penstock.events.schema import parse_schema

COLUMN = {"text": "line string", "bytes": "content binary"}


@pytest.mark.parametrize("name", COLUMN)
def test_a_value_is_a_row(name: str) -> None:
    form = format_for(name, parse_schema(COLUMN[name]))
    values = pa.array([b"", "é".encode(), b"x\n"], pa.binary())
    rows, kept, refused = form.decode(values)
    assert (kept, refused) == (None, [])
    assert rows.schema == parse_schema(COLUMN[name])
    assert rows.column(0).cast(pa.binary()) == values
    assert form.encode(rows) == values


@pytest.mark.parametrize("name", COLUMN)
def test_no_value_is_refused(name: str) -> None:
    form = format_for(name, parse_schema(COLUMN[name]))
    rows, kept, refused = form.decode(pa.array([b"a", None, b"b"], pa.binary())[1:])
    assert rows.column(0).cast(pa.binary()).to_pylist() == [b"b"]
    assert kept is not None
    assert kept.tolist() == [1]
    assert refused == [Refused(0, "the record has no value")]


def test_text_is_utf8() -> None:
    rows, kept, refused = format_for("text", parse_schema("line string")).decode(
        pa.array([b"a", b"b\xff", b"c"], pa.binary())
    )
    assert rows["line"].to_pylist() == ["a", "c"]
    assert kept is not None
    assert kept.tolist() == [0, 2]
    assert refused == [Refused(1, "not UTF-8 at byte 1")]


@pytest.mark.parametrize("name", COLUMN)
def test_null_is_not_written(name: str) -> None:
    schema = parse_schema(COLUMN[name])
    rows = pa.RecordBatch.from_arrays([pa.nulls(1, schema.types[0])], schema=schema)
    with pytest.raises(InvalidInput, match="a null in column"):
        format_for(name, schema).encode(rows)


@pytest.mark.parametrize("name", COLUMN)
@pytest.mark.parametrize("columns", ["a string, b string", "a binary, b binary", "a long"])
def test_other_columns_are_refused(name: str, columns: str) -> None:
    with pytest.raises(InvalidSchema, match="has one column"):
        format_for(name, parse_schema(columns))


def test_what_cannot_be_asked_for() -> None:
    schema = parse_schema("a string")
    with pytest.raises(InvalidInput, match="no format 'xml'"):
        format_for("xml", schema)
    with pytest.raises(InvalidInput, match="no option 'sep' of the format json"):
        format_for("json", schema, {"sep": ","})
    with pytest.raises(InvalidSchema, match="map<int,string>"):
        format_for("json", parse_schema("a map<int,string>"))


def test_a_format_is_loaded_when_it_is_asked_for() -> None:
    program = "import penstock.events.formats, sys; print(*sys.modules)"
    loaded = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in FORMATS if f"penstock.events.formats.{name}" in loaded] == []
