import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.events.formats import Decoded, Refused, format_for, json_loops
from penstock.events.formats.json import JsonFormat
from penstock.events.formats.one_by_one import decode_each
from penstock.events.schema import parse_schema
from tests.events.formats.rows import batches

ORDERS = "id long, customer int, amount double, at timestamp, country string, paid boolean"
ORDER = (
    b'{"id":123456,"customer":4711,"amount":19.99,"at":"2026-11-15T10:03:00.123Z",'
    b'"country":"DE","paid":true}'
)


def decode(schema: str, *values: bytes | None) -> Decoded:
    decoded = format_for("json", parse_schema(schema)).decode(pa.array(values, pa.binary()))
    decoded.rows.validate(full=True)
    assert decoded.rows.schema == parse_schema(schema)
    return decoded


def one(kind: str, text: str | bytes) -> Any:
    """What a member of this text is read as; a Refused when it is refused."""
    content = text if isinstance(text, bytes) else text.encode()
    rows, _, refused = decode(f"c {kind}", b'{"c":' + content + b"}")
    return refused[0].detail if refused else rows.to_pylist()[0]["c"]


def test_typed_columns() -> None:
    rows, kept, refused = decode(ORDERS, ORDER, b"{}")
    assert (kept, refused) == (None, [])
    order = {
        "id": 123456,
        "customer": 4711,
        "amount": 19.99,
        "at": dt.datetime(2026, 11, 15, 10, 3, 0, 123000, dt.UTC),
        "country": "DE",
        "paid": True,
    }
    assert rows.to_pylist() == [order, dict.fromkeys(order)]


def test_refused_rows_leave_the_others_in_place() -> None:
    rows, kept, refused = decode(
        ORDERS,
        ORDER,
        None,
        b'{"id": 1, "amount": "much"}',
        b'{"\\u0069d": 7}',  # read one by one
        b"\xff",
        b'{"id":2',
        b'{"id":8}',
    )
    assert rows["id"].to_pylist() == [123456, 7, 8]
    assert kept is not None
    assert kept.tolist() == [0, 3, 6]
    assert kept.dtype == np.int64
    assert refused == [
        Refused(1, "the record has no value"),
        Refused(2, 'amount: "much" is not double'),
        Refused(4, "not UTF-8 at byte 0"),
        Refused(5, "not JSON: Expecting ',' delimiter at character 7"),
    ]


def test_all_refused_and_none_there() -> None:
    rows, kept, refused = decode(ORDERS, b"", b" ")
    assert (len(rows), len(refused)) == (0, 2)
    assert kept is not None
    assert kept.tolist() == []
    assert decode(ORDERS).kept is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "-0", 0),
        ("tinyint", "-128", -128),
        ("smallint", "32767", 32767),
        ("int", "-2147483648", -(2**31)),
        ("double", "12", 12.0),
        ("double", "1E3", 1000.0),
        ("double", "-1.5e-3", -0.0015),
        ("double", "1e-400", 0.0),
        ("double", "123456789012345678901234567890", 123456789012345678901234567890.0),
        ("double", "1.7976931348623157e308", 1.7976931348623157e308),
        ("double", '"Infinity"', math.inf),
        ("double", "Infinity", math.inf),
        ("float", "-Infinity", -math.inf),
        ("array<double>", '[1, -Infinity, "Infinity"]', [1.0, -math.inf, math.inf]),
        ("float", "3.4028235e38", 3.4028234663852886e38),
        ("float", "0.1", float(np.float32(0.1))),
        ("boolean", "false", False),
        ("string", '"\\u00e9\\n\\"\\\\\\/\\b\\f\\r\\t\\ud83d\\ude00"', 'é\n"\\/\b\f\r\t😀'),
        ("string", '"é€😀"', "é€😀"),
        ("string", '""', ""),
        ("binary", '"AAH/"', b"\x00\x01\xff"),
        ("date", '"2024-02-29"', dt.date(2024, 2, 29)),
        ("decimal(10,2)", "19.990", Decimal("19.99")),
        ("decimal(10,2)", "-19.9", Decimal("-19.90")),
        ("decimal(4,2)", "99.99", Decimal("99.99")),
        ("decimal(18,0)", "9" * 18, Decimal("9" * 18)),
        ("decimal(10,2)", '"-0.5"', Decimal("-0.50")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(10,2)", "12e3", Decimal("12000.00")),
        ("timestamp", "1763200980123", dt.datetime(2025, 11, 15, 10, 3, 0, 123000, dt.UTC)),
        ("timestamp_ntz", '"2026-11-15 10:03"', dt.datetime(2026, 11, 15, 10, 3)),  # noqa: DTZ001
        ("array<int>", " [ 1 , null , 3 ] ", [1, None, 3]),
        ("array<array<string>>", '[["a"],[],null]', [["a"], [], None]),
        ("map<string,double>", '{"a":1,"b":null}', [("a", 1.0), ("b", None)]),
        ("struct<a: int, b: string>", '{"b":"x","z":[{}]}', {"a": None, "b": "x"}),
    ],
)
def test_values(kind: str, text: str, value: Any) -> None:
    assert one(kind, text) == value


