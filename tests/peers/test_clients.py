"""Records and topics, with every client."""

import itertools
from collections.abc import Iterator

import pytest

from penstock.clock import now_ms
from penstock.events.batch import CODEC_MASK, BatchHeader, read_header
from penstock.events.compression import CODECS
from penstock.events.record import Record
from penstock.testing import LogServerProcess, wait_until
from tests.log.server.plain_client import PlainClient
from tests.peers.clients.confluent import Confluent
from tests.peers.clients.contract import Client, Reading, Refused, Sending
from tests.peers.conftest import CLIENTS, opened, stored_in, topic_id

pytestmark = pytest.mark.peer

MOMENT = 1_700_000_000_000


def content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers


def headers_in(client: PlainClient, topic: str) -> Iterator[BatchHeader]:
    """The headers of the batches in the topic's first partition, as they are stored."""
    data, at = client.fetch(topic_id(client, topic)).records, 0
    while at < len(data):
        header = read_header(data, at)
        yield header
        at += header.size


# Records


def test_round_trip(client: Client, server: LogServerProcess, topic: str) -> None:
    Confluent(server.address).create(topic, 2, {})
    sent = [
        Record(value=b"plain", partition=0),
        Record(value=b"keyed", key=b"k", partition=0),
        Record(value=None, key=b"gone", partition=0),
        Record(value="größer".encode(), key="schlüssel".encode(), partition=1),
        Record(value=b"x", key=b"k", headers=(("a", b"1"), ("b", b"2"), ("a", b"3")), partition=1),
    ]
    if client.name == "java":  # the console producer has no say over partitions
        sent = [Record(value=r.value, key=r.key, headers=r.headers) for r in sent]
    if client.dates:
        sent = [
            Record(
                value=r.value,
                key=r.key,
                headers=r.headers,
                partition=r.partition,
                timestamp=MOMENT + number,
            )
            for number, r in enumerate(sent)
        ]
    before = now_ms()

    client.produce(topic, sent)
    found = client.consume(topic, len(sent))

    assert sorted(map(content, found), key=repr) == sorted(map(content, sent), key=repr)
    for record in found:
        (original,) = (each for each in sent if content(each) == content(record))
        assert original.partition in (None, record.partition)
        if client.dates:
            assert record.timestamp == original.timestamp
        else:
            assert before <= (record.timestamp or 0) <= now_ms()
    offsets = {(record.partition, record.offset) for record in found}
    assert len(offsets) == len(sent)


@pytest.fixture(scope="module")
def every_codec(server: LogServerProcess) -> tuple[str, set[bytes]]:
    """A topic into which every client has produced with every codec, and what it holds."""
    topic, values = "every-codec", set()
    Confluent(server.address).create(topic, 1, {})
    for kind in CLIENTS:
        client = opened(kind, server.address)
        for codec in CODECS:
            own = [f"{client.name} {codec} {number} ".encode() * 20 for number in range(10)]
            client.produce(topic, [Record(value=value) for value in own], Sending(codec=codec))
            values.update(own)
    return topic, values


def test_every_codec_of_every_client(
    client: Client, plain: PlainClient, every_codec: tuple[str, set[bytes]]
) -> None:
    topic, values = every_codec

    found = client.consume(topic, len(values))

    assert {record.value for record in found} == values
    codecs = {header.attributes & CODEC_MASK for header in headers_in(plain, topic)}
    assert codecs == set(CODECS.values())


def test_large_records(client: Client, server: LogServerProcess, topic: str) -> None:
    Confluent(server.address).create(topic, 1, {"max.message.bytes": "3000000"})
    fits, does_not = b"f" * 2_900_000, b"n" * 3_100_000

    anything = Sending(largest=10_000_000)

    client.produce(topic, [Record(value=fits)], anything)
    with pytest.raises(Refused, match=r"(?i)too ?large|larger than"):
        client.produce(topic, [Record(value=does_not)], anything)

    assert [record.value for record in client.consume(topic, 1)] == [fits]


@pytest.mark.parametrize(("acks", "idempotent"), [("0", False), ("1", False), ("all", True)])
def test_acknowledgements(
    client: Client,
    server: LogServerProcess,
    plain: PlainClient,
    topic: str,
    acks: str,
    idempotent: bool,
) -> None:
    Confluent(server.address).create(topic, 1, {})
    sent = [b"%d" % number for number in range(100)]

    how = Sending(acks=acks, idempotent=idempotent)
    client.produce(topic, [Record(value=value) for value in sent], how)

    # Who does not wait for an answer may be gone before its records have arrived.
    stored = wait_until(lambda: len(read := stored_in(plain, topic)) == len(sent) and read)
    assert [record.value for record in stored] == sent
    numbered = {header.producer_id >= 0 for header in headers_in(plain, topic)}
    assert numbered == {idempotent}


