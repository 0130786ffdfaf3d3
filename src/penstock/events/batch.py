"""The record batch (Kafka's format v2): the unit that is sent, stored, checked and served.

    offset  0  base offset            int64   set by the log
            8  length after this      int32
           12  leader epoch           int32   set by the log
           16  magic                  int8    always 2
           17  CRC-32C of all below   uint32
           21  attributes             int16   codec 0-2, append time 3, transactional 4, control 5
           23  last offset delta      int32
           27  base timestamp         int64
           35  max timestamp          int64
           43  producer id, epoch, base sequence    int64, int16, int32
           57  number of records      int32
           61  records

What the log stamps lies before the checksum, so a batch is stored as it came. Broken bytes raise
`CorruptBatch`; nothing here trusts a length.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from penstock.clock import now_ms
from penstock.errors import CorruptBatch
from penstock.events.compression import compress, decompress
from penstock.events.record import Record

HEADER_BYTES = 61
LENGTH_OVERHEAD = 12  # base offset and length, which the length field does not count
CRC_FROM = 21
NO_PRODUCER = -1
MAX_OFFSET = 2**63 - 1

CODEC_MASK = 0x07
APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_HEADER = struct.Struct(">qiibIhiqqqhii")
_STAMP = struct.Struct(">qii")
_ATTRIBUTES = struct.Struct(">hiqq")
_CRC = struct.Struct(">I")

Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


def read_header(data: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`; the caller has made sure that 61 bytes are there."""
    return BatchHeader._make(_HEADER.unpack_from(data, at))


def crc_fits(data: memoryview, header: BatchHeader, at: int = 0) -> bool:
    return crc32c(data[at + CRC_FROM : at + header.size]) == header.crc


def check_batch(data: memoryview, at: int = 0) -> BatchHeader:
    """The header of the whole, intact batch at `at`, or CorruptBatch."""
    left = len(data) - at
    if left < HEADER_BYTES:
        raise CorruptBatch(f"a batch needs {HEADER_BYTES} bytes of header, {left} are left")
    header = read_header(data, at)
    if header.magic != 2:
        raise CorruptBatch(
            f"record format {header.magic} instead of 2",
            hint="use a client of Kafka 0.11 or newer",
        )
    if header.size < HEADER_BYTES or header.size > left:
        raise CorruptBatch(f"a batch claims {header.size} bytes, {left} are there")
    if not crc_fits(data, header, at):
        raise CorruptBatch("the checksum does not fit the bytes")
    return header


def check_produced(data: memoryview, at: int = 0) -> BatchHeader:
    """As check_batch, and what a log asks of a batch that a producer sends.

    The records of an uncompressed batch are walked by their lengths, which must lead exactly to
    the end; a compressed one is not opened here, and its readers check their own bounds.
    """
    header = check_batch(data, at)
    if header.records < 1 or header.last_offset_delta != header.records - 1:
        raise CorruptBatch(
            f"a batch claims {header.records} records and a last offset delta of "
            f"{header.last_offset_delta}"
        )
    if header.attributes & CONTROL:
        raise CorruptBatch("control batches are written by the log alone")
    codec = header.attributes & CODEC_MASK
    if codec > 4:
        raise CorruptBatch(f"compression codec {codec} is unknown")
    if codec == 0:
        _walk_records(data, at + HEADER_BYTES, at + header.size, header.records)
    return header


def check_stored(data: memoryview, at: int = 0, after: int = 0) -> BatchHeader:
    """As check_batch, and what a reader asks of a log: offsets from `after` on that can be.

    The checksum does not cover the base offset, so that offsets must rise is all there is to hold
    against a flipped bit in one.
    """
    header = check_batch(data, at)
    if not 0 <= header.records <= header.last_offset_delta + 1:
        raise CorruptBatch(
            f"a batch claims {header.records} records and a last offset delta of "
            f"{header.last_offset_delta}"
        )
    if header.base_offset < after or header.last_offset >= MAX_OFFSET:
        raise CorruptBatch(
            f"a batch begins at offset {header.base_offset}, where {after} or more is due"
        )
    return header


def _walk_records(data: memoryview, position: int, end: int, count: int) -> None:
    try:
        for _ in range(count):
            low = data[position]
            if low < 0x80:  # one byte; a length is zigzag coded, so an odd one is negative
                if low & 1:
                    break
                position += 1 + (low >> 1)
            else:
                high = data[position + 1]
                if low & 1:
                    break
                if high < 0x80:
                    position += 2 + (((low & 0x7F) | high << 7) >> 1)
                else:
                    length, position = read_varint(data, position, end)
                    position += length
    except IndexError:
        position = -1
    if position != end:
        raise CorruptBatch("the records' lengths do not add up to the batch's")


