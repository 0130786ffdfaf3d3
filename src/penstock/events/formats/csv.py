"""CSV: one line a value, its fields in the order of the columns, quoted as RFC 4180 says.

A field that is empty is null, and "" in quotes an empty string. Values are written and refused as
in JSON; columns of arrays, maps and structs there are none.
"""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput, InvalidSchema
from penstock.events.formats.column_text import column_text
from penstock.events.formats.contract import Decoded
from penstock.events.formats.fitting import NUMBER, Misfit, Number, fit_row
from penstock.events.formats.one_by_one import decode_each, decode_utf8
from penstock.events.schema import type_text

_FLAGS = {"true": True, "false": False}


class CsvFormat:
    def __init__(self, schema: pa.Schema, sep: str = ",") -> None:
        if len(sep) != 1 or sep in '"\r\n':
            raise InvalidInput(
                f"fields cannot be separated by {sep!r}",
                hint="one character, other than a quote or the end of a line",
            )
        for field in schema:
            if pa.types.is_nested(field.type):
                raise InvalidSchema(
                    f"column {field.name!r}, {type_text(field.type)}, has no form in csv",
                    hint="the format json has one",
                )
        mark = re.escape(sep)
        self._schema = schema
        self._sep = sep
        self._fit = fit_row(schema)
        self._field = re.compile(f'(?:"((?:[^"]|"")*)"|([^"{mark}\r\n]*))({mark}|\r?\n?\\Z)')
        self._special = f'[{mark}"\r\n]|^$'
        self._numeric = [
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)
            for kind in schema.types
        ]
        self._flags = [pa.types.is_boolean(kind) for kind in schema.types]

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return decode_each(self._schema, values, self._row)

    def _row(self, value: bytes) -> list[Any]:
        cells = self._cells(decode_utf8(value))
        if len(cells) != len(self._schema):
            raise Misfit(f"{len(cells)} fields where the schema has {len(self._schema)}")
        for column, cell in enumerate(cells):
            if self._numeric[column] and cell and NUMBER.fullmatch(cell):
                cells[column] = Number(cell)
            elif self._flags[column] and cell:
                cells[column] = _FLAGS.get(cell, cell)
        return self._fit(cells)

    def _cells(self, line: str) -> list[Any]:
        cells: list[str | None] = []
        at, more = 0, True
        while more:
            found = self._field.match(line, at)
            if not found:
                raise Misfit(f"not CSV: field {len(cells) + 1} has a quote or a line's end astray")
            quoted, plain, after = found.groups()
            cells.append((plain or None) if quoted is None else quoted.replace('""', '"'))
            at, more = found.end(), after == self._sep
        return cells

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        texts = [self._quoted(column_text(column)).fill_null("") for column in rows.columns]
        return pc.binary_join_element_wise(*texts, self._sep).cast(pa.binary())

    def _quoted(self, texts: pa.StringArray) -> pa.StringArray:
        doubled = pc.replace_substring(texts, '"', '""')
        quoted = pc.binary_join_element_wise('"', doubled, '"', "")
        return pc.if_else(pc.match_substring_regex(texts, self._special), quoted, texts)
