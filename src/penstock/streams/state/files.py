"""A file of the durable form: Arrow's stream format, and a trailer.

The trailer says what the file is, so that it takes one short read to tell, and carries a checksum
of everything before it. Readers of Arrow streams stop before it.
"""

import hashlib
import struct
from collections.abc import Iterable
from itertools import chain
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from penstock.errors import StateDamaged
from penstock.streams.state.schema import StateSchema

NOTHING = 0  # the identity of the state before its first version

_MAGIC = b"psstate3"
_FIELDS = struct.Struct("<8sqQQQqQqqqq")
_NO_CLOCK = -(2**63)
_CRC = struct.Struct("<Q")
TRAILER_BYTES = _FIELDS.size + _CRC.size
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream of Arrow's


class Counts(NamedTuple):
    """What was counted in all versions up to one.

    `late` rows came after what they belong to was let go, and `dropped` ones were left out, as
    duplicates are; `corrected` results were taken back that had been given out for good.
    """

    late: int = 0
    corrected: int = 0
    dropped: int = 0

    def plus(self, more: "Counts") -> "Counts":
        return Counts(*map(sum, zip(self, more, strict=True)))


class Reached(NamedTuple):
    """How far a version is."""

    clock: int | None = None  # that it was taken at, in microseconds
    counts: Counts = Counts()


class Trailer(NamedTuple):
    version: int
    schema: int  # its fingerprint
    identity: int  # of the version: the same only when it and all before it are the same
    parent: int  # the identity of the version that the rows are to be added to
    rows: int  # that the state has at this version
    body: int  # bytes
    reached: Reached

    @property
    def size(self) -> int:
        """Of the whole file."""
        return self.body + TRAILER_BYTES


def read_trailer(tail: bytes, name: str) -> Trailer:
    """The trailer at the end of these bytes. Raises StateDamaged when there is none."""
    if len(tail) < TRAILER_BYTES:
        raise damaged(name, f"it is cut off after {len(tail)} bytes")
    fields = tail[-TRAILER_BYTES : -_CRC.size]
    magic, *facts, clock, late, corrected, dropped = _FIELDS.unpack(fields)
    if magic != _MAGIC:
        raise damaged(name, "it does not end as a file of state does")
    counts = Counts(late, corrected, dropped)
    reached = Reached(None if clock == _NO_CLOCK else clock, counts)
    return Trailer._make([*facts, reached])


def damaged(name: str, what: str) -> StateDamaged:
    return StateDamaged(
        f"{name} is damaged: {what}",
        hint="restore the file from a copy, or rebuild the node from its input",
    )


def write_file(
    file: BinaryIO,
    batches: Iterable[pa.RecordBatch],
    schema: StateSchema,
    *,
    version: int,
    rows: int,
    parent: int,
    reached: Reached,
    identity: int | None = None,
) -> Trailer:
    """Without an identity given, it is made from everything else."""
    body = crc = 0
    # Part by part, and not by Arrow's writer of streams: that takes longer for few rows than all
    # else, and the file would have to be read again for its checksum.
    for part in chain([schema.file_head], (each.serialize() for each in batches), [_END]):
        file.write(part)
        crc = crc32c(part, crc)
        body += len(part)
    marks = _NO_CLOCK if reached.clock is None else reached.clock, *reached.counts
    if identity is None:
        facts = struct.pack("<QQQqqqqq", crc, body, parent, version, *marks)
        identity = int.from_bytes(hashlib.blake2b(facts, digest_size=8).digest(), "little") or 1
    trailer = Trailer(version, schema.fingerprint, identity, parent, rows, body, reached)
    fields = _FIELDS.pack(_MAGIC, *trailer[:-1], *marks)
    file.write(fields + _CRC.pack(crc32c(fields, crc)))
    return trailer


def read_file(content: pa.Buffer, name: str) -> tuple[Trailer, pa.RecordBatchReader]:
    """What a file holds, all of it checked. Raises StateDamaged."""
    size = content.size
    trailer = read_trailer(content[max(0, size - TRAILER_BYTES) :].to_pybytes(), name)
    (crc,) = _CRC.unpack(content[size - _CRC.size :].to_pybytes())
    if crc32c(content[: size - _CRC.size]) != crc:
        raise damaged(name, "its checksum does not match")
    return trailer, pa.ipc.open_stream(content)
