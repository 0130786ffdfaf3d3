"""Batches put together byte by byte, so that they can lie under a checksum that fits."""

import struct

from crc32c import crc32c

from penstock.events.batch import HEADER_BYTES, LENGTH_OVERHEAD, write_varint
from penstock.events.compression import compress


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def raw_record(
    *,
    size: int | None = None,
    time: int | bytes = 0,
    delta: int | bytes = 0,
    key: bytes = varint(-1),
    value: bytes = varint(1) + b"v",
    headers: bytes = varint(0),
) -> bytes:
    """A record; key, value and headers are given with their lengths, so that these can be wrong."""
    time = time if isinstance(time, bytes) else varint(time)
    delta = delta if isinstance(delta, bytes) else varint(delta)
    content = b"\0" + time + delta + key + value + headers
    return varint(len(content) if size is None else size) + content


def raw_batch(
    body: bytes,
    *,
    records: int = 1,
    last_delta: int | None = None,
    base_offset: int = 0,
    base_time: int = 0,
    max_time: int = 0,
    codec: int = 0,
    attributes: int = 0,
) -> bytes:
    packed = compress(codec, body)
    checked = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        records - 1 if last_delta is None else last_delta,
        base_time,
        max_time,
        -1,
        -1,
        -1,
        records,
    )
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(packed)
    crc = crc32c(packed, crc32c(checked))
    return struct.pack(">qiibI", base_offset, length, -1, 2, crc) + checked + packed


def sealed(batch: bytes) -> bytes:
    """The batch with the length and the checksum that fit it."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - LENGTH_OVERHEAD)
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)
