"""Rows as JSON text, made by whole columns."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.formats.column_text import column_text, not_finite, present

_TO_ESCAPE = r'["\\\x00-\x1f]'


def encode_rows(rows: pa.RecordBatch) -> pa.BinaryArray:
    """An object for each row; a value that is null is written as null."""
    return _objects(rows.schema.names, rows.columns, rows.num_rows).cast(pa.binary())


def _objects(names: list[str], columns: list[pa.Array], rows: int) -> pa.StringArray:
    pieces: list[pa.Array | str] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        pieces += [f"{before}{json.dumps(name, ensure_ascii=False)}:", _texts(column)]
        before = ","
    if not pieces:
        return pa.array(["{}"] * rows, pa.string())
    return pc.binary_join_element_wise(*pieces, "}", "")


def _texts(values: pa.Array) -> pa.StringArray:
    return _values(values).fill_null("null")


def _values(values: pa.Array) -> pa.StringArray:
    """JSON for each value; null for nulls."""
    kind = values.type
    if pa.types.is_string(kind):
        return _strings(values)
    if pa.types.is_floating(kind):
        texts, special = column_text(values), not_finite(values)
        return texts if special is None else pc.if_else(special, _quoted(texts), texts)
    if pa.types.is_list(kind):
        return _lists(values, _texts(values.flatten()), "[", "]")
    if pa.types.is_map(kind):
        pairs = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        members = pc.binary_join_element_wise(*map(_texts, pairs.flatten().flatten()), ":")
        return _lists(pairs, members, "{", "}")
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return present(values, _objects(names, values.flatten(), len(values)))
    texts = column_text(values)
    is_word = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)
    return texts if is_word else _quoted(texts)


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _strings(values: pa.StringArray) -> pa.StringArray:
    quoted = _quoted(values)
    special = pc.match_substring_regex(values, _TO_ESCAPE).fill_null(False)
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in values.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


def _lists(values: pa.Array, members: pa.StringArray, opens: str, closes: str) -> pa.StringArray:
    places = np.zeros(len(values) + 1, np.int32)
    np.cumsum(pc.list_value_length(values).fill_null(0), out=places[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(places), members), ",")
    return present(values, pc.binary_join_element_wise(opens, joined, closes, ""))
