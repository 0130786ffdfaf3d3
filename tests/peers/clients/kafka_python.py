"""kafka-python."""

import warnings
from collections.abc import Mapping
from typing import Any

with warnings.catch_warnings():
    # It reads its schemas in a way that the standard library discourages.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, OffsetSpec
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

from penstock.events.record import Record
from tests.peers.clients.contract import (
    COOPERATIVE,
    HEARTBEAT_MS,
    RANGE,
    SESSION_MS,
    Client,
    Feed,
    Follower,
    Reading,
    Refused,
    Sending,
)

ASSIGNORS = {RANGE: RangePartitionAssignor, COOPERATIVE: CooperativeStickyAssignor}
WITHIN = 30.0


class KafkaPython(Client):
    name = "kafka-python"
    cooperates = True
    endures = True

    def _settings(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "reconnect_backoff_max_ms": 500,
            "metadata_max_age_ms": 1_000,
            **more,
        }

    # Records

    def feed(self, topic: str, how: Sending) -> Feed:
        producer = KafkaProducer(
            **self._settings(
                compression_type=None if how.codec == "none" else how.codec,
                acks=how.acks if how.acks == "all" else int(how.acks),
                enable_idempotence=how.idempotent,
                max_request_size=how.largest,
                delivery_timeout_ms=how.patience_ms,
                request_timeout_ms=how.patience_ms // 3,
                max_block_ms=how.patience_ms,
            )
        )
        return _Feed(producer, topic)

    def read(self, topic: str, how: Reading, into: Follower) -> None:
        consumer = KafkaConsumer(
            **self._settings(
                group_id=how.group,
                auto_offset_reset=how.start,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                partition_assignment_strategy=(ASSIGNORS[how.strategy],),
                group_instance_id=how.instance,
                max_partition_fetch_bytes=10_000_000,
                max_poll_records=1,  # so that what is committed is what was taken
            )
        )
        try:
            if how.group:
                consumer.subscribe([topic])
            else:
                places = [TopicPartition(topic, index) for index in range(self.topics()[topic])]
                consumer.assign(places)
            while not into.done:
                # It loses its place in the group when a poll ends in the middle of a join.
                for records in consumer.poll(timeout_ms=2_000).values():
                    into.received.extend(_record(each) for each in records)
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        place = TopicPartition(topic, partition)
        consumer = KafkaConsumer(**self._settings())
        try:
            if timestamp == -2:
                return int(consumer.beginning_offsets([place])[place])
            if timestamp >= 0 and (found := consumer.offsets_for_times({place: timestamp})[place]):
                return int(found.offset)
            return int(consumer.end_offsets([place])[place])
        finally:
            consumer.close()

    def transact(self, topic: str) -> None:
        producer = KafkaProducer(**self._settings(transactional_id=topic, max_block_ms=20_000))
        try:
            producer.init_transactions()
        except KafkaError as refused:
            raise Refused(repr(refused)) from refused
        finally:
            producer.close(timeout=5)

    # Topics

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        admin = KafkaAdminClient(**self._settings())
        try:
            return getattr(admin, method)(*arguments, **options)
        except KafkaError as refused:
            raise Refused(repr(refused)) from refused
        finally:
            admin.close()

    def topics(self) -> dict[str, int]:
        described = self._ask("describe_topics")
        return {topic["name"]: len(topic["partitions"]) for topic in described}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self._ask("create_topics", [NewTopic(topic, partitions, 1, topic_configs=dict(settings))])

    def delete(self, topic: str) -> None:
        self._ask("delete_topics", [topic])

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask("create_partitions", {topic: NewPartitions(total)})

    def trim(self, topic: str, partition: int, before: int) -> None:
        self._ask("delete_records", {TopicPartition(topic, partition): before})

    def settings(self, topic: str) -> dict[str, str]:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
        described = self._ask("describe_configs", asked, config_filter="all")
        (found,) = (each for kinds in described.values() for each in kinds.values())
        return {name: entry["value"] for name, entry in found.items()}

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        changes = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
        answer = self._ask("alter_configs", [changes], incremental=True)
        if answer["topic"][topic] != "OK":
            raise Refused(answer["topic"][topic])

    # Groups

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._ask("list_groups")}

    def members(self, group: str) -> int:
        (found,) = self._ask("describe_groups", [group]).values()
        return len(found["members"])

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        found = self._ask("list_group_offsets", {group: None})[group]
        return {(place.topic, place.partition): each.offset for place, each in found.items()}

    def rewind(self, group: str, topic: str) -> None:
        places = [TopicPartition(topic, index) for index in range(self.topics()[topic])]
        self._ask("reset_group_offsets", group, dict.fromkeys(places, OffsetSpec.EARLIEST))

    def delete_group(self, group: str) -> None:
        self._ask("delete_groups", [group])


class _Feed(Feed):
    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._sent: list[Any] = []

    def send(self, record: Record) -> None:
        try:
            future = self._producer.send(
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
            for future in self._sent:
                future.get(timeout=WITHIN)
        except KafkaError as refused:
            raise Refused(repr(refused)) from refused
        finally:
            self._producer.close(timeout=5)


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
