"""Small facts by key that must survive: a partition that repeats what holds and forgets the rest.

The groups keep their offsets and generations in one. A put costs one append and shares its sync
with the puts around it. When more has been appended than the facts weigh, they are all appended
once more and what stands before them is forgotten, so that a put costs a constant on average.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from itertools import islice
from pathlib import Path

from penstock.errors import StorageFailed
from penstock.events.batch import decode, encode
from penstock.events.record import Record
from penstock.log.policy import FOREVER, TopicPolicy
from penstock.log.storage.partition import Partition

Done = Callable[[Exception | None], None]

log = logging.getLogger(__name__)

READ_BYTES = 4 * 1024 * 1024
REPEAT_AFTER_BYTES = 1024 * 1024
FACTS_A_BATCH = 1000
POLICY = TopicPolicy(
    retention_ms=FOREVER, segment_bytes=REPEAT_AFTER_BYTES, max_message_bytes=2**31 - 1
)


class Journal:
    """Used from one thread at a time, or with the caller's own order among puts of one key."""

    def __init__(self, folder: Path | None, syncs: Executor) -> None:
        """Reads all facts. Raises CorruptBatch when the journal is damaged."""
        self._partition = Partition(folder, "journal", 0, POLICY, syncs)
        self._lock = threading.Lock()
        self._facts: dict[bytes, bytes] = {}
        self._weight = 0
        self._appended = 0
        self._load()

    def _load(self) -> None:
        partition = self._partition
        offset = partition.start_offset
        while found := partition.slice(offset, READ_BYTES):
            for record in decode(memoryview(found.read())):
                self._set(record.key or b"", record.value)
                offset = record.position.offset + 1
            self._appended += found.size

    def _set(self, key: bytes, fact: bytes | None) -> None:
        outdated = self._facts.pop(key, None)
        self._weight -= len(key) + len(outdated) if outdated is not None else 0
        if fact is not None:
            self._facts[key] = fact
            self._weight += len(key) + len(fact)

    def get(self, key: bytes) -> bytes | None:
        return self._facts.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._facts.items())

    def put(self, entries: Mapping[bytes, bytes | None], done: Done | None = None) -> None:
        """Sets these keys at once, None deleting one; visible now, `done` called once durable.

        `done` may be called on another thread, with the error when the disk refused.
        """
        with self._lock:
            end = self._append(entries)
            for key, fact in entries.items():
                self._set(key, fact)
            if self._appended > max(REPEAT_AFTER_BYTES, 2 * self._weight):
                self._repeat_or_later()
        self._partition.when_durable(end, done or (lambda error: None))

    def _append(self, entries: Mapping[bytes, bytes | None]) -> int:
        batch = encode([Record(key=key, value=fact) for key, fact in entries.items()])
        self._appended += len(batch)
        return self._partition.append(memoryview(batch)).next_offset

    def _repeat_or_later(self) -> None:
        try:
            self._repeat()
        except StorageFailed as error:  # the put itself is stored
            log.warning("the journal cannot be shortened: %s", error.message)

    def _repeat(self) -> None:
        start = self._partition.next_offset
        self._appended = 0
        facts = iter(self._facts.items())
        end = start
        while some := dict(islice(facts, FACTS_A_BATCH)):
            end = self._append(some)

        def forget(error: Exception | None) -> None:
            if error is None:
                try:
                    self._partition.forget_before(start)
                except StorageFailed as failure:
                    log.warning("the journal cannot be shortened: %s", failure.message)

        self._partition.when_durable(end, forget)

    def close(self) -> None:
        self._partition.close()
