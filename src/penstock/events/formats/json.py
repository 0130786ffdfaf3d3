"""JSON: one object a value, its members the columns.

A member that is missing or null is null; one that is no column is passed over; of two with the
same name the last counts. A value that does not fit its column's type refuses the row: nothing is
rounded, cut or turned into null. Timestamps are ISO 8601, UTC where they name no offset, or
milliseconds since 1970; binary is base64; NaN, Infinity and -Infinity are strings of these names,
and are read without quotes too, as Python and others write them.

Usual objects are read by compiled code; those it leaves out are read one by one.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.column_loops import place_fields
from penstock.events.compiled import Bytes, Numbers, binary_parts, frozen
from penstock.events.formats import json_loops as kernels
from penstock.events.formats.contract import Decoded, Refused
from penstock.events.formats.fitting import Misfit, Number, fit_for, fit_row
from penstock.events.formats.json_text import encode_rows
from penstock.events.formats.one_by_one import decode_each, decode_utf8


class JsonFormat:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._fit = fit_row(schema)
        # A name that JSON escapes is left to the plain way; 0xFF is in no text.
        names = [
            name.encode() if json.dumps(name, ensure_ascii=False) == f'"{name}"' else b"\xff"
            for name in schema.names
        ]
        self._names = frozen(np.frombuffer(b"".join(names) or b" ", np.uint8))
        self._places = frozen(np.cumsum([0, *map(len, names)]))
        readings = [_reading(field.type) for field in schema]
        self._kinds = frozen(np.array([kind for kind, _ in readings], np.int64))
        self._bounds = frozen(np.array([bound for _, bound in readings], np.int64))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        usual, kept = self._read_usual(values)
        if len(kept) == len(values):
            return Decoded(usual, None, [])
        left = np.setdiff1d(np.arange(len(values)), kept, assume_unique=True)
        others, found, wrong = decode_each(self._schema, values.take(pa.array(left)), self._row)
        refused = [Refused(int(left[place]), detail) for place, detail in wrong]
        if not len(others):
            return Decoded(usual, kept, refused)
        kept = np.concatenate([kept, left if found is None else left[found]])
        order = np.argsort(kept)
        rows = pa.concat_batches([usual, others]).take(pa.array(order))
        return Decoded(rows, kept[order] if refused else None, refused)

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        return encode_rows(rows)

    def _read_usual(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, Numbers]:
        """The usual objects, and which values these are."""
        if values.null_count:
            values = values.fill_null(b"")
        values = _without(values, _not_utf8(values, 0))
        source, positions = binary_parts(values)
        columns, rows = len(self._schema), len(values)
        cells = np.zeros((columns, rows), np.int64)  # what is absent is not read, but converted
        sizes = np.empty((columns, rows), np.int64)
        marks = np.empty((columns, max(rows, 1)), np.uint8)
        kept = np.empty(rows, np.int64)
        found = kernels.read_objects(
            source,
            positions,
            self._names,
            self._places,
            self._kinds,
            self._bounds,
            cells,
            cells.view(np.float64),
            sizes,
            marks,
            kept,
        )
        kept = kept[:found]
        arrays: list[pa.Array] = []
        doubtful: set[int] = set()
        for column, field in enumerate(self._schema):
            reader = _Column(
                source, cells[column, :found], sizes[column, :found], marks[column, :found]
            )
            if not field.nullable:
                doubtful.update(np.flatnonzero(reader.marks == kernels.ABSENT).tolist())
            if self._kinds[column] == kernels.DECIMAL:
                doubtful.update(reader.not_below(10**field.type.precision))
            if self._kinds[column] == kernels.RAW:
                arrays.append(reader.raw(field.type, doubtful))
            else:
                arrays.append(reader.array(field.type))
        usual = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if doubtful:
            sure = np.setdiff1d(np.arange(found), np.array(sorted(doubtful)), assume_unique=True)
            usual, kept = usual.take(pa.array(sure)), kept[sure]
        return usual, kept

    def _row(self, value: bytes) -> list[Any]:
        members = _load(value)
        return self._fit(members.get(name) for name in self._schema.names)


def _load(value: bytes) -> dict[str, Any]:
    try:
        members = json.loads(
            decode_utf8(value),
            parse_int=Number,
            parse_float=Number,
            parse_constant=Number,
        )
    except json.JSONDecodeError as wrong:
        raise Misfit(f"not JSON: {wrong.msg} at character {wrong.pos}") from None
    except RecursionError:
        raise Misfit("JSON that is nested too deep") from None
    if not isinstance(members, dict):
        raise Misfit("not a JSON object")
    return members


def _reading(kind: pa.DataType) -> tuple[int, int]:
    """How the compiled code reads a type, and what bounds its numbers."""
    if pa.types.is_integer(kind):
        return kernels.INTEGER, 2 ** (kind.bit_width - 1) - 1
    if pa.types.is_floating(kind):
        # The power of ten from which on a number may be out of range.
        return kernels.REAL, 300 if kind.bit_width == 64 else 37
    if pa.types.is_decimal(kind) and kind.precision <= kernels.DECIMAL_DIGITS:
        return kernels.DECIMAL, kind.scale
    if pa.types.is_date32(kind):
        return kernels.DATE, 0
    if pa.types.is_timestamp(kind):
        return kernels.LOCAL_TIME if kind.tz is None else kernels.TIME, 0
    if pa.types.is_boolean(kind):
        return kernels.FLAG, 0
    if pa.types.is_string(kind):
        return kernels.TEXT, 0
    return kernels.RAW, 0


def _not_utf8(values: pa.BinaryArray, first: int) -> list[int]:
    """Positions of values that are not UTF-8, `first` being that of the first; found by halves."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) == 1:
            return [first]
        half = len(values) // 2
        return _not_utf8(values[:half], first) + _not_utf8(values[half:], first + half)
    return []


