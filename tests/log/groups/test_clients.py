"""Consumers of three makers share a topic, hand it over, and come through a crash of the log."""

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing import LogServerProcess, wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how kafka-python reads its schemas
    from kafka import KafkaConsumer
    from kafka.structs import OffsetAndMetadata

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

PARTITIONS = 4
RECORDS = 200
QUIET = {"log_level": 0}


class Client(Protocol):
    """A consumer in group `g` of topic `t`."""

    def poll(self) -> list[bytes]: ...

    def commit(self) -> None: ...

    def assigned(self) -> set[int]: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, address: str, **settings: Any) -> None:
        self.rebalances = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 20,
            }
            | settings
            | QUIET
        )
        self.consumer.subscribe(["t"], on_assign=self._count)

    def _count(self, consumer: Consumer, places: list[Place]) -> None:
        self.rebalances += 1

    def poll(self) -> list[bytes]:
        messages = self.consumer.consume(500, 0.02)
        return [message.value() or b"" for message in messages if not message.error()]

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def assigned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    def __init__(self, address: str) -> None:
        self.consumer = KafkaConsumer(
            "t",
            bootstrap_servers=address,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=20,
        )

    def poll(self) -> list[bytes]:
        # With shorter waits it loses answers that come quickly, on Apache Kafka as well.
        polled = self.consumer.poll(timeout_ms=500)
        return [record.value for records in polled.values() for record in records]

    def commit(self) -> None:
        self.consumer.commit(
            {
                place: OffsetAndMetadata(self.consumer.position(place), "", -1)
                for place in self.consumer.assignment()
            }
        )

    def assigned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class Aiokafka:
    """On a loop that goes on while nobody polls, so that heartbeats are sent."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._run(self._start(address))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self, address: str) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=20,
            retry_backoff_ms=20,
        )
        self.consumer.subscribe(["t"])
        await self.consumer.start()

    def poll(self) -> list[bytes]:
        polled = self._run(self.consumer.getmany(timeout_ms=20))
        return [record.value for records in polled.values() for record in records]

    def commit(self) -> None:
        self._run(self.consumer.commit())

    def assigned(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def close(self) -> None:
        self._run(self.consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


MAKERS: list[Callable[[str], Client]] = [Confluent, KafkaPython, Aiokafka]


@pytest.fixture
def log(log_server: LogServerProcess) -> LogServerProcess:
    """A log with a topic `t` and the records 0 to 199 in it, spread evenly."""
    admin = AdminClient({"bootstrap.servers": log_server.address} | QUIET)
    admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(10)
    produce(log_server, range(RECORDS))
    return log_server


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def produce(log: LogServerProcess, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": log.address} | QUIET)
    for number in numbers:
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(10) == 0


def read(clients: list[Client], count: int) -> list[int]:
    """So many records, or more, in order, whoever got them."""
    got: list[int] = []

    def enough() -> bool:
        for client in clients:
            got.extend(map(int, client.poll()))
        return len(got) >= count

    wait_until(enough, within=30, what=f"{count} records")
    return sorted(got)


def shared(clients: list[Client]) -> None:
    """Waits until the partitions are divided among all clients, without what they read."""

    def divided() -> bool:
        for client in clients:
            assert client.poll() == []
        parts = [client.assigned() for client in clients]
        return all(parts) and sorted(p for part in parts for p in part) == list(range(PARTITIONS))

    wait_until(divided, within=30, what="a division of the partitions")


@pytest.mark.parametrize("maker", MAKERS)
def test_members_share_a_topic_and_hand_it_over(
    log: LogServerProcess, stack: ExitStack, maker: Callable[[str], Client]
) -> None:
    first = stack.enter_context(closing(maker(log.address)))
    assert read([first], RECORDS) == list(range(RECORDS))
    first.commit()
    second = maker(log.address)
    shared([first, second])
    produce(log, range(RECORDS, 2 * RECORDS))
    assert read([first, second], RECORDS) == list(range(RECORDS, 2 * RECORDS))
    first.commit()
    second.commit()
    second.close()
    shared([first])
    produce(log, range(2 * RECORDS, 3 * RECORDS))
    assert read([first], RECORDS) == list(range(2 * RECORDS, 3 * RECORDS))


@pytest.mark.parametrize("maker", MAKERS)
def test_a_group_goes_on_where_it_committed(
    log: LogServerProcess, stack: ExitStack, maker: Callable[[str], Client]
) -> None:
    first = maker(log.address)
    read([first], RECORDS)
    first.commit()
    first.close()
    log.kill()
    log.restart()
    produce(log, range(RECORDS, RECORDS + 8))
    second = stack.enter_context(closing(maker(log.address)))
    assert read([second], 8) == list(range(RECORDS, RECORDS + 8))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_go_on_without_a_rebalance_when_the_log_was_killed(
    log: LogServerProcess, stack: ExitStack, strategy: str
) -> None:
    first, second = two(log, stack, **{"partition.assignment.strategy": strategy})
    produce(log, range(RECORDS, 2 * RECORDS))
    read([first, second], RECORDS)
    first.commit()
    second.commit()
    rebalances = first.rebalances, second.rebalances
    log.kill()
    log.restart()
    produce(log, range(2 * RECORDS, 3 * RECORDS))
    assert read([first, second], RECORDS) == list(range(2 * RECORDS, 3 * RECORDS))
    first.commit()
    second.commit()
    assert (first.rebalances, second.rebalances) == rebalances


def two(log: LogServerProcess, stack: ExitStack, **how: Any) -> tuple[Confluent, Confluent]:
    """Two members that share the topic, after the first has read and committed all of it."""
    first = stack.enter_context(closing(Confluent(log.address, **how)))
    read([first], RECORDS)
    first.commit()
    second = stack.enter_context(closing(Confluent(log.address, **how)))
    shared([first, second])
    return first, second


def test_a_static_member_is_replaced_without_a_rebalance(
    log: LogServerProcess, stack: ExitStack
) -> None:
    stays = stack.enter_context(closing(Confluent(log.address, **{"group.instance.id": "i"})))
    read([stays], RECORDS)
    stays.commit()
    goes = Confluent(log.address, **{"group.instance.id": "j"})
    shared([stays, goes])
    rebalances, had = stays.rebalances, goes.assigned()
    goes.close()
    comes = stack.enter_context(closing(Confluent(log.address, **{"group.instance.id": "j"})))
    shared([stays, comes])
    assert (stays.rebalances, comes.assigned()) == (rebalances, had)


def test_a_second_process_with_the_same_name_fences_the_first(
    log: LogServerProcess, stack: ExitStack
) -> None:
    how = {"group.instance.id": "i"}
    first = stack.enter_context(closing(Confluent(log.address, **how)))
    read([first], RECORDS)
    first.commit()
    second = stack.enter_context(closing(Confluent(log.address, **how)))

    def fenced() -> bool:
        second.poll()
        message = first.consumer.poll(0.02)
        error = message.error() if message else None
        return error is not None and "fenced" in error.str()

    wait_until(fenced, within=20, what="the first one's end")
    shared([second])


def test_an_administrator_looks_moves_and_deletes(log: LogServerProcess, stack: ExitStack) -> None:
    admin = AdminClient({"bootstrap.servers": log.address} | QUIET)
    client = Confluent(log.address, **{"client.id": "reader"})
    read([client], RECORDS)
    client.commit()
    described = admin.describe_consumer_groups(["g"])["g"].result(10)
    (member,) = described.members
    assert described.state.name == "STABLE"
    assert described.partition_assignor == "range"
    assert (member.client_id, member.host) == ("reader", "127.0.0.1")
    assert {p.partition for p in member.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(KafkaException, match="not empty"):
        admin.delete_consumer_groups(["g"])["g"].result(10)
    client.close()

    listed = admin.list_consumer_groups().result(10).valid
    assert [(group.group_id, group.state.name) for group in listed] == [("g", "EMPTY")]
    moved = ConsumerGroupTopicPartitions("g", [Place("t", 2, 7)])
    (place,) = admin.alter_consumer_group_offsets([moved])["g"].result(10).topic_partitions
    assert place.error is None
    asked = ConsumerGroupTopicPartitions("g", [Place("t", 2), Place("t", 3)])
    found = admin.list_consumer_group_offsets([asked])["g"].result(10).topic_partitions
    assert [(place.partition, place.offset) for place in found] == [(2, 7), (3, 50)]
    admin.delete_consumer_groups(["g"])["g"].result(10)
    assert admin.list_consumer_groups().result(10).valid == []


def test_a_deleted_topic_takes_its_offsets_with_it(log: LogServerProcess) -> None:
    client = Confluent(log.address)
    read([client], RECORDS)
    client.commit()
    client.close()
    admin = AdminClient({"bootstrap.servers": log.address} | QUIET)
    admin.delete_topics(["t"])["t"].result(10)
    everything = ConsumerGroupTopicPartitions("g")
    found = admin.list_consumer_group_offsets([everything])["g"].result(10)
    assert found.topic_partitions == []


def test_a_transactional_producer_is_told_at_once(log_server: LogServerProcess) -> None:
    settings = {"bootstrap.servers": log_server.address, "transactional.id": "x"}
    producer = Producer(settings | QUIET, logger=_Silence())
    with pytest.raises(KafkaException, match="no transactions yet") as failed:
        producer.init_transactions(20)
    assert failed.value.args[0].fatal()


class _Silence:
    """A fatal error is logged whatever the level."""

    def log(self, *arguments: Any, **more: Any) -> None: ...
