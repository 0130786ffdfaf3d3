import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, InvalidSchema
from penstock.events.formats import Decoded, Refused, format_for
from penstock.events.schema import parse_schema
from tests.events.formats.rows import SIMPLE, batches

FOUR = parse_schema("id long, name string, amount double, paid boolean")


def decode(*lines: str, schema: pa.Schema = FOUR, sep: str = ",") -> Decoded:
    values = pa.array([line.encode() for line in lines], pa.binary())
    return format_for("csv", schema, {"sep": sep}).decode(values)


def test_typed_columns() -> None:
    rows, kept, refused = decode(
        "1,Ada,2.5,true", '2,"a,""b"" and\nc",,false\r\n', '3,"",NaN,', "007,,1e3,\n"
    )
    assert (kept, refused) == (None, [])
    assert rows["id"].to_pylist() == [1, 2, 3, 7]
    assert rows["name"].to_pylist() == ["Ada", 'a,"b" and\nc', "", None]
    assert repr(rows["amount"].to_pylist()) == "[2.5, None, nan, 1000.0]"
    assert rows["paid"].to_pylist() == [True, False, None, None]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("1,Ada,2.5", "3 fields where the schema has 4"),
        ("1,Ada,2.5,true,", "5 fields where the schema has 4"),
        ("", "1 fields where the schema has 4"),
        ("x,,,", 'id: "x" is not bigint'),
        (" 1,,,", 'id: " 1" is not bigint'),
        ("1.0,,,", "id: 1.0 is not bigint"),
        (",,much,", 'amount: "much" is not double'),
        (",,,yes", 'paid: "yes" is not boolean'),
        ('1,"Ada,2.5,true', "not CSV: field 2 has a quote or a line's end astray"),
        ('1,A"da,2.5,true', "not CSV: field 2 has a quote or a line's end astray"),
        ('1,"Ada"x,2.5,true', "not CSV: field 2 has a quote or a line's end astray"),
        ("1,A\nda,2.5,true", "not CSV: field 2 has a quote or a line's end astray"),
    ],
)
def test_refusals_say_why(line: str, detail: str) -> None:
    rows, kept, refused = decode("1,,,", line, "2,,,")
    assert refused == [Refused(1, detail)]
    assert rows["id"].to_pylist() == [1, 2]
    assert kept is not None
    assert kept.tolist() == [0, 2]


def test_values_that_are_none_or_no_text() -> None:
    values = pa.array([None, b"\xff,,,"], pa.binary())
    assert format_for("csv", FOUR).decode(values).refused == [
        Refused(0, "the record has no value"),
        Refused(1, "not UTF-8 at byte 0"),
    ]


@given(
    batches(st.sampled_from(sorted(SIMPLE, key=str))),
    st.sampled_from([",", ";", "\t", "|", "^", "é"]),
)
def test_what_is_written_is_read_again(rows: pa.RecordBatch, sep: str) -> None:
    form = format_for("csv", rows.schema, {"sep": sep})
    assert form.decode(form.encode(rows)) == Decoded(rows, None, [])


def test_form_of_what_is_written() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"id": [1, 2], "name": ['a "b", c', ""], "amount": [0.5, math.inf], "paid": [True, None]},
        schema=FOUR,
    )
    assert format_for("csv", FOUR).encode(rows).to_pylist() == [
        b'1,"a ""b"", c",0.5,true',
        b'2,"",Infinity,',
    ]


@pytest.mark.parametrize("sep", ["", '"', "\n", "\r", "ab"])
def test_separators_that_cannot_be(sep: str) -> None:
    with pytest.raises(InvalidInput, match="separated"):
        decode(sep=sep)


def test_columns_that_have_no_form() -> None:
    with pytest.raises(InvalidSchema, match="'tags', array<string>"):
        decode(schema=parse_schema("id long, tags array<string>"))
