from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from penstock import Log, Record
from penstock.events.batch import encode
from penstock.streams.source.punctuation import read_punctuation
from penstock.streams.source.topic import open_topic
from penstock.streams.spark.kafka_publishing import (
    KafkaPublisher,
    control_topic,
    create_control_topic,
)
from penstock.testing import KafkaProcess


@pytest.fixture
def address(kafka: KafkaProcess) -> str:
    return f"kafka://{kafka.address}"


@pytest.fixture
def publisher(address: str) -> KafkaPublisher:
    name = f"sink-{uuid4().hex}"
    with Log.connect(address) as log:
        log.create(name, partitions=2)
    create_control_topic(address, name)
    return KafkaPublisher(address, name, 2, name)


def batches(*values: bytes) -> bytes:
    return encode([Record(value=value, timestamp=7) for value in values])


def committed(address: str, topic: str) -> list[list[bytes | None]]:
    """The values in each partition, as those see them who leave open transactions out."""
    found = open_topic(address, topic)
    return [
        [
            value
            for batch in found.columns(number, *found.bounds(number), ["value"])
            for value in batch["value"].to_pylist()
        ]
        for number in range(found.partitions())
    ]


def test_a_batch_is_published_once(address: str, publisher: KafkaPublisher) -> None:
    topic = publisher._topic
    assert publisher.last_batch() == -1
    # The batches of two tasks for one partition both begin at offset 0.
    content = {0: batches(b"a", b"b") + batches(b"c")}
    publisher.publish(0, content, None)
    publisher.publish(0, content, None)
    assert committed(address, topic) == [[b"a", b"b", b"c"], []]

    publisher.publish(1, {1: batches(b"d")}, 5_000_000)
    publisher.publish(1, {1: batches(b"d")}, 5_000_000)
    assert publisher.last_batch() == 1
    assert committed(address, topic) == [[b"a", b"b", b"c", None], [b"d", None]]
    with Log.connect(address) as log:
        *_, said = log.read(topic, 1, 0)
        policy = log.describe(control_topic(topic)).policy
    assert read_punctuation(said.headers) == (topic, 5_000_000)
    assert policy.cleanup_policy == "compact"


def test_who_comes_later_fences_who_was_there(
    kafka: KafkaProcess, address: str, publisher: KafkaPublisher
) -> None:
    topic = publisher._topic
    before = Producer(
        {"bootstrap.servers": kafka.address, "transactional.id": f"penstock.{publisher._writer}"}
    )
    before.init_transactions(60)
    before.begin_transaction()
    before.produce(topic, b"half of batch 0", partition=0)
    before.flush(60)

    publisher.publish(0, {0: batches(b"batch 0")}, None)

    with pytest.raises(KafkaException):
        before.commit_transaction(60)
    assert committed(address, topic) == [[b"batch 0"], []]
