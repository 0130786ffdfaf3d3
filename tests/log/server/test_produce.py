import struct

import pytest

from penstock.events.batch import APPEND_TIME, decode, encode, read_header
from penstock.events.compression import CODECS
from penstock.events.record import Record
from tests.log.server.batches import MALFORMED, PLAIN, SEQUENCES, TOO_LARGE, Answer, Sent
from tests.log.server.plain_client import PlainClient, batch, production
from tests.log.server.scenes.stage import SESSION, new_producer_id, new_topic
from tests.log.server.served import Served


def end_of(served: Served, topic: str, partition: int = 0) -> int:
    return served.engine.topics.get(topic).partition(partition).end_offset


@pytest.mark.parametrize("story", SEQUENCES.values(), ids=SEQUENCES)
def test_idempotent_producer(client: PlainClient, story: list[tuple[Sent, Answer]]) -> None:
    topic, producer = new_topic(client, 1, records=0), new_producer_id(client)

    answers = [client.produce(topic, sent(producer)) for sent, _ in story]

    assert [(a.error_code, a.base_offset) for a in answers] == [expected for _, expected in story]


def test_producers_do_not_disturb_each_other(client: PlainClient) -> None:
    topic = new_topic(client, 2, records=0)
    one, other = new_producer_id(client), new_producer_id(client)
    assert one != other

    for producer, partition in [(one, 0), (other, 0), (one, 1)]:
        answer = client.produce(topic, batch(b"x", producer=(producer, 0, 0)), partition)
        assert answer.error_code == 0


