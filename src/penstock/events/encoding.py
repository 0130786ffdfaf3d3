"""Arrow columns as record batches, for writers that have records by the hundred thousand.

    for data in encode_columns(rows):          # key, value, timestamp, headers
        partition.append(data)

The inverse of `penstock.events.columns`; the batches say what `penstock.events.batch.encode` says.
"""

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from penstock.clock import now_ms
from penstock.errors import InvalidInput, RecordTooLarge
from penstock.events.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    NO_PRODUCER,
    stamp,
)
from penstock.events.columns import SCHEMA
from penstock.events.compiled import (
    Bytes,
    Number,
    Numbers,
    Positions,
    binary_parts,
    frozen,
    kernel,
    part,
)
from penstock.events.compression import compress

BATCH_BYTES = 1_000_000  # of records, before compression
_MOST_BYTES = 2**31 - 1  # of a batch, whose length is an int32
_CHECKED = struct.Struct(">hiqqqhii")

# The bytes of all fields of a column, where each begins, and their sizes, -1 for none.
_Fields = tuple[Bytes, Positions, Numbers]


def encode_columns(
    rows: pa.RecordBatch, *, size: int = BATCH_BYTES, codec: int = 0
) -> Iterator[bytes]:
    """Batches of the rows in their order, each of at most `size` bytes of records, or of one.

    The columns are some of `key`, `value`, `timestamp` and `headers`, of the types that reading
    gives; others are passed over. Without a key or a value a record has none; without a timestamp
    it has the present. Offsets begin at 0 in each batch, for the log to stamp.
    """
    if size < 1:
        raise InvalidInput(f"batches of {size} bytes", hint="a batch has at least one record")
    keys, values = _fields(_column(rows, "key")), _fields(_column(rows, "value"))
    lists, names, contents = _headers(_column(rows, "headers"))
    times = frozen(_column(rows, "timestamp").cast(pa.int64()).fill_null(now_ms()).to_numpy())
    room = np.empty(min(HEADER_BYTES + size, _MOST_BYTES), np.uint8)
    found = np.empty(2, np.int64)
    first = 0
    while first < rows.num_rows:
        out = room
        stop = pack_records(keys, values, lists, names, contents, times, first, out, found)
        if stop == first:  # a record that is larger than a batch should be
            if found[0] > _MOST_BYTES:
                raise RecordTooLarge(
                    f"a record of {found[0]} bytes does not fit a batch",
                    hint="a batch has less than 2 GiB",
                )
            out = np.empty(found[0], np.uint8)
            stop = pack_records(keys, values, lists, names, contents, times, first, out, found)
        end, latest = found.tolist()
        yield _batch(out[HEADER_BYTES:end], int(times[first]), latest, stop - first, codec)
        first = stop


def _batch(plain: Bytes, earliest: int, latest: int, count: int, codec: int) -> bytes:
    checked = _CHECKED.pack(codec, count - 1, earliest, latest, NO_PRODUCER, -1, -1, count)
    records = compress(codec, plain.tobytes()) if codec else plain.data
    crc = crc32c(records, crc32c(checked))
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(records)
    return b"".join((stamp(0, length, -1), struct.pack(">bI", 2, crc), checked, records))


def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    column = rows.column(name)
    if column.type != kind:
        raise InvalidInput(f"a column {name} of type {column.type}", hint=f"it should be {kind}")
    return column


def _fields(values: pa.Array) -> _Fields:
    content, starts = binary_parts(values)
    sizes = np.diff(starts).astype(np.int64)
    if values.null_count:
        sizes[values.is_null().to_numpy(zero_copy_only=False)] = -1
    return content, starts, frozen(sizes)


def _headers(headers: pa.ListArray) -> tuple[Positions, _Fields, _Fields]:
    """Where each record's headers begin among all, and the last end; their names and contents."""
    lists = np.zeros(len(headers) + 1, np.int32)
    if headers.null_count == len(headers):
        none = _fields(pa.array([], pa.binary()))
        return frozen(lists), none, none
    np.cumsum(pc.list_value_length(headers).fill_null(0), out=lists[1:])
    names, contents = headers.flatten().flatten()
    if names.null_count:
        raise InvalidInput("a header without a name", hint="only its content may be null")
    return frozen(lists), _fields(names.cast(pa.binary())), _fields(contents)


@part
def _number_size(number: Number) -> Number:
    raw = np.uint64(number << 1) ^ np.uint64(number >> 63)
    size = 1
    while raw >= np.uint64(0x80):
        raw >>= np.uint64(7)
        size += 1
    return size


@part
def _write_number(out: Bytes, at: Number, number: Number) -> Number:
    raw = np.uint64(number << 1) ^ np.uint64(number >> 63)
    while raw >= np.uint64(0x80):
        out[np.uint64(at)] = raw & np.uint64(0x7F) | np.uint64(0x80)
        raw >>= np.uint64(7)
        at += 1
    out[np.uint64(at)] = raw
    return at + 1


@part
def _field_size(fields: _Fields, row: Number) -> Number:
    _, _, sizes = fields
    size: Number = sizes[np.uint64(row)]
    return _number_size(size) + max(size, 0)


@part
def _write_field(out: Bytes, at: Number, fields: _Fields, row: Number) -> Number:
    content, starts, sizes = fields
    size: Number = sizes[np.uint64(row)]
    at = _write_number(out, at, size)
    start = np.uint64(starts[np.uint64(row)])
    place = np.uint64(at)
    for byte in range(np.uint64(max(size, 0))):
        out[place + byte] = content[start + byte]
    return at + max(size, 0)


@kernel
def pack_records(
    keys: _Fields,
    values: _Fields,
    lists: Positions,
    names: _Fields,
    contents: _Fields,
    times: Numbers,
    first: int,
    out: Bytes,
    found: Numbers,
) -> int:
    """Writes the records from row `first` on, as many as there is room for, after a header's room.

    Returns the row after the last; `found` gets where the bytes end, and the latest time. When
    there is no room for a single one, it gets how much it needs instead.
    """
    at: Number = HEADER_BYTES
    base = times[first]
    latest = base
    row = first
    while row < times.shape[0]:
        time = times[np.uint64(row)]
        later = time - base
        if (time ^ base) & (time ^ later) < 0:  # more than 64 bits apart
            break
        begin = lists[np.uint64(row)]
        end = lists[np.uint64(row + 1)]
        size = (
            1
            + _number_size(later)
            + _number_size(row - first)
            + _field_size(keys, row)
            + _field_size(values, row)
            + _number_size(end - begin)
        )
        for header in range(begin, end):
            size += _field_size(names, header) + _field_size(contents, header)
        if size + _number_size(size) > out.shape[0] - at:
            if row == first:
                at += size + _number_size(size)
            break
        at = _write_number(out, at, size)
        out[np.uint64(at)] = 0  # attributes, unused in this format
        at = _write_number(out, at + 1, later)
        at = _write_number(out, at, row - first)
        at = _write_field(out, at, keys, row)
        at = _write_field(out, at, values, row)
        at = _write_number(out, at, np.int64(end - begin))
        for header in range(begin, end):
            at = _write_field(out, at, names, header)
            at = _write_field(out, at, contents, header)
        latest = max(latest, time)
        row += 1
    found[0] = at
    found[1] = latest
    return row
