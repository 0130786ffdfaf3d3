from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from penstock import Log
from penstock.streams.source.topic import SourceTopic, open_topic
from penstock.testing import KafkaProcess, LogServerProcess, wait_until
from tests.streams.source.topic_contract import SourceTopicContract, WithAppendTimes, table

pytestmark = pytest.mark.slow


class TestOverOurWire(SourceTopicContract, WithAppendTimes):
    @pytest.fixture(scope="class")
    @classmethod
    def address(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        with LogServerProcess(tmp_path_factory.mktemp("served")) as server:
            yield server.address

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, address: str) -> Iterator[Log]:
        with Log.connect(address) as log:
            yield log


class TestOverKafka(SourceTopicContract):
    @pytest.fixture
    def address(self, kafka: KafkaProcess) -> str:
        return f"kafka://{kafka.address}"

    @pytest.fixture
    def log(self, address: str) -> Iterator[Log]:
        with Log.connect(address) as log:
            yield log

    def test_nobody_knows_when_records_were_appended(self, log: Log, address: str) -> None:
        for kind in ("CreateTime", "LogAppendTime"):
            name = f"source-{uuid4().hex[:12]}"
            log.create(name, message_timestamp_type=kind)
            topic = open_topic(address, name)
            assert topic.append_times(0, 0, 0) is None
            assert topic.is_stamped == (kind == "LogAppendTime")


class Transactions:
    def __init__(self, address: str, topic: str) -> None:
        self.producer = Producer(
            {"bootstrap.servers": address, "transactional.id": f"t-{uuid4().hex}"}
        )
        self.topic = topic
        self.producer.init_transactions(30)

    def send(self, *values: bytes) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value, partition=1)
        self.producer.flush(30)


@pytest.fixture
def transactions(kafka: KafkaProcess) -> Transactions:
    name = f"source-{uuid4().hex[:12]}"
    with Log.connect(f"kafka://{kafka.address}") as log:
        log.create(name, partitions=2)
    return Transactions(kafka.address, name)


@pytest.fixture
def topic(kafka: KafkaProcess, transactions: Transactions) -> Iterator[SourceTopic]:
    with closing(open_topic(f"kafka://{kafka.address}", transactions.topic)) as topic:
        yield topic


def values(topic: SourceTopic, start: int, end: int) -> list[bytes]:
    found: list[bytes] = table(topic, start, end)["value"].to_pylist()
    return found


def test_an_open_transaction_is_not_there_yet(
    transactions: Transactions, topic: SourceTopic
) -> None:
    transactions.send(b"a", b"b")
    transactions.producer.commit_transaction(30)
    wait_until(lambda: topic.bounds(1).end == 3, within=30, what="the commit")
    transactions.send(b"c")
    assert topic.bounds(1) == (0, 3)
    assert values(topic, 0, 3) == [b"a", b"b"]
    transactions.producer.commit_transaction(30)
    wait_until(lambda: topic.bounds(1).end == 5, within=30, what="the commit")
    assert values(topic, 3, 5) == [b"c"]


def test_an_aborted_transaction_never_is(transactions: Transactions, topic: SourceTopic) -> None:
    transactions.send(b"a", b"b")
    transactions.producer.abort_transaction(30)
    wait_until(lambda: topic.bounds(1).end == 3, within=30, what="the abort")
    assert values(topic, 0, 3) == []  # a range of nothing but what was taken back
    transactions.send(b"c", b"d")
    transactions.producer.commit_transaction(30)
    wait_until(lambda: topic.bounds(1).end == 6, within=30, what="the commit")
    # Any cut gives the same, be it within what was taken back or before a control record.
    for cut in range(7):
        assert values(topic, 0, cut) + values(topic, cut, 6) == [b"c", b"d"]
