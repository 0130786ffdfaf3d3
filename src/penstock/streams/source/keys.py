"""The keys of records as columns of rows: how upserts name the row that they replace.

One column of text or bytes is the key as it is; one of another type is its JSON text; several are
a JSON object. So a key that a person writes with any Kafka client is what it looks like.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.formats import Decoded, Refused, format_for

_NO_KEY = "the record has neither a value nor a key, so nothing is deleted"


def encode_keys(rows: pa.RecordBatch, key: Sequence[str]) -> pa.BinaryArray:
    chosen = rows.select(list(key))
    if len(key) == 1:
        column = chosen.column(0)
        if _is_plain(column.type):
            return column.cast(pa.binary())
    texts = format_for("json", chosen.schema).encode(chosen)
    if len(key) > 1:
        return texts
    opening = len(f'{{"{key[0]}":'.encode())
    return pc.binary_slice(texts, opening, -1)


def key_rows(keys: pa.BinaryArray, schema: pa.Schema, key: Sequence[str]) -> Decoded:
    """Rows with nothing but the columns of their keys."""
    fields = pa.schema([schema.field(name) for name in key])
    present = keys.is_valid().to_numpy(zero_copy_only=False)
    refused = [Refused(int(place), _NO_KEY) for place in np.flatnonzero(~present)]
    if len(key) == 1 and _is_plain(fields.field(0).type):
        found = format_for("bytes" if pa.types.is_binary(fields.field(0).type) else "text", fields)
        decoded = found.decode(keys.drop_null())
    else:
        texts = keys.drop_null()
        if len(key) == 1:
            opening = pa.scalar(f'{{"{key[0]}":'.encode(), pa.binary())
            texts = pc.binary_join_element_wise(opening, texts, pa.scalar(b"}"), pa.scalar(b""))
        decoded = format_for("json", fields).decode(texts)
    places = np.flatnonzero(present)
    refused += [Refused(int(places[place]), f"its key: {why}") for place, why in decoded.refused]
    kept = places if decoded.kept is None else places[decoded.kept]
    arrays = [
        decoded.rows[field.name]
        if field.name in key
        else pa.nulls(decoded.rows.num_rows, field.type)
        for field in schema
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Decoded(rows, kept, sorted(refused))


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
