"""A writer: one name under which one process at a time appends, each of its batches once.

    writer = log.open_writer("revenue")                  # whoever had the name before is fenced
    last = writer.last_batch("totals", 0)
    writer.append("totals", {0: records}, batch=last + 1)

It stands on what every log must offer for that, the class Exact, and so do appends on a condition.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.errors import InvalidInput
from penstock.events.batch import Buffer
from penstock.events.record import Position, Record
from penstock.log.batching import encode_batches

MAX_BATCH = 2**31 - 1
MAX_NAME = 249

Expected = int | Mapping[bytes, int]
"""The last offset of the partition, or of each of these keys in it; -1 where there must be none."""


class Pen(NamedTuple):
    """A writer as the log knows it: of two with one name, the lower epoch is fenced."""

    name: str
    epoch: int


class Piece(NamedTuple):
    """Batches for one partition, stored whole or not at all.

    `pen` and `batch` say which append of which writer it is, if it is one's. Such a piece may be
    stored again after an answer was lost: it is skipped then.
    """

    topic: str
    partition: int
    batches: Buffer
    pen: Pen | None = None
    batch: int = 0
    expected: Expected | None = None


class Stored(NamedTuple):
    """The offsets that a piece has; one that is not new was stored before, and was skipped."""

    offsets: range
    is_new: bool


class Exact(ABC):
    """Appends that say exactly what they expect, and are stored exactly once."""

    @abstractmethod
    def open_writer(self, name: str) -> Pen: ...

    @abstractmethod
    def last_batch(self, pen: Pen, topic: str, partition: int) -> int: ...

    @abstractmethod
    def store(self, pieces: Sequence[Piece]) -> list[Stored]:
        """Returns once all are durable. When it raises, some of the pieces may be stored."""

    @abstractmethod
    def max_message_bytes(self, topic: str) -> int: ...

    @abstractmethod
    def append_times(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[int, int]]: ...


class Writer:
    """Made by `Log.open_writer`. To be used by one thread at a time."""

    def __init__(self, exact: Exact, name: str) -> None:
        self._exact = exact
        self._pen = exact.open_writer(name)

    @property
    def name(self) -> str:
        return self._pen.name

    @property
    def epoch(self) -> int:
        """Counts how often a writer of this name was opened."""
        return self._pen.epoch

    def last_batch(self, topic: str, partition: int) -> int:
        """The last batch of this name that is durable in the partition, -1 if there is none.

        Raises WriterFenced.
        """
        return self._exact.last_batch(self._pen, topic, partition)

    def append(
        self,
        topic: str,
        records: Mapping[int, Iterable[Record]],
        *,
        batch: int,
        expected: Expected | None = None,
    ) -> dict[int, range | None]:
        """Stores the records of each partition at most once, and all of them or none.

        Returns their offsets by partition, or None where the batch was skipped: its number is not
        above the last one that this name stored there. Numbers are from 0 to 2**31 - 1 and only
        grow in a partition, with gaps as you like. A partition without records is left out, and
        its last batch stays what it was. `expected` is as in `Log.append`, for one partition; it
        is not looked at when the batch is skipped. Raises WriterFenced once another writer of this
        name was opened; when it raises, the partitions may differ, and the same batch again
        completes it.
        """
        limit = self._exact.max_message_bytes(topic)
        encoded = {
            partition: encode_batches(some, topic, limit) for partition, some in records.items()
        }
        return self.append_encoded(topic, encoded, batch=batch, expected=expected)

    def append_encoded(
        self,
        topic: str,
        batches: Mapping[int, Buffer],
        *,
        batch: int,
        expected: Expected | None = None,
    ) -> dict[int, range | None]:
        """As append, of record batches one after the other, as `encode_batches` gives them.

        What they say of their producer is replaced. Raises CorruptBatch, RecordTooLarge.
        """
        if expected is not None and len(batches) != 1:
            raise _not_one(topic, len(batches))
        pieces = [
            Piece(topic, partition, some, self._pen, batch, expected)
            for partition, some in batches.items()
            if len(some)
        ]
        stored = self._exact.store(pieces)
        return {
            piece.partition: one.offsets if one.is_new else None
            for piece, one in zip(pieces, stored, strict=True)
        }


def append_expecting(
    exact: Exact, topic: str, records: Sequence[Record], partition: int, expected: Expected
) -> list[Position]:
    """Log.append with `expected`, of records that all go to this partition."""
    # A connection that ended meanwhile is noticed by this question, which can be asked again.
    limit = exact.max_message_bytes(topic)
    batches = encode_batches(records, topic, limit)
    stored = exact.store([Piece(topic, partition, batches, expected=expected)])[0]
    return [Position(topic, partition, offset) for offset in stored.offsets]


def check_one_place(
    topic: str, records: Sequence[Record], places: Sequence[int], partitions: int
) -> None:
    """Raises InvalidInput unless the records, by themselves, all go to one partition."""
    adrift = any(record.key is None and record.partition is None for record in records)
    if len(set(places)) != 1 or (adrift and partitions > 1):
        raise _not_one(topic, len(set(places)))


def _not_one(topic: str, count: int) -> InvalidInput:
    where = f"to {count} partitions of {topic!r}" if count != 1 else "wherever it is their turn"
    return InvalidInput(
        f"records that expect a version go to one partition, not {where}",
        hint="give all records the same key, or the same partition",
    )
