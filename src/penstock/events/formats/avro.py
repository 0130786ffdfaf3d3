"""Avro: one datum a value, without a schema of its own.

The schema that the data was written with is the option `schema`; without it, it is made from the
columns, each of which may then be null. A column that the writer's schema does not have is null,
and a field that is no column is passed over.
"""

import json
import re
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from penstock.errors import InvalidInput, InvalidSchema
from penstock.events.formats.contract import Decoded
from penstock.events.formats.fitting import Misfit
from penstock.events.formats.one_by_one import decode_each
from penstock.events.schema import type_text

_REGISTRY_BYTES = 5  # a zero, and the number of the schema

_WRITTEN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}

_Named = dict[str, Any]  # the types that a schema names, by name

# Which of Avro's types a column can be read from, a logical type standing for the one below it.
_READ_AS = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "int long",
    "float": "int float",
    "double": "int long float double",
    "string": "string enum",
    "binary": "bytes fixed",
    "date": "date",
    "timestamp": "timestamp-millis timestamp-micros",
    "timestamp_ntz": "local-timestamp-millis local-timestamp-micros",
}


class AvroFormat:
    def __init__(self, columns: pa.Schema, *, schema: str = "", registry: str = "") -> None:
        if registry not in ("", "confluent"):
            raise InvalidInput(f"no registry {registry!r}", hint='the only one is "confluent"')
        self._schema = columns
        self._prefix = _REGISTRY_BYTES if registry else 0
        named: _Named = {}
        self._avro = _parse(schema or _record(columns, "row"), named)
        _check_record(self._avro, columns, "", named)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        try:
            return decode_each(self._schema, values, self._row)
        except (pa.ArrowException, OverflowError):  # some number is too large for its column
            return decode_each(self._schema, values, self._checked_row)

    def _checked_row(self, value: bytes) -> list[Any]:
        row = self._row(value)
        for field, cell in zip(self._schema, row, strict=True):
            try:
                pa.scalar(cell, field.type)
            except (pa.ArrowException, OverflowError) as wrong:
                raise Misfit(f"does not fit {type_text(field.type)}: {wrong}", field.name) from None
        return row

    def _row(self, value: bytes) -> list[Any]:
        if self._prefix and (len(value) < self._prefix or value[0]):
            raise Misfit("not Avro: the value does not begin as a registry's")
        stream = BytesIO(value)
        stream.seek(self._prefix)
        try:
            datum: Any = fastavro.schemaless_reader(stream, self._avro, None)
        except Exception as wrong:  # whatever foreign bytes lead to, they are refused
            raise Misfit(f"not Avro of the schema: {wrong!r}"[:200]) from None
        if left := len(value) - stream.tell():
            raise Misfit(f"not Avro of the schema: {left} bytes are left over")
        return [_pairs(datum.get(field.name), field.type) for field in self._schema]

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        if self._prefix:
            raise InvalidInput(
                "values for a schema registry cannot be written, only read",
                hint="leave the option registry out",
            )
        values = []
        for row in rows.to_pylist(maps_as_pydicts="strict"):
            stream = BytesIO()
            try:
                fastavro.schemaless_writer(stream, self._avro, row)
            except (ValueError, TypeError, OverflowError) as wrong:
                raise InvalidInput(
                    f"a row has no form in the Avro schema: {wrong!r}"[:300],
                    hint="the option schema decides which values can be written",
                ) from None
            values.append(stream.getvalue())
        return pa.array(values, pa.binary())


def _pairs(value: Any, kind: pa.DataType) -> Any:
    """The value with its maps as Arrow takes them."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return [(key, _pairs(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [_pairs(item, kind.value_type) for item in value]
    return {field.name: _pairs(value.get(field.name), field.type) for field in kind}


def _parse(schema: Any, named: _Named) -> Any:
    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        return fastavro.parse_schema(schema, named_schemas=named)
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as wrong:
        raise InvalidSchema(
            f"the Avro schema cannot be read: {wrong!r}"[:300], hint="Avro's JSON, of a record"
        ) from None


def _record(fields: Any, path: str) -> dict[str, Any]:
    """The Avro schema for some columns, records inside named by their path."""
    for field in fields:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", field.name):
            raise InvalidSchema(
                f"a column of Avro cannot be named {field.name!r}",
                hint="letters of ASCII, digits and _ are allowed",
            )
    written = [
        {"name": field.name, "type": _union(field, f"{path}_{field.name}")} for field in fields
    ]
    return {"type": "record", "name": path, "fields": written}


def _union(field: pa.Field, path: str) -> Any:
    written = _type(field.type, path)
    return ["null", written] if field.nullable else written


def _type(kind: pa.DataType, path: str) -> Any:
    if pa.types.is_decimal(kind):
        decimal = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **decimal}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _union(kind.value_field, path)}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _union(kind.item_field, path)}
    if pa.types.is_struct(kind):
        return _record(kind, path)
    if kind in _WRITTEN:
        return _WRITTEN[kind]
    raise InvalidSchema(f"{type_text(kind)} has no form in Avro", hint="keys of maps are strings")


def _check_record(avro: Any, fields: Any, path: str, named: _Named) -> None:
    """Raises InvalidSchema unless records of this Avro schema can be read as these columns."""
    if not isinstance(avro, dict) or avro["type"] != "record":
        raise InvalidSchema("the Avro schema is not one of a record", hint="a record of columns")
    written = {field["name"]: field["type"] for field in avro["fields"]}
    for field in fields:
        name = path + field.name
        if field.name in written:
            _check(written[field.name], field, name, named)
        elif not field.nullable:
            raise InvalidSchema(
                f"column {name} is NOT NULL, and the Avro schema has no such field",
                hint="leave NOT NULL out, or mend the name",
            )


def _check(avro: Any, field: pa.Field, path: str, named: _Named) -> None:
    branches = avro if isinstance(avro, list) else [avro]
    for branch in branches:
        _check_branch(named.get(str(branch), branch), field, path, named)


def _check_branch(avro: Any, field: pa.Field, path: str, named: _Named) -> None:
    kind = field.type
    name = avro
    if isinstance(avro, dict):
        name = avro.get("logicalType", avro["type"])
    if name == "null":
        fits = field.nullable
    elif pa.types.is_struct(kind) and name == "record":
        return _check_record(avro, kind, f"{path}.", named)
    elif pa.types.is_list(kind) and name == "array":
        return _check(avro["items"], kind.value_field, f"{path}[]", named)
    elif pa.types.is_map(kind) and name == "map":
        return _check(avro["values"], kind.item_field, f"{path}[]", named)
    elif pa.types.is_decimal(kind):
        fits = name == "decimal"
    else:
        fits = name in _READ_AS.get(type_text(kind), "").split()
    if not fits:
        raise InvalidSchema(
            f"column {path}, {type_text(kind)}, cannot be read from Avro's {name}",
            hint="the schema of the columns and the option schema must agree",
        )
    return None
