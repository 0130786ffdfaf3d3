"""A log in this process: on disk, owned by it, or in memory.

Appending and reading go straight to the storage. Groups are a matter of the wire: the log serves
itself on loopback when the first subscription asks, and others may then connect to it as well.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from penstock.errors import RecordTooLarge
from penstock.events.batch import HEADER_BYTES, decode, encode
from penstock.events.record import Position, Record
from penstock.log.client.follower import Follower
from penstock.log.client.remote import RemoteLog
from penstock.log.client.subscription import Subscription
from penstock.log.contract import Bounds, GroupDescription, Log, Start, TopicDescription
from penstock.log.engine import Engine
from penstock.log.partitioner import Partitioner
from penstock.log.policy import Setting
from penstock.log.server.server import Server
from penstock.log.server.settings import ServerSettings
from penstock.log.storage.partition import Partition
from penstock.log.storage.times import first_at
from penstock.log.topics import Topic

READ_BYTES = 1024 * 1024
BATCH_BYTES = 512 * 1024
RECORD_OVERHEAD = 40  # more than a record's own fields take at the most

T = TypeVar("T")


class EmbeddedLog(Log):
    def __init__(self, folder: Path | None) -> None:
        self._engine = Engine(folder)
        self._partitioner = Partitioner()
        self._lock = threading.Lock()
        self._service: Service | None = None

    def serve(self, listen: str = "127.0.0.1:0", settings: ServerSettings | None = None) -> str:
        """Serves this log to Kafka clients from a thread of its own; returns the address."""
        self._engine.check_open()
        with self._lock:
            if self._service is None:
                self._service = Service(self._engine, listen, settings or ServerSettings())
            return self._service.address

    @cached_property
    def _wire(self) -> RemoteLog:
        return RemoteLog(self.serve())

    def _partition(self, topic: str, partition: int) -> Partition:
        self._engine.check_open()
        return self._engine.topics.get(topic).partition(partition)

    def create(self, topic: str, *, partitions: int = 1, **policy: Setting) -> None:
        self._engine.check_open()
        self._engine.topics.create(topic, partitions, policy)

    def alter(self, topic: str, *, partitions: int | None = None, **policy: Setting | None) -> None:
        self._engine.check_open()
        found = self._engine.topics.get(topic)
        if policy:
            self._engine.topics.alter(topic, policy)
        if partitions is not None and partitions != len(found.partitions):
            self._engine.topics.add_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        self._engine.check_open()
        if any(self._engine.journal.items()):
            self.serve()  # the groups must hear of it, or a topic of the same name inherits offsets
        self._engine.topics.delete(topic)

    def topics(self) -> list[str]:
        self._engine.check_open()
        return self._engine.topics.names()

    def describe(self, topic: str) -> TopicDescription:
        self._engine.check_open()
        found = self._engine.topics.get(topic)
        bounds = tuple(Bounds(p.start_offset, p.end_offset) for p in found.partitions)
        return TopicDescription(found.name, found.id, found.policy, bounds)

    def append(self, topic: str, records: Iterable[Record]) -> list[Position]:
        self._engine.check_open()
        found = self._engine.topics.get(topic)
        everything = list(records)
        places: dict[int, list[int]] = defaultdict(list)
        for place, index in enumerate(
            self._partitioner.place(topic, everything, len(found.partitions))
        ):
            places[index].append(place)
        # All is encoded and checked before any of it is written.
        batches = [
            (found.partition(index), some, self._encode(found, everything, some))
            for index, chosen in places.items()
            for some in _batches(chosen, everything, found.policy.max_message_bytes)
        ]
        positions: dict[int, Position] = {}
        waits: dict[Partition, int] = {}
        for partition, some, batch in batches:
            appended = partition.append(memoryview(batch))
            waits[partition] = appended.next_offset
            for number, place in enumerate(some):
                positions[place] = Position(topic, partition.index, appended.base_offset + number)
        for wait in [_durable(partition, offset) for partition, offset in waits.items()]:
            wait.result()
        return [positions[place] for place in range(len(everything))]

    def _encode(self, topic: Topic, records: list[Record], places: list[int]) -> bytes:
        batch = encode([records[place] for place in places])
        limit = topic.policy.max_message_bytes
        if len(batch) > limit:
            raise RecordTooLarge(
                f"a record of {len(batch)} bytes does not fit topic {topic.name!r}",
                hint=f"its max_message_bytes is {limit}; raise it or send less",
            )
        return batch

    def read(
        self, topic: str, partition: int, offset: int, *, limit: int | None = None
    ) -> Iterator[Record]:
        source = self._partition(topic, partition)
        end = source.end_offset
        source.check_offset(offset)
        while offset < end and (limit is None or limit > 0):
            found = source.slice(offset, READ_BYTES)
            if found is None:
                return
            for record in decode(memoryview(found.read()), topic=topic, partition=partition):
                at = record.position.offset
                if at < offset:
                    continue
                if at >= end or limit == 0:
                    return
                yield record
                offset = at + 1
                limit = limit if limit is None else limit - 1

    def follow(self, topic: str, offsets: Mapping[int, int], *, grow: bool = False) -> Follower:
        return self._wire.follow(topic, offsets, grow=grow)

    def bounds(self, topic: str, partition: int) -> Bounds:
        found = self._partition(topic, partition)
        return Bounds(found.start_offset, found.end_offset)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        source = self._partition(topic, partition)
        found = first_at(source, timestamp)
        return source.end_offset if found is None else found.offset

    def trim(self, topic: str, partition: int, offset: int) -> None:
        found = self._partition(topic, partition)
        found.check_offset(offset if offset < 0 else max(offset, found.start_offset))
        found.forget_before(offset)

    def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest"
    ) -> Subscription:
        return self._wire.subscribe(group, topics, start=start)

    def groups(self) -> list[str]:
        return self._wire.groups()

    def describe_group(self, group: str) -> GroupDescription:
        return self._wire.describe_group(group)

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self._wire.commit(group, offsets)

    def delete_group(self, group: str) -> None:
        self._wire.delete_group(group)

    def close(self) -> None:
        with self._lock:
            service, self._service = self._service, None
        try:
            if "_wire" in self.__dict__:
                self._wire.close()
            if service is not None:
                service.stop()
        finally:
            self._engine.close()


def _batches(places: list[int], records: list[Record], limit: int) -> Iterator[list[int]]:
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
    yield some


def _durable(partition: Partition, offset: int) -> Future[None]:
    """Done when everything before `offset` is synced."""
    future: Future[None] = Future()

    def done(error: Exception | None) -> None:
        future.set_exception(error) if error else future.set_result(None)

    partition.when_durable(offset, done)
    return future


class Service:
    """A server on an event loop of its own, in a thread."""

    def __init__(self, engine: Engine, listen: str, settings: ServerSettings) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-server", daemon=True
        )
        self._thread.start()
        try:
            self._server = self._call(_serve(engine, listen, settings))
        except BaseException:
            self._end()
            raise
        self.address = self._server.address

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._call(self._server.stop())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _serve(engine: Engine, listen: str, settings: ServerSettings) -> Server:
    server = Server(engine, settings)
    await server.start(listen)
    return server