@pytest.mark.parametrize("text", ['"NaN"', "NaN"])
def test_nan_with_quotes_and_without(text: str) -> None:
    assert math.isnan(one("double", text))
    assert math.isnan(one("array<float>", f"[1,{text}]")[1])


@pytest.mark.parametrize(
    ("kind", "text", "detail"),
    [
        ("long", '"12"', 'c: "12" is not bigint'),
        ("long", "1.0", "c: 1.0 is not bigint"),
        ("long", "1e2", "c: 1e2 is not bigint"),
        ("long", "true", "c: true is not bigint"),
        ("long", "{}", "c: an object is not bigint"),
        ("long", "9223372036854775808", "c: 9223372036854775808 is out of the range of bigint"),
        ("long", "-9223372036854775809", "c: -9223372036854775809 is out of the range of bigint"),
        ("long", "9" * 5000, f"c: {'9' * 40} is out of the range of bigint"),
        ("tinyint", "128", "c: 128 is out of the range of tinyint"),
        ("double", "1e309", "c: 1e309 is out of the range of double"),
        ("double", '"1.5"', 'c: "1.5" is not double'),
        ("double", '"nan"', 'c: "nan" is not double'),
        ("double", "Nan", "not JSON: Expecting value at character 5"),
        ("long", "NaN", "c: NaN is not bigint"),
        ("string", "Infinity", "c: Infinity is not string"),
        ("decimal(4,2)", "-Infinity", "c: -Infinity is not decimal(4,2)"),
        ("float", "3.5e38", "c: 3.5e38 is out of the range of float"),
        ("boolean", "1", "c: 1 is not boolean"),
        ("boolean", '"true"', 'c: "true" is not boolean'),
        ("string", "1", "c: 1 is not string"),
        ("string", "[]", "c: an array is not string"),
        ("string", '"\\ud800"', "c: half of a surrogate pair is no character"),
        ("string", '"' + "x" * 50, "not JSON: Unterminated string starting at at character 5"),
        ("long", '"' + "x" * 50 + '"', f'c: "{"x" * 38}… is not bigint'),
        ("binary", '"AAH"', "c: the text is not base64"),
        ("date", '"2023-02-29"', 'c: "2023-02-29" is not date'),
        ("date", "5", "c: 5 is not date"),
        ("decimal(4,2)", "100", "c: 100 does not fit decimal(4,2)"),
        ("decimal(4,2)", "1.999", "c: 1.999 does not fit decimal(4,2)"),
        ("decimal(4,2)", '"NaN"', 'c: "NaN" is not decimal(4,2)'),
        ("decimal(4,2)", "1e999999999", "c: 1e999999999 does not fit decimal(4,2)"),
        ("timestamp", '"abc"', 'c: "abc" is not timestamp'),
        ("timestamp", "1.5", "c: 1.5 is not timestamp"),
        ("timestamp", "9" * 18, f"c: {'9' * 18} is no time in milliseconds, years 1 to 9999"),
        (
            "timestamp_ntz",
            '"2026-11-15T10:03Z"',
            'c: "2026-11-15T10:03Z" has an offset, which timestamp_ntz has not',
        ),
        ("array<int>", '[1,"2"]', 'c[1]: "2" is not int'),
        ("array<int>", "{}", "c: an object is not array<int>"),
        ("map<string,int>", '{"a":[]}', "c['a']: an array is not int"),
        ("struct<a: struct<b: int>>", '{"a":{"b":true}}', "c.a.b: true is not int"),
        ("long NOT NULL", "null", "c: is missing or null, where the schema says NOT NULL"),
        (
            "struct<a: int NOT NULL>",
            "{}",
            "c.a: is missing or null, where the schema says NOT NULL",
        ),
        ("string", b'"\xed\xa0\x80"', "not UTF-8 at byte 6"),
        ("string", '"a\nb"', "not JSON: Invalid control character at at character 7"),
    ],
)
def test_refusals_say_why(kind: str, text: str | bytes, detail: str) -> None:
    assert one(kind, text) == detail


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "1", "null", '"{}"', "{", "{}{}", "{} x", '{"c":1,}', "{'c':1}", "{,}"),
        *('{"c":01}', '{"c":1.}', '{"c":.5}', '{"c":+1}', '{"c":1e}', '{"c":-}', '{"c":nul}'),
        *('{"x":[1,]}', '{"x":[,1]}', '{"x":[1 2]}', '{"x":{"y"}}', '{"x":[}', '{"x":"\\x"}'),
        *('{"x":"\\u12g4"}', '{"x":tru}', '{"x":[1}}', '{"x":{"y":1]}', '{"c" 1}'),
        *("\ufeff{}", '{"c":1}\x00'),
    ],
)
def test_what_is_no_object_of_json(text: str) -> None:
    assert decode("c double", text.encode()).refused


