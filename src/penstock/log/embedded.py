"""A log in this process: on disk, owned by it, or in memory.

Appending and reading go straight to the storage. Groups are a matter of the wire: the log serves
itself on loopback when the first subscription asks, and others may then connect to it as well.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from penstock.events.batch import decode
from penstock.events.record import Position, Record
from penstock.log.batching import cut, encode_within
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
from penstock.log.writer import Expected, Writer, append_expecting, check_one_place
from penstock.log.writers import durable

READ_BYTES = 1024 * 1024

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

    def append(
        self, topic: str, records: Iterable[Record], *, expected: Expected | None = None
    ) -> list[Position]:
        self._engine.check_open()
        found = self._engine.topics.get(topic)
        everything, limit = list(records), found.policy.max_message_bytes
        indexes = self._partitioner.place(topic, everything, len(found.partitions))
        if expected is not None:
            check_one_place(topic, everything, indexes, len(found.partitions))
            exact = self._engine.writers
            return append_expecting(exact, topic, everything, indexes[0], expected)
        places: dict[int, list[int]] = defaultdict(list)
        for place, index in enumerate(indexes):
            places[index].append(place)
        # All is encoded and checked before any of it is written.
        batches = [
            (
                found.partition(index),
                some,
                encode_within([everything[place] for place in some], topic, limit),
            )
            for index, chosen in places.items()
            for some in cut(chosen, everything, limit)
        ]
        positions: dict[int, Position] = {}
        waits: dict[Partition, int] = {}
        for partition, some, batch in batches:
            appended = partition.append(memoryview(batch))
            waits[partition] = appended.next_offset
            for number, place in enumerate(some):
                positions[place] = Position(topic, partition.index, appended.base_offset + number)
        for wait in [durable(partition, offset) for partition, offset in waits.items()]:
            wait.result()
        return [positions[place] for place in range(len(everything))]

    def open_writer(self, name: str) -> Writer:
        self._engine.check_open()
        return Writer(self._engine.writers, name)

    def append_times(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[int, int]]:
        self._engine.check_open()
        return self._engine.writers.append_times(topic, partition, start, end)

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
