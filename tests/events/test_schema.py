import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidSchema
from penstock.events.schema import parse_schema, schema_text

UTC = pa.timestamp("us", tz="UTC")

TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ltz": UTC,
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "dec(5)": pa.decimal128(5, 0),
    "numeric ( 38 , 38 )": pa.decimal128(38, 38),
    "array<array<int>>": pa.list_(pa.list_(pa.int32())),
    "map<string, array<double>>": pa.map_(pa.string(), pa.list_(pa.float64())),
    "struct<street: string, zip int NOT NULL>": pa.struct(
        [pa.field("street", pa.string()), pa.field("zip", pa.int32(), nullable=False)]
    ),
}


@pytest.mark.parametrize("text", TYPES)
def test_types(text: str) -> None:
    assert parse_schema(f"c {text}").field("c").type == TYPES[text]


@pytest.mark.parametrize("text", [text for text in TYPES if "struct" not in text])
def test_types_in_capitals(text: str) -> None:
    assert parse_schema(f"c {text.upper()}").field("c").type == TYPES[text]


def test_columns_with_names_in_quotes_nulls_and_comments() -> None:
    schema = parse_schema(
        """id: long NOT NULL COMMENT 'it\\'s "one"',
           `a ``b`` c` string not null,
           größe int comment "two
lines" """
    )
    assert schema.equals(
        pa.schema(
            [
                pa.field("id", pa.int64(), False, {"comment": 'it\'s "one"'}),
                pa.field("a `b` c", pa.string(), False),
                pa.field("größe", pa.int32(), True, {"comment": "two\nlines"}),
            ]
        ),
        check_metadata=True,
    )


@pytest.mark.parametrize(
    ("text", "said", "at"),
    [
        ("", "the end where a column's name", 0),
        ("id", "the end where a type", 2),
        ("id lang", "no type 'lang'", 3),
        ("id long,", "the end where a column's name", 8),
        ("id long name string", "'name' where a comma", 8),
        ("id long, id int", "two columns are named 'id'", 9),
        ("s struct<a: int, a: int>", "two columns are named 'a'", 17),
        ("s struct<>", "'>' where a column's name", 9),
        ("a array<int", "the end where '>'", 11),
        ("a array int", "'int' where '<'", 8),
        ("m map<string>", "'>' where ','", 12),
        ("d decimal(39, 2)", "no decimal(39, 2)", 2),
        ("d decimal(2, 3)", "no decimal(2, 3)", 2),
        ("d decimal(x)", "'x' where a number", 10),
        ("id long NOT", "the end where NULL", 11),
        ("id long COMMENT no", "'no' where a comment", 16),
        ("id long ; drop", "unexpected ';'", 8),
        ("id long COMMENT 'open", 'unexpected "\'"', 16),
        ("id long, `open int", "unexpected '`'", 9),
    ],
)
def test_points_at_what_is_wrong(text: str, said: str, at: int) -> None:
    with pytest.raises(InvalidSchema) as raised:
        parse_schema(text)
    message, line, pointer = raised.value.message.split("\n")
    assert said in message
    assert line == "  " + text
    assert pointer == "  " + " " * at + "^"
    assert "array<" in raised.value.hint


def test_points_into_the_line_at_fault() -> None:
    with pytest.raises(InvalidSchema) as raised:
        parse_schema("id long,\n  at tomorrow,\nx int")
    assert raised.value.message.split("\n")[1:] == ["    at tomorrow,", "       ^"]


kinds: st.SearchStrategy[pa.DataType] = st.recursive(
    st.sampled_from([kind for kind in TYPES.values() if not pa.types.is_nested(kind)])
    | st.tuples(st.integers(1, 38), st.integers(0, 38)).map(
        lambda both: pa.decimal128(max(both), min(both))
    ),
    lambda inner: (
        inner.map(pa.list_)
        | st.tuples(inner, inner).map(lambda both: pa.map_(*both))
        | st.deferred(lambda: fields).map(pa.struct)
    ),
    max_leaves=4,
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
comments = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(
    lambda text: {"comment": text}
)
fields: st.SearchStrategy[list[pa.Field]] = st.lists(
    st.builds(pa.field, names, kinds, st.booleans(), comments),
    min_size=1,
    max_size=4,
    unique_by=lambda field: field.name,
)


@given(fields)
def test_text_and_schema_say_the_same(columns: list[pa.Field]) -> None:
    schema = pa.schema(columns)
    assert parse_schema(schema_text(schema)).equals(schema, check_metadata=True)


@pytest.mark.parametrize("kind", [pa.uint8(), pa.large_string(), pa.timestamp("ns"), pa.null()])
def test_types_that_spark_does_not_have(kind: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match="no column can be of Arrow's type"):
        schema_text(pa.schema({"c": kind}))
