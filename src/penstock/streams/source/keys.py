"""The keys of records as columns of rows: how upserts name the row that they replace.

One column of text or bytes is the key as it is, and a JSON object of null where it is null; one of
another type is its JSON text; several are a JSON object. So a key that a person writes with any
Kafka client is what it looks like. Numbers that are equal as keys are the same text: -0.0 is
written as 0.0, and every NaN as "NaN".
"""

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.formats import Decoded, Refused, format_for
from penstock.streams.state.cells import key_values

_ALONE = "key"  # the name that the only column of a key has while it is in an object
_OPENING = f'{{"{_ALONE}":'.encode()
_NO_KEY = "the record has neither a value nor a key, so nothing is deleted"


def encode_keys(rows: pa.RecordBatch, key: Sequence[str]) -> pa.BinaryArray:
    columns = [key_values(rows.column(name)) for name in key]
    fields = [rows.schema.field(name) for name in key]
    chosen = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    if len(key) == 1:
        column = chosen.column(0)
        if _is_plain(column.type):
            return column.cast(pa.binary()).fill_null(_null_key(key[0]))
    if len(key) > 1:
        return format_for("json", chosen.schema).encode(chosen)
    alone = chosen.rename_columns([_ALONE])
    return pc.binary_slice(format_for("json", alone.schema).encode(alone), len(_OPENING), -1)


def key_rows(keys: pa.BinaryArray, schema: pa.Schema, key: Sequence[str]) -> Decoded:
    """Rows with nothing but the columns of their keys."""
    fields = pa.schema([schema.field(name) for name in key])
    present = keys.is_valid().to_numpy(zero_copy_only=False)
    refused = [Refused(int(place), _NO_KEY) for place in np.flatnonzero(~present)]
    if len(key) == 1 and _is_plain(fields.field(0).type):
        kind = "bytes" if pa.types.is_binary(fields.field(0).type) else "text"
        decoded = format_for(kind, fields).decode(keys.drop_null())
        column = decoded.rows.column(0)
        null = pa.scalar(_null_key(key[0])).cast(column.type)
        column = pc.if_else(pc.equal(column, null), pa.scalar(None, column.type), column)
        decoded = decoded._replace(rows=pa.RecordBatch.from_arrays([column], schema=fields))
    else:
        decoded = _from_json(keys.drop_null(), fields)
    places = np.flatnonzero(present)
    refused += [Refused(int(places[place]), f"its key: {why}") for place, why in decoded.refused]
    kept = places if decoded.kept is None else places[decoded.kept]
    found = dict(zip(key, decoded.rows.columns, strict=True))
    arrays = [
        found.get(field.name, pa.nulls(decoded.rows.num_rows, field.type)) for field in schema
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Decoded(rows, kept, sorted(refused))


def _from_json(texts: pa.BinaryArray, fields: pa.Schema) -> Decoded:
    if len(fields) > 1:
        return format_for("json", fields).decode(texts)
    alone = pa.schema([fields.field(0).with_name(_ALONE)])
    wrapped = pc.binary_join_element_wise(_OPENING, _one_value_each(texts), b"}", b"")
    rows, kept, refused = format_for("json", alone).decode(wrapped)
    return Decoded(
        rows, kept, [Refused(at, why.removeprefix(f"{_ALONE}: ")) for at, why in refused]
    )


def _one_value_each(texts: pa.BinaryArray) -> pa.BinaryArray:
    """The texts, but nothing for those that would add members to the object around them."""
    several = np.flatnonzero(pc.match_substring(texts, ",").to_numpy(zero_copy_only=False))
    wrong = np.zeros(len(texts), np.bool_)
    for place in several.tolist():
        try:
            json.loads(texts[place].as_py())
        except (ValueError, RecursionError):
            wrong[place] = True
    return pc.if_else(pa.array(wrong), b"", texts) if wrong.any() else texts


def _null_key(name: str) -> bytes:
    """A record's own null key would not do: without a value too, it would say nothing."""
    return json.dumps({name: None}, separators=(",", ":")).encode()


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