@pytest.mark.parametrize("depth", [3, 63, 64, 65, 100_000])
def test_depth(depth: int) -> None:
    value = b'{"x":' + b"[" * depth + b"]" * depth + b',"c":1}'
    rows, _, refused = decode("c long", value)
    assert rows["c"].to_pylist() == ([] if refused else [1])
    assert bool(refused) == (depth == 100_000)
    assert all(detail == "JSON that is nested too deep" for _, detail in refused)


def test_printed_with_blanks_and_ends_of_lines() -> None:
    text = json.dumps({"c": [1, 2], "id": 5, "s": "x"}, indent=2).replace("\n", "\r\n\t")
    rows, _, _ = decode("id long, c array<int>, s string", f"\n {text} \n".encode())
    assert rows.to_pylist() == [{"id": 5, "c": [1, 2], "s": "x"}]


def test_the_last_of_two_members_counts() -> None:
    values = (b'{"a":1,"a":null}', b'{"a":null,"a":2}', b'{"a":"x","a":3}', b'{"a":4,"a":"x"}')
    rows, _, refused = decode("a long", *values)
    assert rows["a"].to_pylist() == [None, 2, 3]
    assert [position for position, _ in refused] == [3]


def test_names_of_columns_are_matched_whole() -> None:
    rows, _, _ = decode(
        "a int, ab int, `ä b` int, A int", '{"ä b":3,"ab":2,"A":4,"a":1,"abc":9,"":8}'.encode()
    )
    assert rows.to_pylist() == [{"a": 1, "ab": 2, "ä b": 3, "A": 4}]


