"""Record batches as Arrow columns, for readers that take records by the hundred thousand.

    for columns in read_segment("00000000000000000000.log", until_offset=durable):
        columns.batch["value"]

Nothing is believed: every batch's checksum is verified, and every length in a record, so that bytes
made by an enemy raise CorruptBatch and no more. What is refused and what is read is the same as in
`penstock.events.batch.decode`. Control batches are passed over.
"""

import mmap
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptBatch, InvalidInput
from penstock.events.batch import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    MAX_OFFSET,
    BatchHeader,
    Buffer,
    check_stored,
    read_header,
)
from penstock.events.column_kernels import (
    CONTENT,
    CONTENT_SIZE,
    FAULTS,
    FRAME,
    HEADER_COUNT,
    HEADER_SPANS,
    KEY,
    KEY_SIZE,
    NAME,
    NAME_SIZE,
    SPANS,
    VALUE,
    VALUE_SIZE,
    Bytes,
    Numbers,
    Positions,
    copy_fields,
    index_headers,
    index_records,
)
from penstock.events.compression import MAX_UNPACKED, decompress

# Names of headers that are not UTF-8 are mended with U+FFFD; a record without headers has an empty
# list of them.
SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        "offset": pa.int64(),
    }
)
COLUMNS = tuple(SCHEMA.names)

CHUNK_ROWS = 100_000
CHUNK_BYTES = 64 * 1024 * 1024
_ARROW_BYTES = 2**31 - 1  # of all values of a binary column, as its offsets are int32
_RECORD_BYTES = 7  # the least that a record can have


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of some batches, and where to go on: at byte `end`, from `next_offset` on.

    When `until_offset` falls inside a batch, `end` is that batch's beginning.
    """

    batch: pa.RecordBatch
    end: int
    next_offset: int


def decode_columns(
    data: Buffer | mmap.mmap,
    *,
    columns: Sequence[str] = COLUMNS,
    from_offset: int = 0,
    until_offset: int | None = None,
) -> Columns:
    """The records from `from_offset` to before `until_offset`, in one piece.

    A batch cut off by the end of the data is left for later, as a fetch may end in one; nor is
    anything looked at beyond the batch that reaches `until_offset`. Raises CorruptBatch, and
    InvalidInput when there is more than a RecordBatch can hold.
    """
    whole, *more = _chunks(data, columns, from_offset, until_offset, 0, MAX_OFFSET, _ARROW_BYTES)
    if more:
        raise InvalidInput(
            "more than 2 GiB of records do not fit one RecordBatch", hint="use iter_columns"
        )
    return whole


def iter_columns(
    data: Buffer | mmap.mmap,
    *,
    columns: Sequence[str] = COLUMNS,
    from_offset: int = 0,
    until_offset: int | None = None,
    at: int = 0,
    rows: int = CHUNK_ROWS,
) -> Iterator[Columns]:
    """As decode_columns, from the batch at byte `at` on, in pieces of about `rows`.

    A piece ends with the first batch that fills it, by rows or by 64 MiB. The last is there even
    when it has no rows, to say how far the data went.
    """
    return _chunks(data, columns, from_offset, until_offset, at, rows, CHUNK_BYTES)


def read_segment(
    path: str | Path,
    *,
    columns: Sequence[str] = COLUMNS,
    from_offset: int = 0,
    until_offset: int | None = None,
    at: int = 0,
    rows: int = CHUNK_ROWS,
) -> Iterator[Columns]:
    """As iter_columns, of a file that is mapped into memory, and whose batches must all be whole.

    A segment that is being written has to be read with `until_offset`, the durable offset: what
    comes after may be half written, and may be cut off again.
    """
    with Path(path).open("rb") as file:
        empty = file.seek(0, 2) == 0
        data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _chunks(data, columns, from_offset, until_offset, at, rows, CHUNK_BYTES, str(path))


def _chunks(
    data: Buffer | mmap.mmap,
    columns: Sequence[str],
    from_offset: int,
    until_offset: int | None,
    at: int,
    rows: int,
    size: int,
    file: str = "",
) -> Iterator[Columns]:
    if not columns or not set(columns) <= set(COLUMNS):
        raise InvalidInput(
            f"no columns {', '.join(columns) or 'at all'}", hint=f"some of: {', '.join(COLUMNS)}"
        )
    until = MAX_OFFSET if until_offset is None else until_offset
    view = memoryview(data).toreadonly()
    chunk = _Chunk(view, file, at, from_offset, until)
    for position, header in _batches(view, at, until, file):
        if chunk.is_full(header, rows, size):
            yield chunk.columns(columns)
            chunk = _Chunk(view, file, position, chunk.next_offset, until)
        chunk.add(position, header)
    yield chunk.columns(columns)


def _batches(view: memoryview, at: int, until: int, file: str) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and checked headers of the batches that begin before offset `until`."""
    after = 0
    while after < until and at < len(view):
        try:
            header = check_stored(view, at, after)
        except CorruptBatch as broken:
            left = len(view) - at
            claimed = read_header(view, at) if left >= HEADER_BYTES else None
            cut_off = claimed is None or (claimed.magic == 2 and claimed.size > left)
            if (cut_off and not file) or (claimed and claimed.base_offset >= until):
                return
            raise _located(broken.message, at, file) from None
        if header.base_offset >= until:
            return
        yield at, header
        at += header.size
        after = header.next_offset


def _located(what: str, position: int, file: str) -> CorruptBatch:
    return CorruptBatch(
        f"{file or 'the data'} is damaged at byte {position}: {what}",
        file=file,
        position=position,
        hint="the batches before and after can be read",
    )


