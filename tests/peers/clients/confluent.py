"""confluent-kafka, on librdkafka."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

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
ANYWHERE = -1


class Confluent(Client):
    name = "confluent-kafka"
    cooperates = True
    endures = True

    def _settings(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
            **{name.replace("_", "."): setting for name, setting in more.items()},
        }

    # Records

    def feed(self, topic: str, how: Sending) -> Feed:
        settings = self._settings(
            compression_type=how.codec,
            acks=how.acks,
            enable_idempotence=how.idempotent,
            message_max_bytes=how.largest,
            message_timeout_ms=how.patience_ms,
            topic_metadata_propagation_max_ms=how.patience_ms,
        )
        return _Feed(Producer(settings), topic)

    def read(self, topic: str, how: Reading, into: Follower) -> None:
        settings = self._settings(
            group_id=how.group or "unused",
            auto_offset_reset=how.start,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=how.strategy,
            metadata_max_age_ms=3_000,
            max_partition_fetch_bytes=10_000_000,
            # The suite stops at a count: what lies in the client's queue was not read.
            enable_auto_offset_store=False,
        )
        if how.instance:
            settings["group.instance.id"] = how.instance
        consumer = Consumer(settings)
        try:
            if how.group:
                consumer.subscribe([topic])
            else:
                start = OFFSET_BEGINNING if how.start == "earliest" else OFFSET_END
                count = self.topics()[topic]
                consumer.assign([TopicPartition(topic, index, start) for index in range(count)])
            while not into.done:
                message = consumer.poll(0.1)
                if message is None:
                    continue
                if error := message.error():
                    if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise Refused(str(error))
                    continue
                into.received.append(_record(message))
                if how.group:
                    consumer.store_offsets(message)
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        consumer = Consumer(self._settings(group_id="unused"))
        try:
            place = TopicPartition(topic, partition, timestamp)
            if timestamp < 0:
                bounds = consumer.get_watermark_offsets(place, timeout=WITHIN)
                return int(bounds[0 if timestamp == -2 else 1])
            (found,) = consumer.offsets_for_times([place], timeout=WITHIN)
            if found.offset >= 0:
                return int(found.offset)
            return int(consumer.get_watermark_offsets(place, timeout=WITHIN)[1])
        finally:
            consumer.close()

    def transact(self, topic: str) -> None:
        producer = Producer(self._settings(transactional_id=topic))
        try:
            producer.init_transactions(WITHIN)
        except KafkaException as refused:
            raise Refused(str(refused)) from refused

    # Topics

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._settings())

    def topics(self) -> dict[str, int]:
        found = self._admin.list_topics(timeout=WITHIN).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(settings))
        _result(self._admin.create_topics([new]))

    def delete(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic]))

    def add_partitions(self, topic: str, total: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(topic, total)]))

    def trim(self, topic: str, partition: int, before: int) -> None:
        _result(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def settings(self, topic: str) -> dict[str, str]:
        found = _result(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in found.items()}

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        _result(self._admin.incremental_alter_configs([resource]))

    # Groups

    def groups(self) -> set[str]:
        found = self._admin.list_consumer_groups().result(WITHIN)
        return {group.group_id for group in found.valid}

    def members(self, group: str) -> int:
        return len(_result(self._admin.describe_consumer_groups([group])).members)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = _result(self._admin.list_consumer_group_offsets(asked))
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def rewind(self, group: str, topic: str) -> None:
        places = [TopicPartition(topic, index, 0) for index in range(self.topics()[topic])]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        _result(self._admin.alter_consumer_group_offsets(asked))

    def delete_group(self, group: str) -> None:
        _result(self._admin.delete_consumer_groups([group]))


class _Feed(Feed):
    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._errors: list[KafkaError] = []

    def send(self, record: Record) -> None:
        try:
            self._producer.produce(
                self._topic,
                record.value,
                record.key,
                timestamp=record.timestamp or 0,
                headers=list(record.headers),
                on_delivery=self._delivered,
                partition=ANYWHERE if record.partition is None else record.partition,
            )
        except KafkaException as refused:
            raise Refused(str(refused)) from refused
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def close(self) -> None:
        left = self._producer.flush(WITHIN)
        if self._errors or left:
            raise Refused(f"{left} left, {self._errors}")


def _record(message: Message) -> Record:
    _, timestamp = message.timestamp()
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),  # type: ignore[arg-type]
        timestamp=timestamp,
        topic=message.topic() or "",
        partition=message.partition(),
        offset=message.offset(),
    )


def _result(futures: Mapping[Any, Any]) -> Any:
    """What became of the one thing that was asked for."""
    (future,) = futures.values()
    try:
        return future.result(WITHIN)
    except KafkaException as refused:
        raise Refused(str(refused)) from refused
