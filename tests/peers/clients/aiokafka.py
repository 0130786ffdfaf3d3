"""aiokafka, each call on an event loop of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, for_code

from penstock.events.record import Record
from tests.peers.clients.contract import (
    HEARTBEAT_MS,
    SESSION_MS,
    Client,
    Feed,
    Follower,
    Reading,
    Refused,
    Sending,
)

WITHIN = 30.0


class AioKafka(Client):
    name = "aiokafka"
    endures = True

    def _settings(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap_servers": self.address, "metadata_max_age_ms": 1_000, **more}

    # Records

    def feed(self, topic: str, how: Sending) -> Feed:
        settings = self._settings(
            compression_type=None if how.codec == "none" else how.codec,
            acks=how.acks if how.acks == "all" else int(how.acks),
            enable_idempotence=how.idempotent,
            max_request_size=how.largest,
            request_timeout_ms=how.patience_ms,
            max_batch_size=max(how.largest, 16_384),
        )
        return _Feed(lambda: AIOKafkaProducer(**settings), topic)

    def read(self, topic: str, how: Reading, into: Follower) -> None:
        asyncio.run(self._read(topic, how, into))

    async def _read(self, topic: str, how: Reading, into: Follower) -> None:
        consumer = AIOKafkaConsumer(
            **self._settings(
                group_id=how.group,
                auto_offset_reset=how.start,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                partition_assignment_strategy=(RangePartitionAssignor,),
                group_instance_id=how.instance,
                max_partition_fetch_bytes=10_000_000,
            )
        )
        if how.group:
            consumer.subscribe([topic])
        await consumer.start()
        try:
            if not how.group:
                count = await asyncio.to_thread(lambda: self.topics()[topic])
                consumer.assign([TopicPartition(topic, index) for index in range(count)])
            while not into.done:
                found = await consumer.getmany(timeout_ms=100, max_records=1)
                for records in found.values():
                    into.received.extend(_record(each) for each in records)
        finally:
            await consumer.stop()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        place = TopicPartition(topic, partition)

        async def look() -> int:
            consumer = AIOKafkaConsumer(**self._settings())
            await consumer.start()
            try:
                if timestamp == -2:
                    return int((await consumer.beginning_offsets([place]))[place])
                if timestamp >= 0:
                    found = (await consumer.offsets_for_times({place: timestamp}))[place]
                    if found is not None:
                        return int(found.offset)
                return int((await consumer.end_offsets([place]))[place])
            finally:
                await consumer.stop()

        return int(_run(look()))

    def transact(self, topic: str) -> None:
        async def begin() -> None:
            producer = AIOKafkaProducer(**self._settings(transactional_id=topic))
            try:
                await producer.start()
            finally:
                await producer.stop()

        _run(begin())

    # Topics

    def _ask(self, question: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return _run(asked())

    def topics(self) -> dict[str, int]:
        described = self._ask(lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(settings))
        _check(self._ask(lambda admin: admin.create_topics([new])).topic_errors)

    def delete(self, topic: str) -> None:
        _check(self._ask(lambda admin: admin.delete_topics([topic])).topic_error_codes)

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def trim(self, topic: str, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition)
        self._ask(lambda admin: admin.delete_records({place: RecordsToDelete(before)}))

    def settings(self, topic: str) -> dict[str, str]:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
        (answer,) = self._ask(lambda admin: admin.describe_configs(asked))
        ((code, message, _, _, entries),) = answer.resources
        _check([(topic, code, message)])
        return {entry[0]: entry[1] for entry in entries}

    # Groups

    def groups(self) -> set[str]:
        return {name for name, *_ in self._ask(lambda admin: admin.list_consumer_groups())}

    def members(self, group: str) -> int:
        (answer,) = self._ask(lambda admin: admin.describe_consumer_groups([group]))
        (described,) = answer.groups
        return len(described[5])

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        found = self._ask(lambda admin: admin.list_consumer_group_offsets(group))
        return {(place.topic, place.partition): each.offset for place, each in found.items()}


class _Feed(Feed):
    """Its loop runs on a thread, as it must go on while the test does something else."""

    def __init__(self, open_producer: Callable[[], AIOKafkaProducer], topic: str) -> None:
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._sent: list[asyncio.Future[Any]] = []
        try:
            self._do(self._start(open_producer))
        except BaseException:
            self._end()
            raise

    def _do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(WITHIN + 20)

    async def _start(self, open_producer: Callable[[], AIOKafkaProducer]) -> None:
        self._producer = open_producer()
        await self._producer.start()

    def send(self, record: Record) -> None:
        self._do(self._send(record))

    async def _send(self, record: Record) -> None:
        try:
            future = await self._producer.send(
                self._topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
        except KafkaError as refused:
            raise Refused(repr(refused)) from refused
        self._sent.append(future)

    def close(self) -> None:
        try:
            self._do(self._finish())
        finally:
            self._end()

    async def _finish(self) -> None:
        try:
            await asyncio.wait_for(asyncio.gather(*self._sent), WITHIN)
        except KafkaError as refused:
            raise Refused(repr(refused)) from refused
        finally:
            await self._producer.stop()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()


def _run(what: Coroutine[Any, Any, Any]) -> Any:
    try:
        return asyncio.run(asyncio.wait_for(what, WITHIN))
    except KafkaError as refused:
        raise Refused(repr(refused)) from refused


def _check(errors: list[tuple[Any, ...]]) -> None:
    for name, code, *message in errors:
        if code:
            raise Refused(f"{name}: {for_code(code).__name__} {message}")


def _record(found: Any) -> Record:
    return Record(
        value=found.value,
        key=found.key,
        headers=tuple(found.headers),
        timestamp=found.timestamp,
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
    )