@dataclass(slots=True)
class _Run:
    """Batches side by side that are read from one source: all unpacked before, or none."""

    packed: bool
    plain: list[bytes] = field(default_factory=list)
    plain_size: int = 0
    positions: list[int] = field(default_factory=list)
    frames: "array[int]" = field(default_factory=lambda: array("q"))


class _Rows(NamedTuple):
    """Rows from `start` to before `stop`, whose fields lie in `source`."""

    source: Bytes
    start: int
    stop: int


class _Chunk:
    """The batches that become one RecordBatch."""

    def __init__(self, view: memoryview, file: str, at: int, from_offset: int, until: int) -> None:
        self._view = view
        self._file = file
        self._from = from_offset
        self._until = until
        self._end = at
        self.next_offset = from_offset
        self._runs: list[_Run] = []
        self._rows = 0
        self._size = 0

    def is_full(self, header: BatchHeader, rows: int, size: int) -> bool:
        most = MAX_UNPACKED if header.attributes & CODEC_MASK else header.size
        return self._size > 0 and (
            self._rows >= rows or self._size >= size or self._size + most > _ARROW_BYTES
        )

    def add(self, at: int, header: BatchHeader) -> None:
        if header.next_offset <= self._until:
            self._end = at + header.size
        else:
            self._end = at
        self.next_offset = max(self._from, min(header.next_offset, self._until))
        if header.attributes & CONTROL or header.last_offset < self._from:
            return
        codec = header.attributes & CODEC_MASK
        if not self._runs or self._runs[-1].packed != (codec > 0):
            self._runs.append(_Run(codec > 0))
        run = self._runs[-1]
        body, end = at + HEADER_BYTES, at + header.size
        if codec:
            try:
                plain = decompress(codec, self._view[body:end])
            except CorruptBatch as broken:
                raise _located(broken.message, at, self._file) from None
            run.plain.append(plain)
            body, end = run.plain_size, run.plain_size + len(plain)
            run.plain_size = end
        if header.count * _RECORD_BYTES > end - body:
            claim = f"a batch claims {header.count} records in {end - body} bytes"
            raise _located(claim, at, self._file)
        run.positions.append(at)
        run.frames.extend(
            (
                body,
                end,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                header.max_timestamp,
                header.attributes & APPEND_TIME,
                header.count,
            )
        )
        self._rows += header.count
        self._size += end - body

    def columns(self, names: Sequence[str]) -> Columns:
        offsets = np.empty(self._rows, np.int64)
        timestamps = np.empty(self._rows, np.int64)
        spans = np.empty((SPANS, self._rows), np.int64)
        parts: list[_Rows] = []
        stop = 0
        for run in self._runs:
            start = stop
            source = np.frombuffer(b"".join(run.plain) if run.packed else self._view, np.uint8)
            stop = self._index(run, source, offsets, timestamps, spans, start)
            parts.append(_Rows(source, start, stop))
        spans = spans[:, :stop]

        def build(name: str) -> pa.Array:
            match name:
                case "key":
                    return _binary(parts, spans[KEY], spans[KEY_SIZE])
                case "value":
                    return _binary(parts, spans[VALUE], spans[VALUE_SIZE])
                case "headers":
                    return _headers(parts, spans)
                case "timestamp":
                    return pa.array(timestamps[:stop]).view(SCHEMA.field(name).type)
            return pa.array(offsets[:stop])

        schema = pa.schema([SCHEMA.field(name) for name in names])
        batch = pa.RecordBatch.from_arrays([build(name) for name in names], schema=schema)
        return Columns(batch, self._end, self.next_offset)

    def _index(
        self,
        run: _Run,
        source: Bytes,
        offsets: Numbers,
        timestamps: Numbers,
        spans: Numbers,
        row: int,
    ) -> int:
        frames = np.frombuffer(run.frames, np.int64).reshape(-1, len(FRAME))
        fault = np.zeros(3, np.int64)
        row = index_records(
            source, frames, self._from, self._until, offsets, timestamps, spans, row, fault
        )
        if row < 0:
            frame, record, what = fault.tolist()
            count = frames[frame, FRAME.index("count")]
            raise _located(
                f"record {record + 1} of {count} {FAULTS[what]}", run.positions[frame], self._file
            )
        return row


def _places(sizes: Numbers) -> Positions:
    """Where fields of these sizes begin when laid side by side, and where the last ends."""
    places = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), dtype=np.int32, out=places[1:])
    return places


def _binary(parts: Sequence[_Rows], starts: Numbers, sizes: Numbers) -> pa.Array:
    places = _places(sizes)
    out = np.empty(places[-1], np.uint8)
    for part in parts:
        copy_fields(part.source, starts, places, out, part.start, part.stop)
    present = sizes >= 0
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(places), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _headers(parts: Sequence[_Rows], records: Numbers) -> pa.Array:
    lists = _places(records[HEADER_COUNT])
    spans = np.empty((HEADER_SPANS, lists[-1]), np.int64)
    for part in parts:
        index_headers(part.source, records, lists, spans, part.start, part.stop)
    inner = [_Rows(part.source, int(lists[part.start]), int(lists[part.stop])) for part in parts]
    names = _text(_binary(inner, spans[NAME], spans[NAME_SIZE]))
    contents = _binary(inner, spans[CONTENT], spans[CONTENT_SIZE])
    pairs = pa.StructArray.from_arrays([names, contents], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(lists), pairs)


def _text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
