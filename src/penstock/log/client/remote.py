"""The log behind an address, served by penstock or by Apache Kafka."""

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from penstock import clock
from penstock.errors import (
    GroupNotEmpty,
    GroupNotFound,
    InvalidInput,
    InvalidPolicy,
    LogClosed,
    LogError,
    LogUnreachable,
    PartitionNotFound,
    RecordTooLarge,
    StorageFailed,
    TopicNotFound,
)
from penstock.events.batch import encode
from penstock.events.record import Position, Record
from penstock.log.client.connection import meaning, meaningful, settings
from penstock.log.client.delivery import SharedProducer
from penstock.log.client.direct import Direct
from penstock.log.client.follower import Follower
from penstock.log.client.reading import out_of_range, read_partition
from penstock.log.client.subscription import Subscription
from penstock.log.contract import (
    Bounds,
    GroupDescription,
    GroupLag,
    Log,
    Start,
    TopicDescription,
)
from penstock.log.partitioner import Partitioner
from penstock.log.policy import SETTINGS, Setting, TopicPolicy, check_topic_name
from penstock.log.writer import Expected, Writer, append_expecting, check_one_place

MAX_PARTITIONS = 100_000  # what the client can name
_FIRST_CONTACT = 5.0  # seconds for the first answer; later ones have the whole time limit
_PAUSE = 0.005
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_FRESH = 1.0  # seconds for which an append trusts what it knows of a topic
_BATCH_BYTES = 1_000_000
_INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
_STILL_THERE = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
}

Place = tuple[str, int]
Answer = TypeVar("Answer")


class _Facts(NamedTuple):
    """What an append must know of a topic, and when it was asked."""

    partitions: int
    max_message_bytes: int
    asked: float


