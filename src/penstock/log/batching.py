"""Records cut into batches that a topic takes."""

from collections.abc import Iterable, Iterator, Sequence

from penstock.errors import RecordTooLarge
from penstock.events.batch import HEADER_BYTES, encode
from penstock.events.record import Record

BATCH_BYTES = 512 * 1024
RECORD_OVERHEAD = 40  # more than a record's own fields take at the most


def cut(places: Sequence[int], records: Sequence[Record], limit: int) -> Iterator[list[int]]:
    """Cuts what goes to one partition into batches within the limit; a larger record is its own."""
    room = min(BATCH_BYTES, limit) - HEADER_BYTES
    some: list[int] = []
    size = 0
    for place in places:
        record = records[place]
        weight = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        weight += sum(len(name) * 3 + len(value or b"") for name, value in record.headers)
        if some and size + weight > room:
            yield some
            some, size = [], 0
        some.append(place)
        size += weight
    if some:
        yield some


def encode_within(records: Sequence[Record], topic: str, limit: int) -> bytes:
    """One batch. Raises RecordTooLarge when it is above the topic's limit."""
    batch = encode(records)
    if len(batch) > limit:
        raise RecordTooLarge(
            f"a record of {len(batch)} bytes does not fit topic {topic!r}",
            hint=f"its max_message_bytes is {limit}; raise it or send less",
        )
    return batch


def encode_batches(records: Iterable[Record], topic: str, limit: int) -> bytes:
    """The records as batches one after the other, for `Writer.append_encoded`; b"" for none.

    `limit` is the topic's max_message_bytes. Raises RecordTooLarge.
    """
    everything = list(records)
    return b"".join(
        encode_within([everything[place] for place in some], topic, limit)
        for some in cut(range(len(everything)), everything, limit)
    )
