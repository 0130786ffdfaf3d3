"""Bytes: the value as it is, in one binary column."""

import pyarrow as pa

from penstock.errors import InvalidSchema
from penstock.events.formats.contract import Decoded, the_column, without_nulls


class BytesFormat:
    def __init__(self, schema: pa.Schema) -> None:
        if schema.types != [pa.binary()]:
            raise InvalidSchema(
                "the format bytes has one column, of type binary", hint='such as "value binary"'
            )
        self._schema = schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        present, kept, refused = without_nulls(values)
        rows = pa.RecordBatch.from_arrays(present.columns, schema=self._schema)
        return Decoded(rows, kept, refused)

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        return the_column(rows)
