"""Appends that ask for more than Produce: whole or not at all, once for a writer, on a condition.

A writer is a producer whose id is FIRST_WRITER or above, and whose base sequence is the number of
its append, the same in all batches of one. A batch with the attribute CONTINUES is not the last of
its append: where the log ends in one, a crash cut the append off, and recovery takes the rest of it
away. Kafka leaves that bit to whoever wants it, and its clients do not look at it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import CorruptBatch, RecordTooLarge, VersionConflict
from penstock.events.batch import APPEND_TIME, CODEC_MASK, CRC_FROM, BatchHeader, check_produced

FIRST_WRITER = 2**62
NOBODY = FIRST_WRITER  # appends that must be whole, but are nobody's
CONTINUES = 0x4000

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qhi")
_CRC_AT = 17
_PRODUCER_AT = 43


class Claim(NamedTuple):
    """Who appends, which of its appends it is, and under which condition.

    `expected` is the last offset of the partition, or of each of these keys in it.
    """

    writer: int = NOBODY
    batch: int = 0
    expected: int | Mapping[bytes, int] | None = None

    @property
    def needs_keys(self) -> bool:
        return isinstance(self.expected, Mapping)

    def check_version(self, where: str, last: int, last_of: Callable[[bytes], int]) -> None:
        """Raises VersionConflict unless the last offsets, of all and of a key, are as expected."""
        if isinstance(self.expected, Mapping):
            found = [
                (f"{key!r} in {where}", due, last_of(key)) for key, due in self.expected.items()
            ]
        elif self.expected is None:
            return
        else:
            found = [(where, self.expected, last)]
        for what, due, actual in found:
            if actual != due:
                raise VersionConflict(
                    f"the last offset of {what} is {actual}, not {due}",
                    actual=actual,
                    hint="read what was appended since, decide again, and append to that version",
                )

    def put_on(self, data: memoryview, headers: Sequence[BatchHeader]) -> list[BatchHeader]:
        """Signs the batches, which are changed in place; returns their headers as they are then."""
        if self.writer == NOBODY and len(headers) == 1:
            return [*headers]  # whole by itself
        signed, at = [], 0
        for number, header in enumerate(headers, 1):
            attributes = header.attributes & (CODEC_MASK | APPEND_TIME)
            attributes |= CONTINUES if number < len(headers) else 0
            _ATTRIBUTES.pack_into(data, at + CRC_FROM, attributes)
            _PRODUCER.pack_into(data, at + _PRODUCER_AT, self.writer, 0, self.batch)
            crc = crc32c(data[at + CRC_FROM : at + header.size])
            _CRC.pack_into(data, at + _CRC_AT, crc)
            signed.append(
                header._replace(
                    attributes=attributes,
                    crc=crc,
                    producer_id=self.writer,
                    producer_epoch=0,
                    base_sequence=self.batch,
                )
            )
            at += header.size
        return signed


def admit(data: memoryview, topic: str, max_bytes: int) -> list[BatchHeader]:
    """The headers of the batches, all of them such as a producer may send to the topic."""
    headers: list[BatchHeader] = []
    at = 0
    while at < len(data) or not headers:
        header = check_produced(data, at)
        if header.size > max_bytes:
            raise RecordTooLarge(
                f"a batch of {header.size} bytes, {topic} takes {max_bytes}",
                hint="raise the topic's max.message.bytes or send smaller batches",
            )
        headers.append(header)
        at += header.size
    return headers


def check_not_a_writer(header: BatchHeader) -> None:
    if header.producer_id >= FIRST_WRITER:
        raise CorruptBatch(f"producer id {header.producer_id} is a writer's")


Placed = tuple[int, BatchHeader]
"""A batch and its position in the segment."""


class Appends:
    """Goes along with the batches of a segment and holds back those of an append until its end."""

    def __init__(self) -> None:
        self.unfinished: list[Placed] = []

    def see(self, position: int, header: BatchHeader) -> Iterator[Placed]:
        """The batches that are known to be of whole appends now."""
        held = self.unfinished[-1][1] if self.unfinished else header
        if (held.producer_id, held.base_sequence) != (header.producer_id, header.base_sequence):
            yield from self.release()  # damage took its end
        self.unfinished.append((position, header))
        if header.producer_id < FIRST_WRITER or not header.attributes & CONTINUES:
            yield from self.release()

    def release(self) -> Iterable[Placed]:
        held, self.unfinished = self.unfinished, []
        return held

    def cut_at(self, durable: int) -> Placed | None:
        """The first batch of an append that was never acknowledged and has no end."""
        first = self.unfinished[0] if self.unfinished else None
        return first if first and first[1].base_offset >= durable else None
