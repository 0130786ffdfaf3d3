"""The writers of a log and their appends, where the log is.

A writer's name leads to a number, by which its batches are known in the partitions, and to an
epoch, which is raised on disk before anybody is told of it.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from penstock.errors import InvalidInput, PenstockError, VersionConflict, WriterFenced
from penstock.log.storage.claims import FIRST_WRITER, Claim
from penstock.log.storage.files import storage_error, write_atomically
from penstock.log.storage.partition import Partition
from penstock.log.storage.producers import Appended
from penstock.log.writer import MAX_BATCH, MAX_NAME, Exact, Pen, Piece, Stored

if TYPE_CHECKING:
    from penstock.log.engine import Engine

WRITERS_FILE = "writers.json"


class _Known:
    """What is known of a name. The lock is held while batches are written under it.

    So none of an older writer's is under way when another has been opened.
    """

    __slots__ = ("epoch", "lock", "number")

    def __init__(self, number: int, epoch: int) -> None:
        self.number = number
        self.epoch = epoch
        self.lock = threading.Lock()


class Writers(Exact):
    """May be used from several threads."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._path = engine.folder and engine.folder / WRITERS_FILE
        self._known: dict[str, _Known] = {}
        self._opening = threading.Lock()
        if self._path is not None and self._path.exists():
            for name, (number, epoch) in json.loads(self._path.read_text()).items():
                self._known[name] = _Known(number, epoch)

    def open_writer(self, name: str) -> Pen:
        if not 0 < len(name) <= MAX_NAME:
            raise InvalidInput(
                f"a writer's name of {len(name)} characters", hint=f"1 to {MAX_NAME}"
            )
        self._engine.check_open()
        with self._opening:
            known = self._known.get(name) or _Known(
                FIRST_WRITER + self._engine.new_producer_id(), 0
            )
            facts = {each: (at.number, at.epoch) for each, at in self._known.items()}
            facts[name] = (known.number, known.epoch + 1)
            if self._path is not None:
                try:
                    write_atomically(self._path, json.dumps(facts, indent=1).encode())
                except OSError as error:
                    raise storage_error(error, f"opening the writer {name!r}") from error
            with known.lock:
                known.epoch += 1
                self._known[name] = known
                return Pen(name, known.epoch)

    @contextmanager
    def _holding(self, pen: Pen) -> Iterator[int]:
        """The writer's number, as long as no other one of its name is opened."""
        known = self._known.get(pen.name)
        with known.lock if known else nullcontext():
            if known is None or known.epoch != pen.epoch:
                raise WriterFenced(
                    f"writer {pen.name!r} has epoch {known.epoch if known else 0} by now, "
                    f"this one has {pen.epoch}",
                    hint="another process took over the name; stop this one",
                )
            yield known.number

    def _partition(self, topic: str, partition: int) -> Partition:
        self._engine.check_open()
        return self._engine.topics.get(topic).partition(partition)

    def last_batch(self, pen: Pen, topic: str, partition: int) -> int:
        found = self._partition(topic, partition)
        with self._holding(pen) as number:
            last = found.last_append_of(number)
        if last is None:
            return -1
        durable(found, last.last_offset + 1).result()
        return last.last_sequence

    def store(self, pieces: Sequence[Piece]) -> list[Stored]:
        written: list[tuple[Partition, Appended]] = []
        refusal: PenstockError | None = None
        for piece in pieces:
            try:
                written.append(self._write(piece))
            except PenstockError as error:
                refusal = error
                break
        waits = [durable(partition, appended.next_offset) for partition, appended in written]
        for wait in waits:
            wait.result()
        if refusal is not None:
            raise refusal
        return [
            Stored(range(appended.base_offset, appended.next_offset), appended.is_new)
            for _, appended in written
        ]

    def _write(self, piece: Piece) -> tuple[Partition, Appended]:
        if not 0 <= piece.batch <= MAX_BATCH:
            raise InvalidInput(f"a batch number of {piece.batch}", hint=f"0 to {MAX_BATCH}")
        partition = self._partition(piece.topic, piece.partition)
        data = memoryview(piece.batches)
        if data.readonly:
            data = memoryview(bytearray(data))
        try:
            if piece.pen is None:
                return partition, partition.append(data, Claim(expected=piece.expected))
            with self._holding(piece.pen) as number:
                claim = Claim(number, piece.batch, piece.expected)
                return partition, partition.append(data, claim)
        except VersionConflict as conflict:
            # Whoever is told of a version can read it.
            durable(partition, conflict.actual + 1).result()
            raise

    def max_message_bytes(self, topic: str) -> int:
        return self._engine.topics.get(topic).policy.max_message_bytes

    def append_times(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[int, int]]:
        if start > end:
            raise InvalidInput(f"offset {start} is behind {end}", hint="give the lower one first")
        return self._partition(topic, partition).append_times.in_force(start, end)


def durable(partition: Partition, offset: int) -> Future[None]:
    """Done when everything before `offset` is synced."""
    future: Future[None] = Future()

    def done(error: Exception | None) -> None:
        future.set_exception(error) if error else future.set_result(None)

    partition.when_durable(offset, done)
    return future
