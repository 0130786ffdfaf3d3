"""Record batches as Arrow columns, for readers that take records by the hundred thousand.

    for columns in read_segment("00000000000000000000.log", until_offset=durable):
        columns.batch["value"]

Nothing is believed: every batch's checksum is verified, and every length in a record, so that bytes
made by an enemy raise CorruptBatch and no more. What is refused and what is read is the same as in
`penstock.events.batch.decode`. Control batches are passed over.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from penstock.errors import CorruptBatch, InvalidInput
from penstock.events import column_loops as kernels
from penstock.events.batch import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_BYTES,
    MAX_OFFSET,
    BatchHeader,
    Buffer,
    check_stored,
    read_header,
)
from penstock.events.compiled import Bytes, Numbers
from penstock.events.compression import decompress

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
CHUNK_BYTES = 32 * 1024 * 1024
_ARROW_BYTES = 2**31 - 1  # of all values of a binary column, as its offsets are int32
_FRAMES = 1024  # batches that are framed at a time


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
    pieces = _pieces(data, _schema(columns), from_offset, until_offset, 0, MAX_OFFSET, _ARROW_BYTES)
    whole = next(pieces)
    for _ in pieces:
        raise InvalidInput(
            "2 GiB of records and more do not fit one RecordBatch", hint="use iter_columns"
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

    A piece ends with the first batch that fills it, by rows or by 32 MiB. The last is there even
    when it has no rows, to say how far the data went.
    """
    return _pieces(data, _schema(columns), from_offset, until_offset, at, rows, CHUNK_BYTES)


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
    comes after may be half written, and may be cut off again. A last piece whose `next_offset` is
    short of it says that the file ends before.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    return _pieces(
        data, _schema(columns), from_offset, until_offset, at, rows, CHUNK_BYTES, str(path)
    )


def _schema(columns: Sequence[str]) -> pa.Schema:
    if not columns or not set(columns) <= set(COLUMNS):
        raise InvalidInput(
            f"no columns {', '.join(columns) or 'at all'}", hint=f"some of: {', '.join(COLUMNS)}"
        )
    return pa.schema([SCHEMA.field(name) for name in columns])


def _pieces(
    data: Buffer | mmap.mmap,
    schema: pa.Schema,
    from_offset: int,
    until_offset: int | None,
    at: int,
    rows: int,
    size: int,
    file: str = "",
) -> Iterator[Columns]:
    """The data in pieces: up to the batch that makes `rows`, or before one that passes `size`."""
    until = MAX_OFFSET if until_offset is None else until_offset
    if min(at, from_offset, until) < 0 or max(at, from_offset, until, rows) > MAX_OFFSET:
        raise InvalidInput(
            f"from byte {at}, offset {from_offset} to {until}, {rows} rows at a time",
            hint="positions and offsets are from 0 to 2**63 - 1",
        )
    walk = _Walk(memoryview(data).toreadonly(), file, at, from_offset, until)
    while walk.goes_on():
        if walk.rows >= rows:
            yield walk.piece(schema)
        if walk.take_plain(rows - walk.rows, size - walk.size):
            continue
        batch = walk.next_batch()
        if batch is None:
            break
        if 0 < walk.size > size - batch.size:
            yield walk.piece(schema)
        walk.take(batch)
    yield walk.piece(schema)


class _Batch(NamedTuple):
    header: BatchHeader
    served: bool  # whether any of its records can be asked for
    plain: bytes | None  # its records, where they had to be unpacked
    size: int  # of its records, when served


@dataclass(frozen=True, slots=True)
class _Run:
    """Batches side by side that are read from one source: the data, or what was unpacked."""

    frames: list[Numbers]
    plain: list[bytes] | None


class _Rows(NamedTuple):
    """Rows from `start` to before `stop`, whose fields lie in `source`."""

    source: Bytes
    start: int
    stop: int