@pytest.mark.parametrize("name", ['a"', '"', "a\\", "a\n", '","b', 'a":1,"b'])
def test_names_of_columns_that_json_escapes(name: str) -> None:
    schema = f"`{name}` int"
    assert decode(schema, json.dumps({name: 1}).encode()).rows.to_pylist() == [{name: 1}]
    rows, _, refused = decode(schema, f'{{"{name}":1}}'.encode())
    assert refused or rows.to_pylist() == [{name: None}]


def test_a_part_of_a_larger_array() -> None:
    values = pa.array([b"junk", None, b'{"c":1}', b'{"c":"x"}', b'{"c":2}', b"\xff"], pa.binary())
    rows, kept, refused = JsonFormat(parse_schema("c long")).decode(values[2:5])
    assert rows["c"].to_pylist() == [1, 2]
    assert kept is not None
    assert kept.tolist() == [0, 2]
    assert refused == [Refused(1, 'c: "x" is not bigint')]


@given(batches())
def test_what_is_written_is_read_again(rows: pa.RecordBatch) -> None:
    form = JsonFormat(rows.schema)
    values = form.encode(rows)
    for value in values.to_pylist():
        json.loads(value, parse_constant=pytest.fail)
    assert form.decode(values) == Decoded(rows, None, [])


def test_form_of_what_is_written() -> None:
    schema = parse_schema(
        "i int, x double, s string, t timestamp, l timestamp_ntz, d decimal(6,2), b binary,"
        "day date, f boolean, a array<string>, m map<string,int>, r struct<`x y`: float>"
    )
    time = dt.datetime(2026, 11, 15, 10, 3, 0, 0, dt.UTC)
    rows = pa.RecordBatch.from_pylist(
        [
            {
                "i": 1,
                "x": math.nan,
                "s": 'é"\n',
                "t": time,
                "l": time.replace(microsecond=120000, tzinfo=None),
                "d": Decimal("1.50"),
                "b": b"\x00\xff",
                "day": time.date(),
                "f": True,
                "a": ["x", None],
                "m": [("k", None)],
                "r": {"x y": 1.5},
            },
            {"t": time.replace(microsecond=1), "x": -math.inf},
        ],
        schema=schema,
    )
    first, second = JsonFormat(schema).encode(rows).to_pylist()
    assert first.decode() == (
        '{"i":1,"x":"NaN","s":"é\\"\\n","t":"2026-11-15T10:03:00Z","l":"2026-11-15T10:03:00.120",'
        '"d":1.50,"b":"AP8=","day":"2026-11-15","f":true,"a":["x",null],"m":{"k":null},'
        '"r":{"x y":1.5}}'
    )
    assert second.startswith(
        b'{"i":null,"x":"-Infinity","s":null,"t":"2026-11-15T10:03:00.000001Z","l":null,"d":null,'
    )


def exactly(schema: pa.Schema, values: list[bytes]) -> Decoded:
    """The same without compiled code."""
    return decode_each(schema, pa.array(values, pa.binary()), JsonFormat(schema)._row)


