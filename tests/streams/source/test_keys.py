import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.schema import parse_schema
from penstock.streams.source.keys import encode_keys, key_rows

SCHEMA = parse_schema(
    'id long, name string, raw binary, price decimal(10, 2), ok boolean, at timestamp, `a"b` long'
)


def keys(rows: list[dict[str, Any]], *key: str) -> pa.BinaryArray:
    return encode_keys(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), key)


@pytest.mark.parametrize(
    ("row", "key", "written"),
    [
        ({"name": "Zoë"}, ("name",), "Zoë".encode()),
        ({"name": ""}, ("name",), b""),
        ({"raw": b"\xff\x00"}, ("raw",), b"\xff\x00"),
        ({"name": None}, ("name",), b'{"name":null}'),
        ({"raw": None}, ("raw",), b'{"raw":null}'),
        ({"id": None}, ("id",), b"null"),
        ({"id": 7}, ("id",), b"7"),
        ({"ok": True}, ("ok",), b"true"),
        ({"price": Decimal("1.50")}, ("price",), b"1.50"),
        ({'a"b': 3}, ('a"b',), b"3"),
        ({"id": 7, "name": "x"}, ("id", "name"), b'{"id":7,"name":"x"}'),
        ({"id": 7, "name": "x"}, ("name", "id"), b'{"name":"x","id":7}'),
    ],
)
def test_a_key_is_what_it_looks_like(
    row: dict[str, Any], key: tuple[str, ...], written: bytes
) -> None:
    assert keys([row], *key).to_pylist() == [written]
    found = key_rows(pa.array([written], pa.binary()), SCHEMA, key)
    assert (found.refused, found.rows.schema) == ([], SCHEMA)
    assert found.rows.to_pylist() == [{**dict.fromkeys(SCHEMA.names), **row}]


NUMBERS = pa.schema(
    {
        "d": pa.float64(),
        "f": pa.float32(),
        "n": pa.struct({"x": pa.float64(), "y": pa.list_(pa.float32())}),
        "t": pa.string(),
    }
)
_OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (math.nan, _OTHER_NAN), (math.inf, math.inf)]
)
@pytest.mark.parametrize("key", [("d",), ("f",), ("n",), ("d", "t"), ("t", "f", "n")])
def test_numbers_that_are_equal_as_keys_are_one_key(
    one: float, other: float, key: tuple[str, ...]
) -> None:
    rows = [
        {"d": number, "f": number, "n": {"x": number, "y": [None, number]}, "t": "x"}
        for number in (one, other)
    ]
    written = encode_keys(pa.RecordBatch.from_pylist(rows, schema=NUMBERS), key)
    assert written[0] == written[1]
    found = key_rows(written, NUMBERS, key)
    assert not found.refused
    expected = {name: rows[0][name] for name in key}
    assert repr(found.rows.select(list(key)).to_pylist()) == repr([expected] * 2)


values = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(),
        "raw": st.none() | st.binary(),
        "price": st.none() | st.decimals(-(10**6), 10**6, places=2),
        "ok": st.none() | st.booleans(),
    }
)


@given(
    st.lists(values, min_size=1, max_size=5),
    st.lists(st.sampled_from(["id", "name", "raw", "price", "ok"]), min_size=2, unique=True),
)
def test_keys_of_several_columns_come_back(rows: list[dict[str, Any]], key: list[str]) -> None:
    found = key_rows(keys(rows, *key), SCHEMA, key)
    assert not found.refused
    assert found.rows.select(key).to_pylist() == [{name: row[name] for name in key} for row in rows]


@pytest.mark.parametrize(
    ("key", "written", "detail"),
    [
        (("id",), None, "neither a value nor a key"),
        (("id",), b"seven", "its key: not JSON"),
        (("id",), b'"7"', 'its key: "7" is not'),
        (("id",), b'7,"key":8', "its key: not JSON"),
        (("id",), b"", "its key: not JSON"),
        (("name",), b"\xff", "its key"),
        (("id", "name"), b"7", "its key: not a JSON object"),
    ],
)
def test_what_is_no_key(key: tuple[str, ...], written: bytes | None, detail: str) -> None:
    good = keys([{"id": 1, "name": "x"}], *key).to_pylist()[0]
    written_keys = pa.array([good, written, good, None], pa.binary())
    found = key_rows(written_keys, SCHEMA, key)
    assert [place for place, _ in found.refused] == [1, 3]
    assert detail in found.refused[0].detail
    assert found.kept is not None
    assert found.kept.tolist() == [0, 2]
    assert found.rows.num_rows == 2