class _Walk:
    """Goes through the data and gathers the batches that become the next piece."""

    def __init__(self, view: memoryview, file: str, at: int, from_offset: int, until: int) -> None:
        self._view = view
        self._source = np.frombuffer(view, np.uint8)
        self._file = file
        self._at = at
        self._last_at = at  # where the batch before stands
        self._after = 0  # the offset after its last
        self._from = from_offset
        self._until = until
        self._room = np.empty((_FRAMES, kernels.FRAME_FIELDS), np.int64)
        self._clear()

    def _clear(self) -> None:
        self._runs: list[_Run] = []
        self.rows = 0
        self.size = 0

    def goes_on(self) -> bool:
        return self._after < self._until and self._at < len(self._view)

    def take_plain(self, rows: int, size: int) -> bool:
        """Takes the batches that need no special care, many at a time; False when none is next."""
        found = kernels.frame_batches(
            self._source, self._at, self._after, self._until, rows, size, self._room
        )
        if not found:
            return False
        frames = self._room[:found]
        for at, end, crc in frames[:, (kernels.AT, kernels.END, kernels.CRC)].tolist():
            if crc32c(self._view[at + CRC_FROM : end]) != crc:
                raise self._damaged("the checksum does not fit the bytes", at)
        self._gather(frames, None)
        self._last_at, self._at = at, end
        self._after = int(frames[-1, kernels.BASE_OFFSET] + frames[-1, kernels.LAST_DELTA]) + 1
        return True

    def next_batch(self) -> _Batch | None:
        """The next batch, whatever it is; None at the end of what is to be read."""
        at, view = self._at, self._view
        try:
            header = check_stored(view, at, self._after)
            if header.base_offset >= self._until:
                return None
            served = not header.attributes & CONTROL and header.last_offset >= self._from
            if not served:
                return _Batch(header, served, None, 0)
            codec = header.attributes & CODEC_MASK
            body = view[at + HEADER_BYTES : at + header.size]
            plain = decompress(codec, body) if codec else None
        except CorruptBatch as broken:
            if self._ends(at):
                return None
            raise self._damaged(broken.message, at) from None
        size = len(body if plain is None else plain)
        if header.records * kernels.RECORD_BYTES > size:
            raise self._damaged(f"a batch claims {header.records} records in {size} bytes", at)
        return _Batch(header, served, plain, size)

    def _ends(self, at: int) -> bool:
        """Whether a batch that is not sound lies beyond what was asked for, or is only cut off."""
        left = len(self._view) - at
        if left < HEADER_BYTES:
            return not self._file  # a segment does not end in the middle of a batch
        header = read_header(self._view, at)
        beyond = self._until <= header.base_offset < MAX_OFFSET
        cut_off = header.magic == 2 and header.size > left
        return beyond or (cut_off and not self._file)

    def take(self, batch: _Batch) -> None:
        header, served, plain, size = batch
        if served:
            body = self._at + HEADER_BYTES if plain is None else 0
            frame = (
                self._at,
                body,
                body + size,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                header.max_timestamp,
                header.attributes & APPEND_TIME,
                header.records,
                header.crc,
            )
            self._gather(np.array([frame], np.int64), plain)
        self._last_at, self._at = self._at, self._at + header.size
        self._after = header.next_offset

    def _gather(self, frames: Numbers, plain: bytes | None) -> None:
        frames = frames[
            frames[:, kernels.BASE_OFFSET] + frames[:, kernels.LAST_DELTA] >= self._from
        ]
        if not len(frames):
            return
        if not self._runs or (self._runs[-1].plain is None) != (plain is None):
            self._runs.append(_Run([], None if plain is None else []))
        run = self._runs[-1]
        self.rows += int(frames[:, kernels.COUNT].sum())
        self.size += int(frames[:, kernels.END].sum() - frames[:, kernels.BODY].sum())
        if run.plain is not None and plain is not None:
            if run.frames:
                frames[:, (kernels.BODY, kernels.END)] += run.frames[-1][-1, kernels.END]
            run.plain.append(plain)
        run.frames.append(frames)

    def piece(self, schema: pa.Schema) -> Columns:
        """What was gathered, which is then gathered no more."""
        offsets = np.empty(self.rows, np.int64)
        timestamps = np.empty(self.rows, np.int64)
        spans = np.empty((kernels.SPANS, self.rows), np.int64)
        parts: list[_Rows] = []
        stop = 0
        for run in self._runs:
            source = self._source
            if run.plain is not None:
                source = np.frombuffer(b"".join(run.plain), np.uint8)
            start, frames, fault = stop, np.concatenate(run.frames), np.zeros(3, np.int64)
            stop = kernels.index_records(
                source, frames, self._from, self._until, offsets, timestamps, spans, start, fault
            )
            if stop < 0:
                frame, record, what = fault.tolist()
                claim = (
                    f"record {record + 1} of {frames[frame, kernels.COUNT]} {kernels.FAULTS[what]}"
                )
                raise self._damaged(claim, int(frames[frame, kernels.AT]))
            parts.append(_Rows(source, start, stop))
        self._clear()

        def build(name: str) -> pa.Array:
            match name:
                case "key":
                    return _binary(parts, spans[kernels.KEY, :stop], spans[kernels.KEY_SIZE, :stop])
                case "value":
                    return _binary(
                        parts, spans[kernels.VALUE, :stop], spans[kernels.VALUE_SIZE, :stop]
                    )
                case "headers":
                    return _headers(parts, spans, stop)
                case "timestamp":
                    return pa.array(timestamps[:stop]).view(schema.field(name).type)
            return pa.array(offsets[:stop])

        arrays = [build(name) for name in schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        end = self._at if self._after <= self._until else self._last_at
        return Columns(batch, end, max(self._from, min(self._after, self._until)))

    def _damaged(self, what: str, position: int) -> CorruptBatch:
        return CorruptBatch(
            f"{self._file or 'the data'} is damaged at byte {position}: {what}",
            file=self._file,
            position=position,
            hint="the batches before and after can be read",
        )


def _binary(parts: Sequence[_Rows], starts: Numbers, sizes: Numbers) -> pa.Array:
    places = np.empty(len(sizes) + 1, np.int32)
    present = kernels.place_fields(sizes, places)
    content = pa.allocate_buffer(int(places[-1]))  # from a pool, whose pages are warm
    out = np.frombuffer(content, np.uint8)
    for part in parts:
        kernels.copy_fields(part.source, starts, places, out, part.start, part.stop)
    validity = None
    if present < len(sizes):
        validity = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little"))
    buffers = [validity, pa.py_buffer(places), content]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _headers(parts: Sequence[_Rows], records: Numbers, rows: int) -> pa.Array:
    lists = np.empty(rows + 1, np.int32)
    kernels.place_fields(records[kernels.HEADER_COUNT, :rows], lists)
    spans = np.empty((kernels.HEADER_SPANS, lists[-1]), np.int64)
    for part in parts:
        kernels.index_headers(part.source, records, lists, spans, part.start, part.stop)
    inner = [_Rows(part.source, int(lists[part.start]), int(lists[part.stop])) for part in parts]
    names = _text(_binary(inner, spans[kernels.NAME], spans[kernels.NAME_SIZE]))
    contents = _binary(inner, spans[kernels.CONTENT], spans[kernels.CONTENT_SIZE])
    pairs = pa.StructArray.from_arrays([names, contents], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(lists), pairs)


def _text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