def _without(values: pa.BinaryArray, positions: list[int]) -> pa.BinaryArray:
    """The values with those at some positions emptied."""
    if not positions:
        return values
    emptied = np.zeros(len(values), np.bool_)
    emptied[positions] = True
    return pc.if_else(pa.array(emptied), pa.scalar(b""), values)


class _Column:
    """What was noted of a column's values."""

    def __init__(self, source: Bytes, cells: Numbers, sizes: Numbers, marks: kernels.Marks) -> None:
        self._source = source
        self._cells = cells
        self._sizes = sizes
        self.marks = marks

    def array(self, kind: pa.DataType) -> pa.Array:
        if pa.types.is_string(kind):
            return self._texts(kind)
        cells: Any = self._cells
        if pa.types.is_boolean(kind):
            cells = np.packbits(cells == 1, bitorder="little")
        elif pa.types.is_floating(kind):
            cells = self._reals().astype(f"f{kind.bit_width // 8}", copy=False)
        elif pa.types.is_decimal(kind):
            cells = np.column_stack([cells, cells >> 63])  # the lower and the upper half
        elif pa.types.is_integer(kind) or pa.types.is_date32(kind):
            cells = cells.astype(f"i{kind.bit_width // 8}", copy=False)
        return pa.Array.from_buffers(kind, len(self.marks), [self._validity(), pa.py_buffer(cells)])

    def _reals(self) -> Any:
        reals = self._cells.view(np.float64)
        hard = np.flatnonzero(self.marks == kernels.HARD)
        if len(hard):
            # Arrow reads text to the nearest double, as Python does.
            texts = self._spans(self._cells[hard], self._sizes[hard], self.marks[hard], pa.string())
            reals[hard] = texts.cast(pa.float64()).to_numpy()
        return reals

    def not_below(self, limit: int) -> list[int]:
        """The rows of numbers that are as large as the limit, or larger."""
        found: list[int] = np.flatnonzero(
            (self.marks != kernels.ABSENT) & (np.abs(self._cells) >= limit)
        ).tolist()
        return found

    def raw(self, kind: pa.DataType, doubtful: set[int]) -> pa.Array:
        """The values as the plain way reads them; rows where that fails are added to `doubtful`."""
        fit = fit_for(kind)
        texts = self._texts(pa.binary()).fill_null(b"null").to_pylist()
        loaded = json.loads(b"[" + b",".join(texts) + b"]", parse_int=Number, parse_float=Number)
        for row, value in enumerate(loaded):
            try:
                loaded[row] = None if value is None else fit(value)
            except Misfit:
                doubtful.add(row)
                loaded[row] = None
        return pa.array(loaded, kind)

    def _texts(self, kind: pa.DataType) -> pa.Array:
        sizes = np.where(self.marks == kernels.ABSENT, -1, self._sizes)
        return self._spans(self._cells, sizes, self.marks, kind)

    def _spans(
        self, starts: Numbers, sizes: Numbers, marks: kernels.Marks, kind: pa.DataType
    ) -> pa.Array:
        places = np.empty(len(sizes) + 1, np.int32)
        present = place_fields(sizes, places)
        content = pa.allocate_buffer(int(places[-1]))
        kernels.copy_texts(self._source, starts, marks, places, np.frombuffer(content, np.uint8))
        validity = None
        if present < len(sizes):
            validity = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little"))
        return pa.Array.from_buffers(kind, len(sizes), [validity, pa.py_buffer(places), content])

    def _validity(self) -> pa.Buffer | None:
        absent = self.marks == kernels.ABSENT
        return pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
