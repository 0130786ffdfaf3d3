import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.clock import monotonic, now_ms
from penstock.events.batch import decode
from penstock.events.record import Record
from penstock.log.server.connection import MAX_UNANSWERED, WRITE_BUFFER_BYTES
from penstock.testing import wait_until
from tests.log.server.plain_client import PlainClient, batch, fetching, production
from tests.log.server.scenes.stage import NO_CREATION, SESSION
from tests.log.server.served import Served

PATIENCE = 30.0  # seconds that a long poll may take; one that is woken takes none of them
AT_ONCE = 5.0


@pytest.fixture
def producer(served: Served) -> Iterator[PlainClient]:
    """A second client, for while the first one waits."""
    with PlainClient(served.address) as client:
        yield client


def records_in(part: Any) -> list[Record]:
    return list(decode(memoryview(part.records or b"")))


def read_all(client: PlainClient, identity: UUID, start: int, end: int, **limits: int) -> list[int]:
    """The offsets read with as many fetches as it takes, each from where the last one ended."""
    offsets: list[int] = []
    position = start
    while position < end:
        part = client.fetch(identity, position, **limits)
        assert part.error_code == 0
        found = [record.position.offset for record in records_in(part)]
        assert found, f"stuck at {position}"
        offsets += [offset for offset in found if offset >= position]
        position = found[-1] + 1
    return offsets


def watchers(served: Served, topic: str, partition: int = 0) -> int:
    return len(served.engine.topics.get(topic).partition(partition)._watchers)


# Long polls


def test_a_waiting_fetch_is_woken_by_an_append(
    served: Served, client: PlainClient, producer: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic)
    client.send("fetch", 16, **fetching({identity: {0: 0}}, max_wait=PATIENCE))
    wait_until(lambda: watchers(served, topic))

    began = monotonic()
    producer.produce(topic, batch(b"news"))
    _, answer = client.receive()

    assert monotonic() - began < AT_ONCE
    (record,) = records_in(answer.responses[0].partitions[0])
    assert record.value == b"news"
    assert watchers(served, topic) == 0


def test_a_waiting_fetch_hears_of_any_of_its_partitions(
    served: Served, client: PlainClient, producer: PlainClient, topic: str
) -> None:
    identity, other = client.create_topic(topic, 3), client.create_topic(f"{topic}-2", 2)
    wanted = {identity: {0: 0, 1: 0, 2: 0}, other: {0: 0, 1: 0}}
    client.send("fetch", 16, **fetching(wanted, max_wait=PATIENCE))
    wait_until(lambda: watchers(served, f"{topic}-2", 1))

    producer.produce(f"{topic}-2", batch(b"here"), 1)
    _, answer = client.receive()

    found = {
        (each.topic_id, part.partition_index): len(records_in(part))
        for each in answer.responses
        for part in each.partitions
    }
    assert found == {
        (identity, 0): 0,
        (identity, 1): 0,
        (identity, 2): 0,
        (other, 0): 0,
        (other, 1): 1,
    }
    assert watchers(served, topic, 2) == 0


def test_a_waiting_fetch_wants_enough(
    served: Served, client: PlainClient, producer: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic)
    size = len(batch(b"x"))
    client.send("fetch", 16, **fetching({identity: {0: 0}}, max_wait=PATIENCE, min_bytes=3 * size))
    wait_until(lambda: watchers(served, topic))

    for _ in range(3):
        producer.produce(topic, batch(b"x"))
    _, answer = client.receive()

    assert len(records_in(answer.responses[0].partitions[0])) == 3


def test_patience_ends(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic)
    client.produce(topic, batch(b"one"))

    nothing = client.fetch(identity, 1, max_wait=0.05)
    too_little = client.fetch(identity, 0, max_wait=0.05, min_bytes=10_000)

    assert nothing.error_code == 0
    assert not nothing.records
    assert len(records_in(too_little)) == 1


def test_deleting_a_topic_ends_the_wait(
    served: Served, client: PlainClient, producer: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic)
    client.send("fetch", 16, **fetching({identity: {0: 0}}, max_wait=PATIENCE))
    wait_until(lambda: watchers(served, topic))

    began = monotonic()
    producer.ask("delete_topics", 1, topic_names=[topic], timeout=SESSION)
    _, answer = client.receive()

    assert monotonic() - began < AT_ONCE
    assert answer.responses[0].partitions[0].error_code == 100  # UNKNOWN_TOPIC_ID