@pytest.mark.parametrize(("sent", "code"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_batches_are_refused(
    served: Served, client: PlainClient, sent: Sent, code: int
) -> None:
    topic = new_topic(client, 1, records=0)

    answer = client.produce(topic, sent(new_producer_id(client)))

    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert end_of(served, topic) == 0
    assert client.produce(topic, PLAIN).base_offset == 0


@pytest.mark.parametrize("limit", [1_000, 1_048_588, 5_000_000])
def test_a_batch_may_be_as_large_as_the_topic_says(client: PlainClient, limit: int) -> None:
    topic = new_topic(client, 1, records=0, max_message_bytes=limit)

    def of_size(size: int) -> bytes:
        body = encode([Record(value=bytes(size - 100))])
        return encode([Record(value=bytes(size - 100 + size - len(body)))])

    assert len(of_size(limit)) == limit
    assert client.produce(topic, of_size(limit)).error_code == 0
    assert client.produce(topic, of_size(limit + 1)).error_code == TOO_LARGE


def test_one_request_for_many_partitions_fails_in_part(served: Served, client: PlainClient) -> None:
    topic, other = new_topic(client, 3, records=0), new_topic(client, 1, records=0)
    request = production(topic, None)
    request["topic_data"] = [
        {
            "name": topic,
            "partition_data": [
                {"index": 0, "records": PLAIN},
                {"index": 1, "records": PLAIN[:-1]},
                {"index": 2, "records": PLAIN},
                {"index": 3, "records": PLAIN},
            ],
        },
        {"name": "no-such-topic", "partition_data": [{"index": 0, "records": PLAIN}]},
        {"name": other, "partition_data": [{"index": 0, "records": PLAIN}]},
    ]

    answer = client.ask("produce", 9, **request)

    codes = {
        (each.name, part.index): part.error_code.value
        for each in answer.responses
        for part in each.partition_responses
    }
    assert codes == {
        (topic, 0): 0,
        (topic, 1): 87,
        (topic, 2): 0,
        (topic, 3): 3,
        ("no-such-topic", 0): 3,
        (other, 0): 0,
    }
    assert [end_of(served, topic, index) for index in range(3)] == [2, 0, 2]
    assert served.engine.topics.find("no-such-topic") is None


def test_without_acknowledgement_nothing_is_answered(served: Served, client: PlainClient) -> None:
    topic = new_topic(client, 1, records=0)

    client.send("produce", 11, **production(topic, PLAIN, acks=0))

    # The next answer is that to the next request.
    assert client.produce(topic, PLAIN, acks=1).base_offset == 2
    assert end_of(served, topic) == 4


def test_without_acknowledgement_a_failure_ends_the_connection(client: PlainClient) -> None:
    client.send("produce", 11, **production("no-such-topic", PLAIN, acks=0))

    with pytest.raises(ConnectionError):
        client.receive()


def test_what_follows_a_broken_request_is_not_done(served: Served, client: PlainClient) -> None:
    topic = new_topic(client, 1, records=0)
    good = client.frame("produce", 9, **production(topic, PLAIN))
    unknown = struct.pack(">ihhih", 10, 99, 0, 1, -1)

    client.send_bytes(good + unknown + good)

    with pytest.raises(ConnectionError):
        client.receive_bytes(1_000)  # more than one answer has
    assert served.engine.topics.get(topic).partition(0).next_offset == 2


def test_a_pipeline_is_answered_in_order(served: Served, client: PlainClient) -> None:
    topic = new_topic(client, 4, records=0)
    other = new_topic(client, 1, records=0, durability="memory")
    numbers = []
    for number in range(300):
        # What need not be synced is ready at once, and waits for what came before it.
        name, partition = (other, 0) if number % 3 == 0 else (topic, number % 4)
        numbers.append(client.send("produce", 9, **production(name, PLAIN, partition)))

    answers = [client.receive() for _ in numbers]

    assert [number for number, _ in answers] == numbers
    assert not any(answer.responses[0].partition_responses[0].error_code for _, answer in answers)
    assert sum(end_of(served, topic, index) for index in range(4)) == 400
    assert end_of(served, other) == 200


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_stored_as_they_came(client: PlainClient, topic: str, codec: str) -> None:
    identity = client.create_topic(topic)
    records = [Record(value=b"v" * 100, key=b"k", headers=(("h", None),)) for _ in range(10)]
    sent = encode(records, codec=CODECS[codec])

    client.produce(topic, sent)

    found = client.fetch(identity).records
    assert found[16:] == sent[16:]
    assert struct.unpack(">qii", found[:16]) == (0, len(sent) - 12, 0)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_log_append_time(client: PlainClient, topic: str, codec: str) -> None:
    identity = client.create_topic(topic, message_timestamp_type="LogAppendTime")
    sent = encode([Record(value=b"v", timestamp=5)] * 2, codec=CODECS[codec])

    answer = client.produce(topic, sent)

    found = memoryview(client.fetch(identity).records)
    appended = round(answer.log_append_time.timestamp() * 1_000)
    assert read_header(found).attributes & APPEND_TIME
    assert {record.timestamp for record in decode(found)} == {appended}
    assert answer.base_offset == 0
    assert client.produce(topic, sent).base_offset == 2


def test_every_acknowledgement_but_three_is_refused(client: PlainClient) -> None:
    topic = new_topic(client, 1, records=0)

    codes = {
        acks: client.produce(topic, PLAIN, acks=acks).error_code.value for acks in (-1, 1, 2, -2)
    }

    assert codes == {-1: 0, 1: 0, 2: 21, -2: 21}


def test_a_refused_batch_is_counted(served: Served, client: PlainClient) -> None:
    topic, counts = new_topic(client, 1, records=0), served.server.broker.counts
    before = counts.total()

    client.produce(topic, PLAIN[:-1])
    client.produce(topic, b"")
    client.produce("no-such-topic", PLAIN)

    assert counts.total() == before + 3


def test_an_acknowledged_batch_can_be_read_at_once(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic)
    for number in range(50):
        offset = client.produce(topic, batch(b"%d" % number)).base_offset
        (record,) = decode(memoryview(client.fetch(identity, offset).records))
        assert record.value == b"%d" % number


def test_a_large_frame_arrives_in_pieces(client: PlainClient) -> None:
    topic = new_topic(client, 1, records=0, max_message_bytes=20_000_000)

    assert client.produce(topic, batch(bytes(12_000_000))).error_code == 0
    assert client.produce(topic, batch(b"small")).base_offset == 1


def test_producing_to_a_topic_while_it_is_deleted(client: PlainClient, served: Served) -> None:
    topic = new_topic(client, 1, records=0)
    with PlainClient(served.address) as admin:
        for _ in range(100):
            client.send("produce", 9, **production(topic, PLAIN))
        admin.ask("delete_topics", 1, topic_names=[topic], timeout=SESSION)
        codes = [
            client.receive()[1].responses[0].partition_responses[0].error_code.value
            for _ in range(100)
        ]
    assert set(codes) <= {0, 3, 56}
    assert 0 not in codes[codes.count(0) :], "accepted again after a refusal"
    assert client.produce(topic, PLAIN).error_code == 3