class RemoteLog(Log):
    """Safe to use from several threads. Topics are never made by the way, only by `create`.

    `time_limit` bounds each call, in seconds. When an append runs into it, it is not known
    whether the records that were not confirmed are stored.
    """

    def __init__(self, address: str, *, time_limit: float = 30.0) -> None:
        """Raises LogUnreachable when nothing answers within a few seconds."""
        self._address = address
        self._limit = time_limit
        self._partitioner = Partitioner()
        self._facts: dict[str, _Facts] = {}
        self._producers: dict[int, SharedProducer] = {}
        self._lock = Lock()
        own = settings(address)
        self._client: AdminClient | None = AdminClient(own)
        self._direct = Direct(own["bootstrap.servers"], time_limit)
        contact = self._admin.describe_cluster(request_timeout=min(_FIRST_CONTACT, time_limit))
        _answer(contact, f"no log answers at {address}")

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            raise LogClosed("this log has been closed", hint="open it again")
        return self._client

    # Topics

    def create(self, topic: str, *, partitions: int = 1, **policy: Setting) -> None:
        check_topic_name(topic)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidPolicy(
                f"a topic cannot have {partitions} partitions", hint=f"1 to {MAX_PARTITIONS}"
            )
        new = NewTopic(topic, partitions, config=_texts(policy))  # type: ignore[arg-type]
        created = self._admin.create_topics([new], request_timeout=self._limit)
        _answer(created[topic], f"topic {topic!r} cannot be created")
        self._await(lambda: self._ready(topic, partitions), f"topic {topic!r} is there")

    def alter(self, topic: str, *, partitions: int | None = None, **policy: Setting | None) -> None:
        present = self._partition_count(topic)
        if changes := _texts(policy):
            self._alter_settings(topic, changes)
        if partitions is not None and partitions != present:
            more = [NewPartitions(topic, partitions)]
            added = self._admin.create_partitions(more, request_timeout=self._limit)
            _answer(added[topic], f"topic {topic!r} cannot have {partitions} partitions")
            self._await(lambda: self._ready(topic, partitions), f"topic {topic!r} has grown")
        self._facts.pop(topic, None)

    def _alter_settings(self, topic: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                name,
                text or "",
                incremental_operation=(
                    AlterConfigOpType.DELETE if text is None else AlterConfigOpType.SET
                ),
            )
            for name, text in changes.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        altered = self._admin.incremental_alter_configs([resource], request_timeout=self._limit)
        _answer(altered[resource], f"topic {topic!r} cannot be altered")

        def known() -> bool:
            entries = self._settings(topic)
            return all(
                entries[name].is_default if text is None else entries[name].value == text
                for name, text in changes.items()
            )

        self._await(known, f"the settings of topic {topic!r} have changed")

    def delete(self, topic: str) -> None:
        deleted = self._admin.delete_topics([topic], request_timeout=self._limit)
        _answer(deleted[topic], f"topic {topic!r} cannot be deleted")
        self._facts.pop(topic, None)
        self._await(lambda: topic not in self.topics(), f"topic {topic!r} is gone")

    def topics(self) -> list[str]:
        with meaningful(f"no list of topics from {self._address}"):
            return sorted(self._admin.list_topics(timeout=self._limit).topics.keys() - _INTERNAL)

    def describe(self, topic: str) -> TopicDescription:
        described = self._described(topic)
        places = [(topic, partition.id) for partition in described.partitions]
        bounds = self._bounds(places)
        return TopicDescription(
            name=topic,
            id=UUID(bytes=base64.b64decode(f"{described.topic_id}==")),
            policy=_policy({name: entry.value for name, entry in self._settings(topic).items()}),
            partitions=tuple(bounds[place] for place in sorted(places)),
        )

    def _described(self, topic: str) -> Any:
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._limit)
        return _answer(asked[topic], f"topic {topic!r} cannot be found")

    def _partition_count(self, topic: str) -> int:
        return len(self._described(topic).partitions)

    def _ready(self, topic: str, partitions: int) -> bool:
        """Whether so many partitions answer: they are announced before their leader is up."""
        try:
            self._offsets([(topic, each) for each in range(partitions)], _LATEST)
        except LogError:
            return False
        return True

    def _settings(self, topic: str) -> dict[str, ConfigEntry]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        asked = self._admin.describe_configs([resource], request_timeout=self._limit)
        return _answer(asked[resource], f"no settings of topic {topic!r}")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for what was confirmed to be seen: a cluster's brokers learn of it one by one."""
        deadline = clock.monotonic() + self._limit
        while not condition():
            if clock.monotonic() > deadline:
                raise LogUnreachable(
                    f"waited {self._limit:g} s until {what}",
                    hint="it was confirmed; look again once all brokers are up",
                )
            clock.sleep(_PAUSE)

    # Records

    def append(
        self, topic: str, records: Iterable[Record], *, expected: Expected | None = None
    ) -> list[Position]:
        batch = list(records)
        facts = self._facts.get(topic)
        if facts is None or clock.monotonic() - facts.asked > _FRESH:
            facts = self._facts[topic] = _Facts(
                self._partition_count(topic),
                int(self._settings(topic)["max.message.bytes"].value or 0),
                clock.monotonic(),
            )
        places = self._partitioner.place(topic, batch, facts.partitions)
        if expected is not None:
            check_one_place(topic, batch, places, facts.partitions)
            return append_expecting(self._direct, topic, batch, places[0], expected)
        for record in batch:
            _check(record, topic, facts.max_message_bytes)
        try:
            return self._producer(facts.max_message_bytes).append(topic, batch, places)
        except LogUnreachable as silence:
            self._facts.pop(topic, None)
            if self._answers():
                # The client tries again where a disk fails, and tells only that time ran out.
                raise StorageFailed(
                    f"topic {topic!r} took nothing for {self._limit:g} s, though the log answers",
                    hint="its disk is full or failing; the server's messages say which",
                ) from silence
            raise
        except LogError:
            self._facts.pop(topic, None)
            raise

    def _answers(self) -> bool:
        try:
            _answer(self._admin.describe_cluster(request_timeout=_FIRST_CONTACT), "")
        except LogError:
            return False
        return True

    def _producer(self, max_message_bytes: int) -> SharedProducer:
        # A log refuses a whole batch above the topic's limit, and librdkafka does not split one.
        size = min(max_message_bytes, _BATCH_BYTES)
        with self._lock:
            producer = self._producers.get(size)
            if producer is None or producer.broken:
                producer = self._producers[size] = SharedProducer(
                    self._address, batch_bytes=size, time_limit=self._limit
                )
            return producer

    def open_writer(self, name: str) -> Writer:
        return Writer(self._direct, name)

    def append_times(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[int, int]]:
        return self._direct.append_times(topic, partition, start, end)

    def read(
        self, topic: str, partition: int, offset: int, *, limit: int | None = None
    ) -> Iterator[Record]:
        self._check_partition(topic, partition)
        yield from read_partition(self._address, topic, partition, offset, limit, self._limit)

    def follow(self, topic: str, offsets: Mapping[int, int], *, grow: bool = False) -> Follower:
        for partition in offsets:
            self._check_partition(topic, partition)
        bounds = self._bounds([(topic, partition) for partition in offsets])
        for (_, partition), (start, end) in bounds.items():
            if not start <= offsets[partition] <= end:
                raise out_of_range(topic, partition, offsets[partition], Bounds(start, end))
        ends = {partition: end for (_, partition), (_, end) in bounds.items()}
        return Follower(self._address, topic, offsets, ends, grow=grow, time_limit=self._limit)

    # Offsets

    def bounds(self, topic: str, partition: int) -> Bounds:
        self._check_partition(topic, partition)
        return self._bounds([(topic, partition)])[topic, partition]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        self._check_partition(topic, partition)
        place = (topic, partition)
        found = self._offsets([place], OffsetSpec.for_timestamp(max(timestamp, 0)))
        return found[place] if found[place] >= 0 else self.bounds(topic, partition).end

    def trim(self, topic: str, partition: int, offset: int) -> None:
        bounds = self.bounds(topic, partition)
        if not 0 <= offset <= bounds.end:
            raise out_of_range(topic, partition, offset, bounds)
        place = TopicPartition(topic, partition, offset)
        trimmed = self._admin.delete_records([place], request_timeout=self._limit)
        _answer(trimmed[place], f"{topic}/{partition} cannot be trimmed")

    def _check_partition(self, topic: str, partition: int) -> None:
        count = self._partition_count(topic)
        if not 0 <= partition < count:
            raise PartitionNotFound(
                f"topic {topic!r} has no partition {partition}",
                hint=f"it has {count}, numbered from 0",
            )

    def _bounds(self, places: Collection[Place]) -> dict[Place, Bounds]:
        starts = self._offsets(places, _EARLIEST)
        ends = self._offsets(places, _LATEST)
        return {place: Bounds(starts[place], ends[place]) for place in places}

    def _offsets(self, places: Collection[Place], which: OffsetSpec) -> dict[Place, int]:
        try:
            return self._listed_offsets(places, which)
        except (TopicNotFound, PartitionNotFound):
            # The client remembers for long what was not there once; listing all topics helps it.
            self.topics()
            return self._listed_offsets(places, which)

    def _listed_offsets(self, places: Collection[Place], which: OffsetSpec) -> dict[Place, int]:
        asked = self._admin.list_offsets(
            {TopicPartition(*place): which for place in places},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._limit,
        )
        return {
            (place.topic, place.partition): _answer(
                answer, f"no offsets of {place.topic}/{place.partition}"
            ).offset
            for place, answer in asked.items()
        }

    # Groups

    def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest"
    ) -> Subscription:
        return Subscription(self._address, group, topics, start=start)

    def groups(self) -> list[str]:
        asked = self._admin.list_consumer_groups(request_timeout=self._limit)
        listing = _answer(asked, f"no list of groups from {self._address}")
        for failed in listing.errors:
            raise meaning(failed.args[0], "the list of groups is not complete")
        return sorted(group.group_id for group in listing.valid)

    def describe_group(self, group: str) -> GroupDescription:
        asked = self._admin.describe_consumer_groups([group], request_timeout=self._limit)
        described = _answer(asked[group], f"group {group!r} cannot be found")
        if described.state is ConsumerGroupState.DEAD:
            raise GroupNotFound(f"there is no group {group!r}", hint="see the list of groups")
        listed = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=self._limit
        )
        committed = {
            (each.topic, each.partition): each.offset
            for each in _answer(listed[group], f"no offsets of group {group!r}").topic_partitions
        }
        owners = {
            (each.topic, each.partition): member.member_id
            for member in described.members
            for each in member.assignment.topic_partitions
        }
        ends = self._offsets(committed.keys() | owners.keys(), _LATEST)
        return GroupDescription(
            name=group,
            state=described.state.name.title().replace("_", "").replace("Rebalancing", "Rebalance"),
            members=tuple(sorted(member.member_id for member in described.members)),
            lags=tuple(
                GroupLag(*place, committed.get(place, -1), end, owners.get(place, ""))
                for place, end in sorted(ends.items())
            ),
        )

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        for (topic, partition), offset in offsets.items():
            self._check_partition(topic, partition)
            if offset < 0:
                raise InvalidInput(
                    f"group {group!r} cannot go to offset {offset}", hint="0 is the first"
                )
        if not offsets:
            return
        wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=self._limit
        )
        what = f"the offsets of group {group!r} cannot be set"
        for each in _answer(asked[group], what).topic_partitions:
            if each.error is None:
                continue
            if each.error.code() in _STILL_THERE:
                raise GroupNotEmpty(f"group {group!r} has members", hint="close them first")
            raise meaning(each.error, what)

    def delete_group(self, group: str) -> None:
        deleted = self._admin.delete_consumer_groups([group], request_timeout=self._limit)
        _answer(deleted[group], f"group {group!r} cannot be deleted")

    def close(self) -> None:
        self._client = None
        self._direct.close()
        self._facts.clear()
        with self._lock:
            for producer in self._producers.values():
                producer.close()
            self._producers.clear()


