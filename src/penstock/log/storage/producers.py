"""Idempotent producers: what each has written to a partition, so that a retry is not stored twice.

A producer numbers its records in each partition. The last five batches of each are remembered, as
many as a producer may have under way; a batch seen before is answered with its first position.

A writer numbers its appends instead, with numbers that only grow, and is never forgotten: one whose
number is not above the last was stored before.
"""

import json
from collections import deque
from typing import NamedTuple

from penstock.errors import OutOfOrderSequence, StaleProducerEpoch
from penstock.events.batch import BatchHeader
from penstock.log.storage.claims import FIRST_WRITER, NOBODY

REMEMBERED_BATCHES = 5
EXPIRES_MS = 86_400_000
_SEQUENCES = 2**31


class Appended(NamedTuple):
    """`append_time` is -1 where records keep their producer's time; an old one was there before."""

    base_offset: int
    next_offset: int
    append_time: int
    is_new: bool = True


class Written(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time: int

    @property
    def again(self) -> Appended:
        """The answer to who sends it once more."""
        return Appended(self.base_offset, self.last_offset + 1, self.append_time, is_new=False)


class _Producer:
    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int, batches: list[Written]) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.batches = deque(batches, REMEMBERED_BATCHES)


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


class Producers:
    def __init__(self) -> None:
        self._by_id: dict[int, _Producer] = {}
        self._writers: dict[int, deque[Written]] = {}

    def last_of(self, writer: int) -> Written | None:
        """A writer's last append; both of its sequences are the append's number."""
        appends = self._writers.get(writer)
        return appends[-1] if appends else None

    def check(self, header: BatchHeader) -> Written | None:
        """Where this very batch stands already, or None when it is the one expected next.

        A producer that is not known may begin with any number: its records may have been deleted.
        """
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(
                f"producer {header.producer_id} has epoch {producer.epoch}, "
                f"this batch has {header.producer_epoch}",
                hint="another producer took over this id; stop this one",
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise self._out_of_order(header, 0)
            return None
        last = _last_sequence(header)
        for batch in producer.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last):
                return batch
        expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise self._out_of_order(header, expected)
        return None

    def _out_of_order(self, header: BatchHeader, expected: int) -> OutOfOrderSequence:
        return OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, "
            f"{expected} was expected",
            hint="a batch before this one was lost; the producer must not skip it",
        )

    def note(self, header: BatchHeader, base_offset: int, append_time: int, now: int) -> None:
        if header.producer_id >= FIRST_WRITER:
            self._note_writer(header, base_offset, append_time)
            return
        producer = self._by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._by_id[header.producer_id] = _Producer(header.producer_epoch, now, [])
        producer.seen_ms = now
        producer.batches.append(
            Written(
                header.base_sequence,
                _last_sequence(header),
                base_offset,
                base_offset + header.last_offset_delta,
                append_time,
            )
        )

    def _note_writer(self, header: BatchHeader, base_offset: int, append_time: int) -> None:
        if header.producer_id == NOBODY:
            return
        appends = self._writers.setdefault(header.producer_id, deque(maxlen=REMEMBERED_BATCHES))
        batch, last_offset = header.base_sequence, base_offset + header.last_offset_delta
        if appends and appends[-1].first_sequence == batch:  # one more batch of the same append
            appends[-1] = appends[-1]._replace(last_offset=last_offset)
        else:
            appends.append(Written(batch, batch, base_offset, last_offset, append_time))

    def forget_from(self, offset: int) -> None:
        """Forgets what stands at `offset` and behind it: a crash took it, and a retry brings it."""
        for number, producer in list(self._by_id.items()):
            kept = [batch for batch in producer.batches if batch.last_offset < offset]
            if kept:
                producer.batches = deque(kept, REMEMBERED_BATCHES)
            else:
                del self._by_id[number]
        for appends in self._writers.values():
            while appends and appends[-1].last_offset >= offset:
                appends.pop()

    def dump(self, next_offset: int, now: int) -> bytes:
        """All writers, and all producers seen within a day, as of `next_offset`.

        The other producers are forgotten.
        """
        self._by_id = {i: p for i, p in self._by_id.items() if now - p.seen_ms < EXPIRES_MS}
        producers = [
            [number, producer.epoch, producer.seen_ms, list(producer.batches)]
            for number, producer in self._by_id.items()
        ]
        writers = [[number, list(appends)] for number, appends in self._writers.items()]
        dump = {"next_offset": next_offset, "producers": producers, "writers": writers}
        return json.dumps(dump).encode()

    def load(self, content: bytes) -> int:
        """Takes over a dump; returns the offset from which on batches are still to be noted."""
        dump = json.loads(content)
        for number, epoch, seen_ms, batches in dump["producers"]:
            self._by_id[number] = _Producer(epoch, seen_ms, [Written(*batch) for batch in batches])
        for number, appends in dump.get("writers", ()):
            self._writers[number] = deque((Written(*one) for one in appends), REMEMBERED_BATCHES)
        return int(dump["next_offset"])
