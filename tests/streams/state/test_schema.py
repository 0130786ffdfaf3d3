from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidInput
from penstock.streams.state import StateSchema

KEYS = pa.schema({"id": pa.int64(), "at": pa.timestamp("us")})
VALUES = pa.schema({"total": pa.float64(), "seen": pa.list_(pa.string())})
SCHEMA = StateSchema(KEYS, VALUES)


def test_the_fingerprint_never_changes() -> None:
    """State that was written by another release is told from this one's by it."""
    assert SCHEMA.fingerprint == 0xB417A4B33C0433CF


@pytest.mark.parametrize(
    "other",
    [
        StateSchema(pa.schema([field.with_nullable(False) for field in KEYS]), VALUES),
        StateSchema(KEYS.with_metadata({"a": "b"}), VALUES),
        StateSchema(
            KEYS, VALUES.set(1, pa.field("seen", pa.list_(pa.field("element", pa.string()))))
        ),
    ],
    ids=["nullability", "metadata", "name of a list's elements"],
)
def test_what_does_not_change_values_does_not_change_the_schema(other: StateSchema) -> None:
    assert other.fingerprint == SCHEMA.fingerprint
    assert other.differs_from(SCHEMA) == ""


@pytest.mark.parametrize(
    ("keys", "values", "said"),
    [
        (
            {"id": pa.int32(), "at": pa.timestamp("us")},
            VALUES,
            "key 'id' was int64 and is now int32",
        ),
        (
            {"id": pa.int64(), "at": pa.timestamp("ms")},
            VALUES,
            "key 'at' was timestamp[us] and is now timestamp[ms]",
        ),
        ({"id": pa.int64()}, VALUES, "key 'at' (timestamp[us]) is gone"),
        (
            {"at": pa.timestamp("us"), "id": pa.int64()},
            VALUES,
            "key 'at' stands where key 'id' was",
        ),
        (
            KEYS,
            {"total": pa.float64(), "seen": pa.list_(pa.int8())},
            "value 'seen' was list<string> and is now list<int8>",
        ),
        (
            KEYS,
            {"total": pa.float64(), "seen": pa.list_(pa.string()), "n": pa.int8()},
            "value 'n' (int8) is new",
        ),
        (
            {"id": pa.int64()},
            {"at": pa.timestamp("us"), "total": pa.float64(), "seen": pa.list_(pa.string())},
            "key 'at' (timestamp[us]) is gone",
        ),
    ],
)
def test_the_field_that_changed_is_named(
    keys: dict[str, pa.DataType], values: dict[str, pa.DataType], said: str
) -> None:
    changed = StateSchema(pa.schema(keys), pa.schema(values))

    assert changed.differs_from(SCHEMA) == said
    assert changed.fingerprint != SCHEMA.fingerprint


DUE_VALUES = pa.schema({"total": pa.float64(), "at": pa.int64(), "then": pa.int64()})
DUE_KEYS = pa.schema({"id": pa.int64(), "pane": pa.int64()})


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {"due": "at"}, "due ('at') is new"),
        ({"due": "at"}, {"due": "then"}, "due was 'at' and is now 'then'"),
        ({"due": "at"}, {}, "due ('at') is gone"),
        ({}, {"spread": 1}, "spread (1) is new"),
        ({"spread": 0}, {"spread": 1}, "spread was 0 and is now 1"),
        ({"spread": 2}, {}, ""),
        ({"due": "at", "spread": 1}, {"due": "at", "spread": 1}, ""),
        ({}, {"copied": True}, "copied (True) is new"),
        ({"copied": "pane"}, {"copied": True}, "copied was 'pane' and is now True"),
        ({"copied": "pane"}, {"copied": "pane"}, ""),
    ],
)
def test_due_spread_and_copied_are_part_of_the_schema(
    before: dict[str, Any], now: dict[str, Any], said: str
) -> None:
    first, second = (StateSchema(DUE_KEYS, DUE_VALUES, **each) for each in (before, now))

    assert second.differs_from(first) == said
    assert (second.fingerprint == first.fingerprint) == (said == "")
    for schema in (first, second):
        read = StateSchema.of_file(schema.file_schema)
        assert (read.due, read.spread_keys) == (schema.due, schema.spread_keys)
        assert read.copied == schema.copied
        assert read.fingerprint == schema.fingerprint


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"due": "nix"}, "no value 'nix' of int64"),
        ({"due": "total"}, "no value 'total' of int64"),
        ({"due": "id"}, "no value 'id' of int64"),
        ({"spread": 3}, "by 3 of 2 keys"),
        ({"spread": -1}, "by -1 of 2 keys"),
        ({"copied": "total"}, "no key 'total' of integers"),
    ],
)
def test_a_due_spread_or_copied_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        StateSchema(DUE_KEYS, DUE_VALUES, **given)


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.string_view(),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.struct({"a": pa.binary_view()}),
    ],
    ids=str,
)
def test_a_layout_is_not_a_type_of_values(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInput, match="cast the column"):
        StateSchema(KEYS, pa.schema({"value": kind}))


@pytest.mark.parametrize(
    ("keys", "values", "said"),
    [
        ({}, {"n": pa.int8()}, "needs a key"),
        ({"id": pa.int8()}, {"id": pa.int8()}, "two columns named 'id'"),
        ({"id": pa.int8()}, {"(removed)": pa.int8()}, "two columns named"),
    ],
)
def test_columns_that_cannot_be(
    keys: dict[str, pa.DataType], values: dict[str, pa.DataType], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        StateSchema(pa.schema(keys), pa.schema(values))


def test_a_file_tells_the_schema() -> None:
    assert StateSchema.of_file(SCHEMA.file_schema).differs_from(SCHEMA) == ""
    assert StateSchema.of_file(SCHEMA.file_schema).fingerprint == SCHEMA.fingerprint