def _answer(future: "Future[Answer]", what: str) -> Answer:
    with meaningful(what):
        return future.result()


def _texts(policy: Mapping[str, Setting | None]) -> dict[str, str | None]:
    """The given settings alone, checked, as text and by their names on the wire.

    What is not given is left to the server, whose defaults may differ from TopicPolicy's.
    """
    checked = TopicPolicy().changed(policy).settings()
    texts: dict[str, str | None] = {}
    for given, setting in policy.items():
        name = given.replace("_", ".")
        name = name if name in SETTINGS else f"{name}.ms"
        texts[name] = None if setting is None else checked[name]
    return texts


def _policy(texts: Mapping[str, str | None]) -> TopicPolicy:
    """The policy that a server reports, as it stands there.

    Settings that penstock does not have are left out. A server that does not say how it syncs
    is Kafka, which leaves that to the operating system.
    """
    given: dict[str, Any] = {"durability": "os"}
    for field in fields(TopicPolicy):
        text = texts.get(field.name.replace("_", "."))
        if text is not None:
            given[field.name] = int(text) if field.type is int else text
    return TopicPolicy(**given)


def _check(record: Record, topic: str, max_message_bytes: int) -> None:
    """Refuses what the server would refuse, before anything of the append is on its way."""
    if record.timestamp is not None and record.timestamp < 1:
        raise InvalidInput(
            f"a record for topic {topic!r} has the timestamp {record.timestamp}",
            hint="over the wire, the earliest is 1 (milliseconds since 1970)",
        )
    content = len(record.key or b"") + len(record.value or b"")
    if record.headers:
        content += sum(len(name) + len(value or b"") for name, value in record.headers)
    # Sizes are only counted out near the limit: the format adds less than is added here.
    if content * 4 + 100 > max_message_bytes and len(encode([record])) > max_message_bytes:
        raise RecordTooLarge(
            f"a record of {content} bytes does not fit topic {topic!r}",
            hint=f"its max_message_bytes is {max_message_bytes}; raise it or send less",
        )