def stamp(base_offset: int, length: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of a batch, which the log writes in place of the producer's."""
    return _STAMP.pack(base_offset, length, leader_epoch)


def with_append_time(data: memoryview, header: BatchHeader, at: int, timestamp: int) -> bytes:
    """The batch's bytes 16 to 61 for a topic that stamps records with the time of appending."""
    head = bytearray(data[at + 16 : at + HEADER_BYTES])
    _ATTRIBUTES.pack_into(
        head,
        CRC_FROM - 16,
        header.attributes | APPEND_TIME,
        header.last_offset_delta,
        header.base_timestamp,
        timestamp,
    )
    records = data[at + HEADER_BYTES : at + header.size]
    _CRC.pack_into(head, 1, crc32c(records, crc32c(memoryview(head)[5:])))
    return bytes(head)


def encode(
    records: Sequence[Record],
    *,
    codec: int = 0,
    base_offset: int = 0,
    producer: tuple[int, int, int] = (NO_PRODUCER, -1, -1),
    attributes: int = 0,
) -> bytes:
    """One batch of these records; `producer` is id, epoch and base sequence."""
    present = now_ms()
    times = [present if r.timestamp is None else r.timestamp for r in records]
    base_timestamp = times[0]
    body = bytearray()
    for delta, (record, timestamp) in enumerate(zip(records, times, strict=True)):
        one = bytearray(1)
        write_varint(one, timestamp - base_timestamp)
        write_varint(one, delta)
        _write_bytes(one, record.key)
        _write_bytes(one, record.value)
        write_varint(one, len(record.headers))
        for name, value in record.headers:
            _write_bytes(one, name.encode())
            _write_bytes(one, value)
        write_varint(body, len(one))
        body += one
    packed = compress(codec, bytes(body))
    checked = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(records) - 1,
        base_timestamp,
        max(times),
        *producer,
        len(records),
    )
    crc = crc32c(packed, crc32c(checked))
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(packed)
    return stamp(base_offset, length, -1) + struct.pack(">bI", 2, crc) + checked + packed


def decode(data: memoryview, *, topic: str = "", partition: int = 0) -> Iterator[Record]:
    """The records of every batch in `data`, which must end where a batch ends.

    Offsets must rise from record to record. Names of headers that are not UTF-8 are mended with
    U+FFFD, as the Java client does.
    """
    at = after = 0
    while at < len(data):
        header = check_stored(data, at, after)
        if not header.attributes & CONTROL:
            yield from _decode_one(data, at, header, topic, partition)
        at += header.size
        after = header.next_offset


def _decode_one(
    data: memoryview, at: int, header: BatchHeader, topic: str, partition: int
) -> Iterator[Record]:
    body: Buffer = data[at + HEADER_BYTES : at + header.size]
    codec = header.attributes & CODEC_MASK
    if codec:
        body = decompress(codec, body)
    position, size, previous = 0, len(body), -1
    for _ in range(header.records):
        length, position = read_varint(body, position, size)
        end = position + length
        if length < 0 or end > size:
            raise CorruptBatch("a record reaches beyond its batch")
        position += 1  # attributes, unused in this format
        delta, position = read_varint(body, position, end)
        offset_delta, position = read_varint(body, position, end)
        key, position = _read_bytes(body, position, end)
        value, position = _read_bytes(body, position, end)
        count, position = read_varint(body, position, end)
        if count < 0 or count > end - position:
            raise CorruptBatch(f"a record claims {count} headers")
        headers = []
        for _ in range(count):
            name, position = _read_bytes(body, position, end)
            content, position = _read_bytes(body, position, end)
            if name is None:
                raise CorruptBatch("a header without a name")
            headers.append((name.decode(errors="replace"), content))
        if position != end:
            raise CorruptBatch("a record's fields do not add up to its length")
        if not previous < offset_delta <= header.last_offset_delta:
            raise CorruptBatch(
                f"an offset delta of {offset_delta} follows {previous} in a batch that ends at "
                f"{header.last_offset_delta}"
            )
        previous = offset_delta
        timestamp = header.base_timestamp + delta
        if header.attributes & APPEND_TIME:
            timestamp = header.max_timestamp
        elif not -(2**63) <= timestamp < 2**63:
            raise CorruptBatch("a timestamp beyond 64 bits")
        yield Record(
            value=value,
            key=key,
            headers=tuple(headers),
            timestamp=timestamp,
            topic=topic,
            partition=partition,
            offset=header.base_offset + offset_delta,
        )
    if position != size:
        raise CorruptBatch("bytes are left over after the last record")


def read_varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag-coded integer of at most 64 bits, and the position after it."""
    raw = shift = 0
    while True:
        if position >= end:
            raise CorruptBatch("a number runs beyond its record")
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            raise CorruptBatch("a number of more than 64 bits")
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def write_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _write_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(content))
        out += content


def _read_bytes(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, end)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise CorruptBatch("a field reaches beyond its record")
    return bytes(data[position : position + length]), position + length
