"""What only a log behind an address can do or suffer; the rest is in the contract."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock import clock
from penstock.errors import (
    InvalidInput,
    InvalidPolicy,
    LogClosed,
    LogUnreachable,
    PartitionNotFound,
    TopicNotFound,
)
from penstock.events.record import Position, Record
from penstock.log.client.remote import RemoteLog
from penstock.log.contract import Bounds, Log
from penstock.log.embedded import EmbeddedLog
from penstock.testing import KafkaProcess, LogServerProcess, wait_until

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedLog(None) as log:
        yield log.serve()


@pytest.fixture(scope="module")
def log(address: str) -> Iterator[RemoteLog]:
    with RemoteLog(address) as log:
        yield log


@pytest.fixture
def other(address: str) -> Iterator[RemoteLog]:
    with RemoteLog(address) as log:
        yield log


def values(log: Log, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in log.read(topic, partition, 0)]


def test_nobody_at_the_address_is_told_quickly_and_quietly(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(LogUnreachable, match=NOBODY):
        RemoteLog(NOBODY, time_limit=0.3)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "ask",
    [
        lambda log, topic: log.create(f"{topic}-2"),
        lambda log, topic: log.topics(),
        lambda log, topic: log.describe(topic),
        lambda log, topic: log.append(topic, [Record(value=b"a")]),
        lambda log, topic: next(log.read(topic, 0, 0)),
        lambda log, topic: log.groups(),
    ],
)
def test_a_closed_log_says_so(
    log: Log, address: str, topic: str, ask: Callable[[Log, str], object]
) -> None:
    log.create(topic)
    closed = RemoteLog(address)
    closed.append(topic, [Record(value=b"a")])
    closed.close()
    closed.close()
    with pytest.raises(LogClosed):
        ask(closed, topic)


@pytest.mark.parametrize("timestamp", [0, -1])
def test_a_time_that_cannot_be_sent_is_refused(log: Log, topic: str, timestamp: int) -> None:
    log.create(topic)
    with pytest.raises(InvalidInput, match="timestamp"):
        log.append(topic, [Record(value=b"a"), Record(value=b"b", timestamp=timestamp)])
    assert log.bounds(topic, 0) == Bounds(0, 0)


def test_a_missing_topic_is_told_at_once(log: Log, topic: str) -> None:
    started = clock.monotonic()
    with pytest.raises(TopicNotFound):
        log.append(topic, [Record(value=b"a")])
    assert clock.monotonic() - started < 5


def test_what_another_client_creates_is_found_after_asking_too_early(
    log: Log, other: Log, topic: str
) -> None:
    with pytest.raises(TopicNotFound):
        log.bounds(topic, 0)
    other.create(topic)
    assert log.bounds(topic, 0) == Bounds(0, 0)


def test_what_another_client_adds_can_be_used(log: Log, other: Log, topic: str) -> None:
    log.create(topic)
    log.append(topic, [Record(value=b"a")])
    other.alter(topic, partitions=2)
    assert log.bounds(topic, 1) == Bounds(0, 0)
    late = Record(value=b"b", partition=1)

    def appended() -> bool:
        try:
            return log.append(topic, [late]) == [Position(topic, 1, 0)]
        except PartitionNotFound:  # what is known of a topic is trusted for a second
            return False

    wait_until(appended)
    assert values(log, topic, 1) == [b"b"]


def test_a_topic_that_another_client_made_anew_starts_at_zero(
    log: Log, other: Log, topic: str
) -> None:
    log.create(topic, partitions=3)
    log.append(topic, [Record(value=b"old", partition=0) for _ in range(10)])
    other.delete(topic)
    other.create(topic)
    assert log.append(topic, [Record(value=b"new", partition=0)]) == [Position(topic, 0, 0)]
    assert values(log, topic) == [b"new"]


def test_more_than_the_producer_can_queue_is_appended(log: Log, topic: str) -> None:
    log.create(topic)
    positions = log.append(topic, [Record(value=b"%d" % n) for n in range(120_000)])
    assert [at.offset for at in positions] == list(range(120_000))
    assert log.bounds(topic, 0) == Bounds(0, 120_000)
    [last] = log.read(topic, 0, 119_999)
    assert last.value == b"119999"


def test_a_broken_producer_is_replaced(log: RemoteLog, topic: str) -> None:
    log.create(topic)
    log.append(topic, [Record(value=b"a")])
    for producer in log._producers.values():
        producer.broken = True
        producer.close()
    assert log.append(topic, [Record(value=b"b")]) == [Position(topic, 0, 1)]


def test_a_server_that_went_away_is_told_within_the_time_limit(
    log_server: LogServerProcess, topic: str
) -> None:
    with RemoteLog(log_server.address, time_limit=2.0) as log:
        log.create(topic)
        log.append(topic, [Record(value=b"a")])
        log_server.kill()
        with pytest.raises(LogUnreachable):
            log.append(topic, [Record(value=b"b")])
        with pytest.raises(LogUnreachable):
            log.topics()
        log_server.restart()
        wait_until(lambda: log.topics() == [topic])
        log.append(topic, [Record(value=b"c")])
        assert values(log, topic) in ([b"a", b"c"], [b"a", b"b", b"c"])


def test_an_append_outlasts_a_restart_and_is_stored_once(
    log_server: LogServerProcess, topic: str
) -> None:
    with RemoteLog(log_server.address) as log, ThreadPoolExecutor(1) as thread:
        log.create(topic)
        log.append(topic, [Record(value=b"first")])

        def append_many() -> None:
            for first in range(0, 3_000, 10):
                log.append(topic, [Record(value=b"%d" % n) for n in range(first, first + 10)])

        appending = thread.submit(append_many)
        wait_until(lambda: log.bounds(topic, 0).end > 200)
        log_server.kill()
        log_server.restart()
        appending.result(timeout=60)
        assert values(log, topic) == [b"first", *(b"%d" % n for n in range(3_000))]


@pytest.mark.parametrize("durability", ["fsync", "os", "memory"])
def test_penstock_tells_its_durability(log_server: LogServerProcess, durability: str) -> None:
    with RemoteLog(log_server.address) as log:
        log.create("orders", durability=durability)
        assert log.describe("orders").policy.durability == durability


def test_kafka_knows_no_durability(kafka: KafkaProcess, topic: str) -> None:
    with RemoteLog(kafka.address) as log:
        with pytest.raises(InvalidPolicy, match="durability"):
            log.create(topic, durability="os")
        log.create(topic)
        assert log.describe(topic).policy.durability == "os"


def test_kafka_s_own_settings_do_not_hinder(kafka: KafkaProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    config = {"cleanup.policy": "compact", "compression.type": "gzip", "flush.messages": "7"}
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result()
    with RemoteLog(kafka.address) as log:
        wait_until(lambda: topic in log.topics())
        policy = log.describe(topic).policy
        assert (policy.cleanup_policy, policy.compression_type) == ("compact", "gzip")


def test_offsets_without_a_record_do_not_hold_a_reader_up(kafka: KafkaProcess, topic: str) -> None:
    """A transaction ends in a marker, which takes an offset and is no record."""
    with RemoteLog(kafka.address) as log:
        log.create(topic)
        settings = {"bootstrap.servers": kafka.address, "transactional.id": topic, "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(30)
        for number, end in enumerate(
            [producer.commit_transaction, producer.abort_transaction, producer.commit_transaction]
        ):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number, partition=0)
            producer.flush(30)
            end(30)
        wait_until(lambda: log.bounds(topic, 0) == Bounds(0, 6))  # the marker comes a bit later
        assert values(log, topic) == [b"0", b"2"]
        assert list(log.read(topic, 0, 5)) == []
        with log.subscribe(f"readers-of-{topic}", [topic]) as member:
            assert [record.value for record in member.until_end()] == [b"0", b"2"]
        [lag] = log.describe_group(f"readers-of-{topic}").lags
        assert lag.lag == 0
