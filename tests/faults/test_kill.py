"""Twenty times `kill -9` under load: nothing acknowledged is lost, nothing is invented."""

import random
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from penstock import Log
from penstock.testing import LogServerProcess, wait_until
from tests.log.server.plain_client import PlainClient

ROUNDS = 20
PARTITIONS = 3
UNDER_WAY = 100  # records that a producer has sent and not heard of
GROUP = "readers"
CLIENT: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "log_level": 0,
}

Place = tuple[str, int]


class Writing(threading.Thread):
    """A producer that numbers its records in each partition, and notes what it hears of them."""

    def __init__(self, name: str, address: str, topic: str, **settings: Any) -> None:
        super().__init__(name=name, daemon=True)
        self.topic = topic
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # by partition and offset
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.failures: list[Any] = []
        self._room = threading.Semaphore(UNDER_WAY)
        self._stop_asked = threading.Event()
        self._producer = Producer(
            CLIENT
            | {"bootstrap.servers": address, "linger.ms": 1, "batch.size": 4_000}
            | {"acks": "all", "message.timeout.ms": 60_000}
            | settings
        )

    def run(self) -> None:
        luck = random.Random(self.name)
        while not self._stop_asked.is_set():
            if self._room.acquire(timeout=0.01):
                partition = luck.randrange(PARTITIONS)
                value = b"%s %d " % (self.name.encode(), len(self.sent[partition]))
                self.sent[partition].append(value.ljust(luck.randrange(20, 300), b"."))
                try:
                    self._producer.produce(
                        self.topic,
                        self.sent[partition][-1],
                        partition=partition,
                        on_delivery=self._heard,
                    )
                except KafkaException as error:
                    self.failures.append(error)
                    return
            self._producer.poll(0)
        self._producer.flush(30)

    def _heard(self, error: Any, message: Message) -> None:
        self._room.release()
        if error is not None:
            self.failures.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acknowledged[partition, offset] = value

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class Reading(threading.Thread):
    """A member of the group, which commits now and then what it has read."""

    def __init__(self, address: str, topics: list[str]) -> None:
        super().__init__(daemon=True)
        self.read: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self.committed: dict[Place, int] = {}  # and acknowledged
        self.failures: list[Any] = []
        self._stop_asked = threading.Event()
        self._consumer = Consumer(
            CLIENT
            | {"bootstrap.servers": address, "group.id": GROUP, "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False, "session.timeout.ms": 6_000}
            | {"heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50}
        )
        self._consumer.subscribe(topics)

    def run(self) -> None:
        while not self._stop_asked.is_set():
            for message in self._consumer.consume(200, timeout=0.1):
                if message.error() is None:
                    place = message.topic() or "", message.partition() or 0
                    self.read[place][message.offset() or 0] = message.value() or b""
            self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        try:
            places: list[TopicPartition] | None = self._consumer.commit(asynchronous=False)
        except KafkaException:
            return  # the server is away, or the group is being arranged anew
        for place in places or []:
            if place.error is None and place.offset >= 0:
                self.committed[place.topic, place.partition] = place.offset

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def committed_offsets(address: str) -> dict[Place, int]:
    with PlainClient(address) as client:
        answer = client.ask("offset_fetch", 5, group_id=GROUP, topics=None)
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in answer.topics
            for partition in topic.partitions
        }


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_twenty_rounds(tmp_path: Path) -> None:
    luck = random.Random(20)
    with LogServerProcess(tmp_path / "data") as server:
        topics = ["once", "at-least-once"]
        with PlainClient(server.address) as client:
            for topic in topics:
                client.create_topic(topic, PARTITIONS, segment_bytes=100_000)
        once: dict[str, Any] = {"enable.idempotence": True}
        ordered: dict[str, Any] = {"max.in.flight.requests.per.connection": 1}
        writers = [
            Writing("first", server.address, "once", **once),
            Writing("second", server.address, "once", **once, **{"compression.type": "lz4"}),
            Writing("third", server.address, "at-least-once", **ordered),
            Writing("fourth", server.address, "at-least-once", **ordered),
        ]
        readers = [Reading(server.address, topics) for _ in range(2)]
        for thread in (*writers, *readers):
            thread.start()
        for _ in range(ROUNDS):
            one_round(server, writers, readers, luck)
            assert "damaged" not in server.output
        for writer in writers:
            writer.stop()
        written = {topic: all_records(server.address, topic) for topic in topics}
        places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
        wait_until(
            lambda: all(
                written[topic][partition].keys()
                <= set().union(*(reader.read[topic, partition] for reader in readers))
                for topic, partition in places
            ),
            within=60,
            what="the group to read everything",
        )
        for reader in readers:
            reader.stop()
    check(writers, readers, written)


def one_round(
    server: LogServerProcess, writers: list[Writing], readers: list[Reading], luck: random.Random
) -> None:
    """Every writer is heard again, the group commits again, and then the server is killed."""
    heard = {writer: len(writer.acknowledged) for writer in writers}
    for writer in writers:
        enough = heard[writer] + luck.randrange(1, 300)
        wait_until(
            lambda writer=writer, enough=enough: (  # type: ignore[misc]
                writer.failures or len(writer.acknowledged) >= enough
            ),
            within=60,
            what=f"{writer.name} to be heard",
        )
        assert not writer.failures
    before = committed_offsets(server.address)
    wait_until(
        lambda: committed_offsets(server.address) != before, within=60, what="the group to go on"
    )
    server.kill()
    acknowledged = [item for each in readers for item in dict(each.committed).items()]
    server.restart()
    committed = committed_offsets(server.address)
    assert not [(place, at) for place, at in acknowledged if committed[place] < at]


def all_records(address: str, topic: str) -> list[dict[int, bytes]]:
    """By partition, then by offset."""
    with Log.connect(address) as log:
        return [
            {record.position.offset: record.value or b"" for record in log.read(topic, each, 0)}
            for each in range(PARTITIONS)
        ]


def check(
    writers: list[Writing], readers: list[Reading], written: dict[str, list[dict[int, bytes]]]
) -> None:
    for writer in writers:
        assert not writer.failures
        assert sum(map(len, writer.sent)) > 10 * ROUNDS
        found = written[writer.topic]
        for (partition, offset), value in writer.acknowledged.items():
            assert found[partition][offset] == value
        for partition, values in enumerate(found):
            prefix = writer.name.encode() + b" "
            ours = [value for value in values.values() if value.startswith(prefix)]
            if writer.topic == "at-least-once":
                ours = list(dict.fromkeys(ours))  # what was sent again stands where it first stood
            assert ours == writer.sent[partition]
    for topic, partitions in written.items():
        for partition, values in enumerate(partitions):
            assert list(values) == list(range(len(values)))
            names = {writer.name.encode() for writer in writers if writer.topic == topic}
            assert {value.split()[0] for value in values.values()} <= names
            for reader in readers:
                read = reader.read[topic, partition]
                assert read == {offset: values[offset] for offset in read}