def test_a_client_that_hangs_up_is_no_longer_watching(
    served: Served, producer: PlainClient, topic: str
) -> None:
    with PlainClient(served.address) as client:
        identity = client.create_topic(topic)
        client.send("fetch", 16, **fetching({identity: {0: 0}}, max_wait=PATIENCE))
        wait_until(lambda: watchers(served, topic))

    wait_until(lambda: watchers(served, topic) == 0)
    assert producer.produce(topic, batch(b"x")).error_code == 0


def test_a_pipeline_waits_for_its_first(
    served: Served, client: PlainClient, producer: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic)
    waiting = client.send("fetch", 16, **fetching({identity: {0: 0}}, max_wait=PATIENCE))
    following = client.send("metadata", 8, topics=[], **NO_CREATION)
    wait_until(lambda: watchers(served, topic))

    producer.produce(topic, batch(b"x"))

    assert [client.receive()[0], client.receive()[0]] == [waiting, following]


# Limits


def test_one_whole_batch_goes_through_any_limit(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic)
    for _ in range(3):
        client.produce(topic, batch(bytes(10_000)))

    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}):
        assert [r.offset for r in records_in(client.fetch(identity, 1, **limits))] == [1]


def test_answers_stay_within_their_limits(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic, 2)
    size = len(batch(bytes(10_000)))
    for number in range(20):
        client.produce(topic, batch(bytes(10_000)), number % 2)
    both: dict[Any, dict[int, int]] = {identity: {0: 0, 1: 0}}

    def sizes(**limits: int) -> list[int]:
        answer = client.ask("fetch", 16, **fetching(both, **limits))
        return [len(part.records or b"") for part in answer.responses[0].partitions]

    assert sizes() == [10 * size, 10 * size]
    assert sizes(partition_max_bytes=5 * size) == [5 * size, 5 * size]
    assert sizes(max_bytes=15 * size) == [10 * size, 5 * size]
    assert sizes(max_bytes=3 * size) == [3 * size, 0]
    assert sizes(max_bytes=1) == [size, 0]
    assert read_all(client, identity, 0, 10, max_bytes=25_000) == list(range(10))


def test_records_before_the_offset_come_with_their_batch(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic)
    client.produce(topic, batch(b"0", b"1", b"2"))

    assert [r.offset for r in records_in(client.fetch(identity, 2))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("offset", "partition", "code"), [(4, 0, 1), (-1, 0, 1), (2**62, 0, 1), (0, 7, 3), (0, -1, 3)]
)
def test_what_is_not_there(
    client: PlainClient, topic: str, offset: int, partition: int, code: int
) -> None:
    identity = client.create_topic(topic)
    client.produce(topic, batch(b"0", b"1", b"2"))

    part = client.fetch(identity, offset, partition, max_wait=PATIENCE)

    assert (part.error_code, part.records or b"") == (code, b"")


def test_a_session_is_declined(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic)
    client.produce(topic, batch(b"x"))
    wanted: dict[Any, dict[int, int]] = {identity: {0: 0}}

    # Epoch 0 asks for a new one: the answer is whole, and says that there is none.
    answer = client.ask("fetch", 16, **fetching(wanted, session_epoch=0))
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert len(records_in(answer.responses[0].partitions[0])) == 1

    unknown = client.ask("fetch", 16, **fetching(wanted, session_id=7, session_epoch=3))
    assert unknown.error_code == 70  # FETCH_SESSION_ID_NOT_FOUND


# Large ranges, many segments


def test_segments_are_read_across_their_boundaries(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic, segment_bytes=20_000)
    for _ in range(50):
        client.produce(topic, batch(*[bytes(1_000)] * 3))

    assert read_all(client, identity, 0, 150) == list(range(150))
    assert read_all(client, identity, 47, 150, max_bytes=7_000) == list(range(47, 150))