FLAT = parse_schema(
    "a long, b double, c string, d timestamp, e boolean, f tinyint, g float, h timestamp_ntz,"
    "i date, j decimal(9,2), k decimal(18,18), l decimal(20,2)"
)
UNUSUAL = [
    *("0", "-0", "-0.0", "1.0", "12e-1", "1e400", "1E-400", "2.5E+2", "0.1", "1e22", "1e23"),
    *("9007199254740993", "9007199254740993.0", "179769313486231580793e289", "4.9e-324"),
    *("2.2250738585072011e-308", "9223372036854775807", "9223372036854775808", "1e38", "1e-45"),
    *("true", "false", "null", "nul", "[]", "{}", '[{"a":[null,1.5e3,"x"]}]', '{"a":1,"a":2}'),
    *('""', '"\\u0041"', '"\\ud83d\\ude00"', '"\\udc00"', '"\\u00zz"', '"\\', '"a\tb"', "01"),
    *(
        '"2026-11-15T10:03:00.123Z"',
        '"2026-11-15 10:03:00+01:00"',
        '"2026-11-15"',
        "1763200980",
        '"1.5"',
        "1.50",
        "1.500",
    ),
    *('"NaN"', '"Infinity"', "NaN", "-", "--1", "+1", "1.", "1_0", " 7 ", "\n7", "127", "-129"),
]
characters = st.characters(exclude_categories=["Cs"])
texts = st.one_of(
    st.sampled_from(UNUSUAL),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers().map(str),
    st.text(max_size=5).map(json.dumps),
    st.text(characters, max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.text("0123456789.eE+-", max_size=30),
)
members = st.lists(
    st.tuples(st.sampled_from([*FLAT.names, "x", "\\u0061", "é", ""]), texts), max_size=5
)
objects = members.map(
    lambda pairs: "{" + ",".join(f'"{name}":{text}' for name, text in pairs) + "}"
).map(lambda text: text.encode(errors="replace"))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An object with a byte changed, put in or taken away."""
    value = bytearray(draw(objects))
    at = draw(st.integers(0, len(value) - 1))
    put = draw(st.sampled_from([b"", *(bytes([byte]) for byte in b'"\\{}[],: 0\xc3')]))
    value[at : at + draw(st.integers(0, 1))] = put
    return bytes(value)


@settings(max_examples=400)
@given(st.lists(objects | damaged() | st.binary(max_size=6), max_size=6))
@example([b'{"b":179769313486231580793e289}'])
def test_compiled_and_plain_reading_agree(values: list[bytes]) -> None:
    decoded = JsonFormat(FLAT).decode(pa.array(values, pa.binary()))
    expected = exactly(FLAT, values)
    decoded.rows.validate(full=True)
    assert decoded.refused == expected.refused
    assert same_bits(decoded.rows, expected.rows)
    for kept in (decoded.kept, expected.kept):
        assert (kept is None) == (not expected.refused)
    if decoded.kept is not None and expected.kept is not None:
        assert decoded.kept.tolist() == expected.kept.tolist()


def same_bits(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    return repr(left.to_pylist()) == repr(right.to_pylist())  # tells -0.0 from 0.0


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False).map(repr)
        | st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,3})?\Z"),
        max_size=20,
    )
)
@example(["1e-22", "1e-23", "1e-24", "1e22", "1e23", "9007199254740992", "9007199254740993"])
@example(["9007199254740993e-10", "8.5e-23", "12345678901234567890", "0.00000000000000000000001"])
@example(["1e300", "1e301", "-1.7976931348623157e308", "2e-290", "1e-291", "0e999", "-0"])
def test_doubles_are_what_python_reads(texts: list[str]) -> None:
    values = [b'{"x":%s}' % text.encode() for text in texts]
    rows, _, refused = decode("x double", *values)
    doubles = [float(text) for text in texts]
    assert repr(rows["x"].to_pylist()) == repr([x for x in doubles if math.isfinite(x)])
    assert len(refused) == sum(map(math.isinf, doubles))


def test_one_compilation_serves_all_sources() -> None:
    form = JsonFormat(parse_schema(ORDERS))
    values = pa.array([ORDER] * 3, pa.binary())
    content = bytearray(values.buffers()[2])
    mutable = pa.Array.from_buffers(
        pa.binary(), 3, [None, values.buffers()[1], pa.py_buffer(content)]
    )
    for some in (values, values[1:], mutable, pa.array([ORDER, None], pa.binary()), values[:0]):
        form.decode(some)
    assert len(cast(Any, json_loops.read_objects).signatures) == 1
    assert len(cast(Any, json_loops.copy_texts).signatures) == 1


def test_usual_objects_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonFormat, "_row", lambda *_: pytest.fail("read one by one"))
    values = (ORDER, b'{"country":"\\u00e9","unknown":{"a":[1,{}]},"amount":1.2345678901234567e-8}')
    rows, _, _ = decode(ORDERS, *values)
    assert rows["amount"].to_pylist() == [19.99, 1.2345678901234567e-8]
