"""Text: the value in UTF-8, in one string column."""

import pyarrow as pa

from penstock.errors import InvalidSchema
from penstock.events.formats.contract import Decoded, the_column
from penstock.events.formats.one_by_one import decode_each, decode_utf8


class TextFormat:
    def __init__(self, schema: pa.Schema) -> None:
        if schema.types != [pa.string()]:
            raise InvalidSchema(
                "the format text has one column, of type string", hint='such as "line string"'
            )
        self._schema = schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        if not values.null_count:
            try:
                texts = values.cast(pa.string())
                return Decoded(pa.RecordBatch.from_arrays([texts], schema=self._schema), None, [])
            except pa.ArrowInvalid:
                pass
        return decode_each(self._schema, values, lambda value: [decode_utf8(value)])

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        return the_column(rows).cast(pa.binary())
