import datetime as dt
import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, InvalidSchema
from penstock.events.formats import Decoded, format_for
from penstock.events.schema import parse_schema
from tests.events.formats.rows import batches


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "order",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def written(schema: dict[str, Any], *rows: dict[str, Any], prefix: bytes = b"") -> pa.BinaryArray:
    values = []
    for row in rows:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        values.append(prefix + stream.getvalue())
    return pa.array(values, pa.binary())


def reader(columns: str, schema: dict[str, Any], **options: str) -> Any:
    return format_for("avro", parse_schema(columns), {"schema": json.dumps(schema), **options})


@given(batches())
def test_what_is_written_is_read_again(rows: pa.RecordBatch) -> None:
    form = format_for("avro", rows.schema)
    assert form.decode(form.encode(rows)) == Decoded(rows, None, [])


def test_a_writers_schema() -> None:
    schema = record(
        junk={"type": "array", "items": "int"},
        id="int",
        amount=["null", "long", "double"],
        state={"type": "enum", "name": "state", "symbols": ["NEW", "PAID"]},
        at={"type": "long", "logicalType": "timestamp-millis"},
        address={
            "type": "record",
            "name": "address",
            "fields": [{"name": "zip", "type": "int"}, {"name": "more", "type": "string"}],
        },
    )
    time = dt.datetime(2026, 11, 15, 10, 3, 0, 123000, dt.UTC)
    row = {"junk": [1], "id": 7, "amount": 5, "state": "PAID", "at": time}
    values = written(schema, {**row, "address": {"zip": 8, "more": "x"}})
    form = reader(
        "id long, amount double, state string, at timestamp, gone string, address struct<zip: int>",
        schema,
    )
    assert form.decode(values).rows.to_pylist() == [
        {"id": 7, "amount": 5.0, "state": "PAID", "at": time, "gone": None, "address": {"zip": 8}}
    ]


def test_refusals_say_why() -> None:
    schema = record(a="int", b="string")
    good = written(schema, {"a": 1, "b": "x"})[0].as_py()
    values = pa.array([good, None, good[:-1], good + b"!", b"", b"\xff" * 12], pa.binary())
    rows, kept, refused = reader("a int, b string", schema).decode(values)
    assert rows.to_pylist() == [{"a": 1, "b": "x"}]
    assert kept.tolist() == [0]
    assert [position for position, _ in refused] == [1, 2, 3, 4, 5]
    assert refused[0].detail == "the record has no value"
    assert refused[2].detail == "not Avro of the schema: 1 bytes are left over"
    assert all(detail.startswith("not Avro of the schema: ") for _, detail in refused[1:])


@pytest.mark.parametrize(
    ("columns", "schema", "good", "bad"),
    [
        ("c tinyint", record(c="int"), 127, 128),
        ("c double", record(c="long"), 2**53, 2**53 + 1),
        ("c array<tinyint>", record(c={"type": "array", "items": "int"}), [1], [1, -129]),
    ],
)
def test_numbers_that_do_not_fit(columns: str, schema: dict[str, Any], good: Any, bad: Any) -> None:
    values = written(schema, {"c": good}, {"c": bad}, {"c": good})
    rows, kept, refused = reader(columns, schema).decode(values)
    assert rows["c"].to_pylist() == [good, good]
    assert kept.tolist() == [0, 2]
    assert [position for position, _ in refused] == [1]
    assert refused[0].detail.startswith(f"c: does not fit {columns[2:]}: ")


@given(st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    rows = parse_schema(
        "a long, s string, l array<struct<m: map<string,int>>>, t timestamp, d date"
    )
    decoded = format_for("avro", rows).decode(pa.array([value], pa.binary()))
    assert len(decoded.rows) + len(decoded.refused) == 1


def test_the_prefix_of_a_registry() -> None:
    schema = record(a="int")
    form = reader("a int", schema, registry="confluent")
    values = written(schema, {"a": 1}, prefix=b"\x00\x00\x00\x00\x07").to_pylist()
    rows, _, refused = form.decode(pa.array([*values, b"\x02", b"\x01\x00\x00\x00\x07\x02"]))
    assert rows.to_pylist() == [{"a": 1}]
    assert [detail for _, detail in refused] == [
        "not Avro: the value does not begin as a registry's"
    ] * 2
    with pytest.raises(InvalidInput, match="only read"):
        form.encode(rows)
    with pytest.raises(InvalidInput, match="no registry 'glue'"):
        reader("a int", schema, registry="glue")


@pytest.mark.parametrize(
    ("columns", "schema", "said"),
    [
        ("c int", record(c="string"), "column c, int, cannot be read from Avro's string"),
        ("c int", record(c=["null", "long"]), "cannot be read from Avro's long"),
        ("c int NOT NULL", record(c=["null", "int"]), "cannot be read from Avro's null"),
        ("c int NOT NULL", record(d="int"), "no such field"),
        ("c timestamp", record(c="long"), "column c, timestamp, cannot be read from Avro's long"),
        (
            "c bigint",
            record(c={"type": "long", "logicalType": "timestamp-millis"}),
            "timestamp-mil",
        ),
        (
            "c array<struct<d: string>>",
            record(c={"type": "array", "items": {**record(d="bytes"), "name": "inner"}}),
            r"column c\[\].d, string, cannot be read from Avro's bytes",
        ),
        ("c int", "int", "not one of a record"),
        ("c int", {"type": "recor"}, "cannot be read"),
    ],
)
def test_schemas_that_do_not_fit(columns: str, schema: Any, said: str) -> None:
    with pytest.raises(InvalidSchema, match=said):
        reader(columns, schema)


def test_types_that_are_named_once_and_used_twice() -> None:
    place = {"type": "record", "name": "place", "fields": [{"name": "zip", "type": "int"}]}
    schema = record(a=place, b=["null", "place"])
    form = reader("a struct<zip: int>, b struct<zip: int>", schema)
    row = {"a": {"zip": 1}, "b": {"zip": 2}}
    assert form.decode(written(schema, row)).rows.to_pylist() == [row]
    with pytest.raises(InvalidSchema, match=r"column b\.zip, string"):
        reader("b struct<zip: string>", schema)


def test_a_schema_that_is_no_json() -> None:
    with pytest.raises(InvalidSchema, match="cannot be read"):
        format_for("avro", parse_schema("c int"), {"schema": "{"})


def test_columns_that_have_no_form() -> None:
    with pytest.raises(InvalidSchema, match="'a b'"):
        format_for("avro", parse_schema("`a b` int"))
    with pytest.raises(InvalidSchema, match="map<int,int>"):
        format_for("avro", parse_schema("m map<int,int>"))


def test_rows_that_the_writers_schema_cannot_hold() -> None:
    form = reader("a int", record(a="int"))
    rows = pa.RecordBatch.from_pydict({"a": pa.array([None], pa.int32())})
    with pytest.raises(InvalidInput, match="no form in the Avro schema"):
        form.encode(rows)
