"""Small facts by key that must survive: a partition that repeats what holds and forgets the rest.

The groups keep their offsets and generations in one. A put costs one append and shares its sync
with the puts around it. When more has been appended than the facts weigh, they are all appended
once more and what stands before them is forgotten, so that a put costs a constant on average.

A damaged journal keeps nothing from opening: the facts that can be read hold. One that stood in the
damaged bytes is lost, or is what it was before, so that a group may read some records once more.
The damaged files stay under names of their own, and the journal begins anew without them.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from itertools import islice
from pathlib import Path

from penstock.errors import CorruptBatch, StorageFailed
from penstock.events.batch import decode, encode
from penstock.events.record import Record
from penstock.log.policy import FOREVER, TopicPolicy
from penstock.log.storage.partition import Partition
from penstock.log.storage.salvage import check_start, missing_start, set_aside, sound_records

Done = Callable[[Exception | None], None]

log = logging.getLogger(__name__)

READ_BYTES = 4 * 1024 * 1024
REPEAT_AFTER_BYTES = 1024 * 1024
FACTS_A_BATCH = 1000
POLICY = TopicPolicy(
    retention_ms=FOREVER, segment_bytes=REPEAT_AFTER_BYTES, max_message_bytes=2**31 - 1
)
UNREADABLE_FILE = "facts.damaged"


class Journal:
    """Used from one thread at a time, or with the caller's own order among puts of one key."""

    def __init__(self, folder: Path | None, syncs: Executor) -> None:
        """Reads all facts that can be read; `damage` says where others stood."""
        self.damage: list[CorruptBatch] = []
        self._folder = folder
        lost = check_start(folder) if folder else None
        self._partition = Partition(folder, "journal", 0, POLICY, syncs)
        if folder and not lost:
            lost = missing_start(folder, self._partition)
        self.damage += [lost] if lost else []
        self._lock = threading.Lock()
        self._facts: dict[bytes, bytes] = {}
        self._weight = 0
        self._appended = 0
        try:
            self._load()
        except CorruptBatch:
            self._load_past_damage()
        if self.damage:
            self._begin_anew()

    def _load_past_damage(self) -> None:
        self._facts, self._weight, self._appended = {}, 0, 0
        for found in sound_records(self._partition):
            if isinstance(found, CorruptBatch):
                self.damage.append(found)
            else:
                self._set(found.key or b"", found.value)

    def _begin_anew(self) -> None:
        """Keeps the damaged files under other names, and writes the facts that are left once more.
        Where the disk refuses that, the next opening finds the same damage."""
        for each in self.damage:
            log.error("the journal of the groups is damaged: %s", each.message)
        log.error(
            "%d facts about groups could be read. What stood in the damaged places is lost or "
            "as it was before: some groups may read again what they have read already",
            len(self._facts),
        )
        try:
            for file in dict.fromkeys(each.file for each in self.damage):
                if kept := set_aside(Path(file)):
                    log.error("the damaged file is kept as %s", kept)
            self._partition.roll()  # what is appended from now on stands in another file
            if not self._facts:
                self._append({b"": None})  # the start moves only where something was appended
        except (OSError, StorageFailed) as error:
            log.error("the damaged journal stays as it is: %s", error)
        else:
            self._repeat_or_later()

    def set_aside(self, key: bytes, why: str) -> None:
        """Removes a fact that means nothing to its reader; it is kept, as text, in a file beside
        the others."""
        log.error("the journal of the groups holds what nobody can read, %r: %s", key, why)
        line = {"key": _text(key), "fact": _text(self._facts[key]), "why": why}
        try:
            if self._folder is not None:
                with (self._folder / UNREADABLE_FILE).open("a") as file:
                    file.write(json.dumps(line) + "\n")
            self.put({key: None})
        except (OSError, StorageFailed) as error:
            log.error("it stays in the journal, as it cannot be kept elsewhere: %s", error)

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


def _text(content: bytes) -> str:
    return content.decode(errors="backslashreplace")