def test_megabytes_are_read_while_more_are_appended(
    client: PlainClient, producer: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic, segment_bytes=16_000_000, durability="os")
    count, value = 60, bytes(range(256)) * 4_000
    failures: list[BaseException] = []

    def append() -> None:
        try:
            for number in range(count):
                producer.produce(topic, batch(b"%d" % number, value))
        except BaseException as error:
            failures.append(error)

    appending = threading.Thread(target=append)
    appending.start()
    seen, position = [], 0
    while position < 2 * count and not failures:
        for record in records_in(client.fetch(identity, position, max_wait=PATIENCE)):
            seen.append(record.value)
            position = record.position.offset + 1
    appending.join(20)

    assert not failures
    assert seen == [part for number in range(count) for part in (b"%d" % number, value)]


def test_retention_takes_a_segment_from_under_its_reader(
    served: Served, topic: str, client: PlainClient
) -> None:
    identity = client.create_topic(
        topic, segment_bytes=8_000_000, retention_bytes=8_000_000, max_message_bytes=4_000_000
    )
    for _ in range(10):
        assert client.produce(topic, batch(bytes(2_000_000))).error_code == 0
    with PlainClient(served.address, receive_buffer=16_384) as reader:
        reader.send("fetch", 16, **fetching({identity: {0: 0}}))
        reader.await_answer()  # of which the greater part does not fit the sockets' buffers

        assert served.engine.topics.expire(now_ms()) > 0
        assert client.fetch(identity, 0).error_code == 1  # OFFSET_OUT_OF_RANGE

        _, answer = reader.receive()
    assert [r.offset for r in records_in(answer.responses[0].partitions[0])] == [0, 1, 2]


def test_a_slow_reader_holds_up_nobody(served: Served, client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic, max_message_bytes=4_000_000, durability="os")
    for _ in range(8):
        client.produce(topic, batch(bytes(2_000_000)))
    with PlainClient(served.address, receive_buffer=16_384) as slow:
        numbers = [slow.send("fetch", 16, **fetching({identity: {0: 0}})) for _ in range(20)]

        # 320 MB stand ready for it, which nobody keeps in memory; others are served meanwhile.
        for _ in range(20):
            assert client.fetch(identity, 7).error_code == 0
        assert served.engine.topics.get(topic).partition(0).end_offset == 8

        for number in numbers[:2]:
            answered, answer = slow.receive()
            assert answered == number
            assert len(records_in(answer.responses[0].partitions[0])) == 8


def test_what_a_slow_reader_does_not_take_is_not_kept(
    served: Served, client: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic)
    client.produce(topic, batch(bytes(50_000)))
    with PlainClient(served.address, receive_buffer=16_384) as slow:
        # Fifty megabytes of answers, each too small to be sent from the file.
        wanted = fetching({identity: {0: 0}})
        slow.send_bytes(b"".join(slow.frame("fetch", 16, **wanted) for _ in range(1_000)))
        slow.await_answer()
        assert client.fetch(identity).error_code == 0

        kept = [c._transport.get_write_buffer_size() for c in served.server._connections]
        assert sum(kept) < 2 * WRITE_BUFFER_BYTES
        lines = [len(c._line) for c in served.server._connections]
        assert max(lines) <= MAX_UNANSWERED

        for _ in range(1_000):
            assert len(records_in(slow.receive()[1].responses[0].partitions[0])) == 1


def test_more_requests_than_may_stand_in_line(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic)
    client.produce(topic, batch(bytes(100_000)))
    sending = threading.Thread(
        target=lambda: [
            client.send("fetch", 16, **fetching({identity: {0: 0}})) for _ in range(500)
        ]
    )
    sending.start()

    answers = [client.receive() for _ in range(500)]
    sending.join(20)

    assert [number for number, _ in answers] == sorted(number for number, _ in answers)
    assert all(len(records_in(answer.responses[0].partitions[0])) == 1 for _, answer in answers)


def test_what_was_produced_in_a_pipeline_is_fetched_after_it(
    client: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic)
    client.send("produce", 9, **production(topic, batch(b"x")))
    client.send("fetch", 16, **fetching({identity: {0: 0}}, max_wait=PATIENCE))

    client.receive()
    _, answer = client.receive()

    assert len(records_in(answer.responses[0].partitions[0])) == 1
