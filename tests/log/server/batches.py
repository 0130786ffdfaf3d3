"""What producers may send to one partition, step by step, and what they are answered.

Apache Kafka gives the same answers, which the tests against it check.
"""

import struct
from collections.abc import Callable

from crc32c import crc32c

from penstock.events.batch import CONTROL, TRANSACTIONAL, encode
from penstock.events.record import Record

OUT_OF_RANGE, CORRUPT, TOO_LARGE = 1, 2, 10
OUT_OF_ORDER, STALE_EPOCH, NOT_AUTHORIZED, INVALID = 45, 47, 53, 87
LAST_SEQUENCE = 2**31 - 1

Sent = Callable[[int], bytes | None]
Answer = tuple[int, int]
"""An error code and a base offset."""


def refused(code: int) -> Answer:
    return code, -1


def at(offset: int) -> Answer:
    return 0, offset


def numbered(sequence: int, count: int = 1, *, epoch: int = 0, attributes: int = 0) -> Sent:
    """A batch of the producer whose id will be given."""
    records = [Record(value=b"x", timestamp=1_700_000_000_000)] * count
    return lambda producer: encode(
        records, producer=(producer, epoch, sequence), attributes=attributes
    )


# Each is a story of one idempotent producer.
SEQUENCES: dict[str, list[tuple[Sent, Answer]]] = {
    "a batch sent again keeps its place": [
        (numbered(0, 2), at(0)),
        (numbered(0, 2), at(0)),
        (numbered(2, 3), at(2)),
        (numbered(0, 2), at(0)),
        (numbered(2, 3), at(2)),
        (numbered(5), at(5)),
    ],
    "five batches are remembered": [
        *((numbered(number), at(number)) for number in range(6)),
        (numbered(0), refused(OUT_OF_ORDER)),
        (numbered(1), at(1)),
        (numbered(5), at(5)),
        (numbered(6), at(6)),
    ],
    "a part of a batch is not the batch": [
        (numbered(0, 4), at(0)),
        (numbered(0, 3), refused(OUT_OF_ORDER)),
        (numbered(1, 3), refused(OUT_OF_ORDER)),
        (numbered(2, 4), refused(OUT_OF_ORDER)),
        (numbered(4), at(4)),
    ],
    "a gap is refused until it is filled": [
        (numbered(0), at(0)),
        (numbered(2), refused(OUT_OF_ORDER)),
        (numbered(1), at(1)),
        (numbered(2), at(2)),
    ],
    "a new epoch begins at zero and ends the old one": [
        (numbered(0), at(0)),
        (numbered(5, epoch=1), refused(OUT_OF_ORDER)),
        (numbered(0, epoch=1), at(1)),
        (numbered(1), refused(STALE_EPOCH)),
        (numbered(0, epoch=1), at(1)),
        (numbered(1, epoch=1), at(2)),
        (numbered(0, epoch=3), at(3)),
        (numbered(0, epoch=2), refused(STALE_EPOCH)),
        (numbered(1, epoch=3), at(4)),
    ],
    "an unknown producer begins anywhere": [
        (numbered(7, epoch=5), at(0)),
        (numbered(8, epoch=5), at(1)),
        (numbered(7, epoch=5), at(0)),
        (numbered(0, epoch=4), refused(STALE_EPOCH)),
    ],
    "numbers begin anew after the last": [
        (numbered(LAST_SEQUENCE - 1, 2), at(0)),
        (numbered(0), at(2)),
        (numbered(LAST_SEQUENCE - 1, 2), at(0)),
        (numbered(1), at(3)),
    ],
    "a batch may lie across the last number": [
        (numbered(LAST_SEQUENCE, 3), at(0)),
        (numbered(2), at(3)),
        (numbered(LAST_SEQUENCE, 3), at(0)),
        (numbered(3), at(4)),
    ],
}

PLAIN = encode([Record(value=b"a"), Record(value=b"b")])


def changed(position: int, content: bytes, *, mend: bool = True) -> bytes:
    """A sound batch with some bytes changed, and its checksum mended to fit them."""
    data = bytearray(PLAIN)
    data[position : position + len(content)] = content
    if mend:
        data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


def _int32(number: int) -> bytes:
    return struct.pack(">i", number)


MALFORMED: dict[str, tuple[Sent, int]] = {
    "nothing": (lambda _: b"", INVALID),
    "half a header": (lambda _: PLAIN[:30], INVALID),
    "all but the last byte": (lambda _: PLAIN[:-1], INVALID),
    "two batches": (lambda _: PLAIN + PLAIN, INVALID),
    "a flipped bit": (lambda _: changed(66, b"z", mend=False), CORRUPT),
    "format 0": (lambda _: changed(16, b"\x00"), INVALID),
    "format 1": (lambda _: changed(16, b"\x01"), INVALID),
    "more records than there are": (lambda _: changed(57, _int32(3)), INVALID),
    "fewer records than there are": (lambda _: changed(57, _int32(1)), INVALID),
    "no records": (lambda _: changed(57, _int32(0)), INVALID),
    "a negative number of records": (lambda _: changed(57, _int32(-1)), INVALID),
    "a last offset too low": (lambda _: changed(23, _int32(0)), INVALID),
    "a last offset too high": (lambda _: changed(23, _int32(7)), INVALID),
    "a negative last offset": (lambda _: changed(23, _int32(-1)), INVALID),
    "a record that reaches into the next": (lambda _: changed(61, b"\x10"), INVALID),
    "a control batch": (numbered(0, attributes=CONTROL), INVALID),
    "a transaction that was not begun": (numbered(0, attributes=TRANSACTIONAL), NOT_AUTHORIZED),
    "a negative sequence": (numbered(-1), INVALID),
}