def test_log_append_time(client: Client, server: LogServerProcess, topic: str) -> None:
    admin, before = Confluent(server.address), now_ms()
    admin.create(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    admin.produce(topic, [Record(value=b"x", timestamp=MOMENT)])

    (found,) = client.consume(topic, 1)

    assert before <= (found.timestamp or 0) <= now_ms()


def test_offsets_by_time(client: Client, server: LogServerProcess, topic: str) -> None:
    admin = Confluent(server.address)
    admin.create(topic, 1, {})
    dated = [Record(value=b"x", timestamp=MOMENT + 1_000 * number) for number in range(5)]
    admin.produce(topic, dated)
    admin.trim(topic, 0, 1)

    # When no record is so late, each of the clients is asked for the end.
    asked = (-2, MOMENT + 1_500, MOMENT + 9_000)

    assert [client.offset_at(topic, 0, each) for each in asked] == [1, 2, 5]


def test_from_the_end(client: Client, server: LogServerProcess, topic: str) -> None:
    admin = Confluent(server.address)
    admin.create(topic, 1, {})
    admin.produce(topic, [Record(value=b"old")])
    with client.follow(topic, Reading(group=topic, start="latest")) as follower:
        # The consumer finds the end some time after it has joined, so news keep coming.
        for number in itertools.count():
            admin.produce(topic, [Record(value=b"new %d" % number)])
            if follower.received or number > 5_000:
                break

    assert follower.received
    assert b"old" not in follower.values()


def test_many_partitions(client: Client, server: LogServerProcess, topic: str) -> None:
    Confluent(server.address).create(topic, 40, {"durability": "os"})
    sent = [Record(value=b"%d" % number, key=b"key %d" % number) for number in range(400)]

    client.produce(topic, sent)
    found = client.consume(topic, len(sent), group=topic)

    assert {record.value for record in found} == {record.value for record in sent}
    assert len({record.partition for record in found}) == 40


@pytest.mark.asks("transact")
def test_transactions_are_refused_soon(client: Client, topic: str) -> None:
    began = now_ms()

    with pytest.raises(Refused, match=r"(?i)transactional.?id.*auth"):
        client.transact(topic)

    assert now_ms() - began < 15_000


# Topics


def test_topics_made_by_naming_them(client: Client, plain: PlainClient, topic: str) -> None:
    client.produce(topic, [Record(value=b"first")])

    assert client.topics()[topic] == 1
    assert [record.value for record in stored_in(plain, topic)] == [b"first"]


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServerProcess]:
    with LogServerProcess(tmp_path_factory.mktemp("strict"), "--no-auto-create") as server:
        yield server


def test_topics_not_made_by_naming_them(
    client: Client, strict_server: LogServerProcess, topic: str
) -> None:
    client = opened(type(client), strict_server.address)

    with pytest.raises(Refused):
        client.produce(topic, [Record(value=b"first")], Sending(patience=3))

    assert topic not in Confluent(strict_server.address).topics()


@pytest.mark.asks("create", "settings", "delete")
def test_topics_made_with_settings(client: Client, topic: str) -> None:
    client.create(topic, 3, {"retention.ms": "123456", "max.message.bytes": "5000"})

    assert client.topics()[topic] == 3
    assert client.settings(topic)["retention.ms"] == "123456"
    with pytest.raises(Refused, match=r"(?i)exists"):
        client.create(topic, 3, {})

    client.delete(topic)
    assert topic not in Confluent(client.address).topics()


@pytest.mark.asks("alter")
def test_settings_altered(client: Client, server: LogServerProcess, topic: str) -> None:
    Confluent(server.address).create(topic, 1, {"segment.ms": "1000"})

    client.alter(topic, {"retention.ms": "3600000", "max.message.bytes": "5000"})

    found = client.settings(topic)
    assert {name: found[name] for name in ("retention.ms", "max.message.bytes", "segment.ms")} == {
        "retention.ms": "3600000",
        "max.message.bytes": "5000",
        "segment.ms": "1000",
    }
    with pytest.raises(Refused, match=r"(?i)config"):
        client.alter(topic, {"retention.ms": "soon"})


@pytest.mark.asks("add_partitions", "trim")
def test_partitions_added_and_trimmed(client: Client, server: LogServerProcess, topic: str) -> None:
    admin = Confluent(server.address)
    admin.create(topic, 1, {})
    admin.produce(topic, [Record(value=b"%d" % number) for number in range(5)])

    client.add_partitions(topic, 2)
    admin.produce(topic, [Record(value=b"beside", partition=1)])
    client.trim(topic, 0, 3)

    assert admin.topics()[topic] == 2
    found = {record.value for record in client.consume(topic, 3)}
    assert found == {b"3", b"4", b"beside"}


def test_a_topic_made_again_under_its_reader(
    client: Client, strict_server: LogServerProcess, topic: str
) -> None:
    # Elsewhere the reader itself may be the one who makes it again.
    client = opened(type(client), strict_server.address)
    admin = Confluent(strict_server.address)
    admin.create(topic, 1, {})
    admin.produce(topic, [Record(value=b"old %d" % number) for number in range(5)])
    with client.follow(topic, Reading(group=topic)) as follower:
        follower.await_values(b"old 4")
        admin.delete(topic)
        admin.create(topic, 1, {})
        admin.produce(topic, [Record(value=b"new")])
        follower.await_values(b"new")

    assert follower.values() == [*(b"old %d" % number for number in range(5)), b"new"]
