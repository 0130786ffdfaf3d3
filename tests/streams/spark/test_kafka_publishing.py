from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from penstock import Log, Record
from penstock.errors import TopicExists, WriterFenced
from penstock.events.batch import encode
from penstock.runtime.topics import check_unwritten
from penstock.streams.source.punctuation import read_punctuation
from penstock.streams.source.topic import open_topic
from penstock.streams.spark.kafka_publishing import KafkaPublisher, control_topic
from penstock.streams.spark.publishing import Written
from penstock.testing import KafkaProcess, wait_until


@pytest.fixture
def address(kafka: KafkaProcess) -> str:
    return f"kafka://{kafka.address}"


@pytest.fixture
def topic(address: str) -> str:
    name = f"sink-{uuid4().hex}"
    with Log.connect(address) as log:
        log.create(name, partitions=2)
    return name


def publisher(address: str, topic: str) -> KafkaPublisher:
    """Of a query with one node; both are called as the topic."""
    return KafkaPublisher(address, topic, {topic: topic})


def last_batch(publisher: KafkaPublisher, topic: str) -> int:
    return publisher.last_batch(topic, topic, 2)


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


def test_records_are_as_large_as_the_topic_takes(address: str, topic: str) -> None:
    with Log.connect(address) as log:
        log.alter(topic, max_message_bytes=3_000_000)
    large = b"x" * 2_000_000
    publisher(address, topic).publish(0, [Written(topic, topic, 2, {0: [batches(large)]})])
    assert committed(address, topic)[0] == [large]


def test_a_batch_is_published_once(address: str, topic: str) -> None:
    first = publisher(address, topic)
    assert last_batch(first, topic) == -1
    # The batches of two tasks for one partition both begin at offset 0.
    written = [Written(topic, topic, 2, {0: [batches(b"a", b"b"), batches(b"c")]})]
    first.publish(0, written)
    first.publish(0, written)
    assert committed(address, topic) == [[b"a", b"b", b"c"], []]

    written = [Written(topic, topic, 2, {1: [batches(b"d")]}, promise=5_000_000)]
    first.publish(1, written)
    then = publisher(address, topic)
    assert last_batch(then, topic) == 1
    then.publish(1, written)
    assert committed(address, topic) == [[b"a", b"b", b"c", None], [b"d", None]]
    with Log.connect(address) as log:
        *_, said = log.read(topic, 1, 0)
        policy = log.describe(control_topic(topic)).policy
    assert read_punctuation(said.headers) == (topic, 5_000_000)
    assert policy.cleanup_policy == "compact"


def test_all_topics_of_a_query_are_one_transaction(address: str, topic: str) -> None:
    other = f"{topic}-other"
    with Log.connect(address) as log:
        log.create(other, partitions=1)
    found = KafkaPublisher(address, topic, {"one": topic, "two": other})
    found.publish(
        0,
        [
            Written("one", topic, 2, {0: [batches(b"a")]}),
            Written("two", other, 1, {0: [batches(b"b")]}),
        ],
    )
    assert committed(address, topic) == [[b"a"], []]
    assert committed(address, other) == [[b"b"]]


def test_it_says_where_records_and_the_mark_after_them_stand(address: str, topic: str) -> None:
    found = publisher(address, topic)
    some = Written(topic, topic, 2, {0: [batches(b"a", b"b")]}, promise=5_000_000)
    assert found.publish(0, [some]) == {topic: {0: range(4), 1: range(2)}}
    appended = found.publish(1, [Written(topic, topic, 2, {1: [batches(b"c")]})])
    assert appended == {topic: {1: range(2, 4)}}
    assert found.publish(1, [some]) == {}
    opened = open_topic(address, topic)
    wait_until(lambda: [opened.bounds(n).end for n in (0, 1)] == [4, 4], within=60)


def test_what_a_crash_left_in_the_first_batch_is_nobodys(
    kafka: KafkaProcess, address: str, topic: str
) -> None:
    killed = Producer({"bootstrap.servers": kafka.address, "transactional.id": f"penstock.{topic}"})
    killed.init_transactions(60)
    killed.begin_transaction()
    killed.produce(topic, b"half of batch 0", partition=0)
    killed.flush(60)

    then = publisher(address, topic)
    assert last_batch(then, topic) == -1
    check_unwritten(address, topic, "node")

    then.publish(0, [Written(topic, topic, 2, {0: [batches(b"batch 0")]})])
    wait_until(lambda: committed(address, topic) == [[b"batch 0"], []], within=60)
    with pytest.raises(TopicExists, match="has not written"):
        check_unwritten(address, topic, "node")


def test_who_comes_later_fences_who_was_there(
    kafka: KafkaProcess, address: str, topic: str
) -> None:
    settings = {"bootstrap.servers": kafka.address, "transactional.id": f"penstock.{topic}"}
    before = Producer(settings)
    before.init_transactions(60)
    before.begin_transaction()
    before.produce(topic, b"half of batch 0", partition=0)
    before.flush(60)

    then = publisher(address, topic)
    then.publish(0, [Written(topic, topic, 2, {0: [batches(b"batch 0")]})])

    with pytest.raises(KafkaException):
        before.commit_transaction(60)
    assert committed(address, topic) == [[b"batch 0"], []]

    publisher(address, topic)
    with pytest.raises(WriterFenced):
        then.publish(1, [Written(topic, topic, 2, {0: [batches(b"batch 1")]})])
