"""Whatever comes over the wire: an error or a closed connection, and nobody else notices."""

import contextlib
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from crc32c import crc32c

from penstock.events.batch import encode
from penstock.events.compression import MAX_UNPACKED, compress
from penstock.events.record import Record
from penstock.log.server.connection import MAX_REQUEST_BYTES
from penstock.log.server.settings import ServerSettings
from penstock.testing import LogServerProcess, wait_until
from tests.log.server.batches import MALFORMED
from tests.log.server.plain_client import PlainClient, batch, creation, fetching, production
from tests.log.server.scenes.stage import listing
from tests.log.server.served import Served

MB = 1024 * 1024
MAX_FRAME_BYTES = ServerSettings().max_frame_bytes
MAX_CONNECTIONS = ServerSettings().max_connections
SILENT = 10_000
HUGE = 2**31 - 1
PATIENCE = 10.0  # seconds that an answer may take while others misbehave

INVALID_TOPIC, OUT_OF_RANGE, UNKNOWN_PARTITION = 17, 1, 3


class Witness:
    """A client that was there before, and notices whether the others are still served."""

    def __init__(self, server: LogServerProcess) -> None:
        self.server = server
        self.client = PlainClient(server.address)
        self.client._socket.settimeout(PATIENCE)
        self.topic = f"witness-{uuid4().hex}"
        self.id = self.client.create_topic(self.topic)
        self.count = 0

    def looks(self, client: PlainClient | None = None) -> None:
        """Produces a record and reads it back."""
        client = client or self.client
        value = b"%d" % self.count
        assert client.produce(self.topic, batch(value)).base_offset == self.count
        assert value in client.fetch(self.id, self.count).records
        self.count += 1

    def looks_anew(self) -> None:
        with PlainClient(self.server.address) as client:
            self.looks(client)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServerProcess]:
    with LogServerProcess(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def witness(server: LogServerProcess) -> Iterator[Witness]:
    witness = Witness(server)
    yield witness
    witness.client.close()


@pytest.fixture(autouse=True)
def nobody_else_notices(server: LogServerProcess, witness: Witness) -> Iterator[None]:
    witness.looks()
    before = server.resident_bytes
    yield
    witness.looks()
    witness.looks_anew()
    assert server.running
    assert server.resident_bytes < before + 60 * MB
    assert "Traceback" not in server.output
    assert "internal error" not in server.output


@pytest.fixture
def client(server: LogServerProcess) -> Iterator[PlainClient]:
    with PlainClient(server.address) as client:
        yield client


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def head(key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"")


def expect_closed(client: PlainClient) -> None:
    with pytest.raises(ConnectionError):
        client.receive_bytes(1)


# Frames

PRODUCE_9 = head(0, 9, flexible=True) + b"\0" + struct.pack(">hi", -1, 1000)
MANY = b"\xff\xff\xff\xff\x0f"  # 2**32 - 1, as a length of variable size

BROKEN_FRAMES = {
    "a negative size": struct.pack(">i", -1),
    "the lowest size": struct.pack(">i", -(2**31)),
    "no bytes": struct.pack(">i", 0),
    "less than a header": framed(b"\0\x12\0\0\0\0\0"),
    "more than the limit": struct.pack(">i", MAX_FRAME_BYTES + 1),
    "the highest size": struct.pack(">i", HUGE),
    "a question about topics of megabytes": struct.pack(">i", MAX_REQUEST_BYTES + 1) + head(3, 4),
    "a browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a greeting in TLS": bytes.fromhex("1603010200010001fc0303") + bytes(100),
    "an unknown request": framed(head(9999, 0)),
    "a negative key": framed(head(-1, 0)),
    "an unknown version": framed(head(3, 99)),
    "Produce 0": framed(head(0, 0) + bytes(20)),
    "Produce 1": framed(head(0, 1) + bytes(20)),
    "Produce 2": framed(head(0, 2) + bytes(20)),
    "a client's name beyond the frame": framed(struct.pack(">hhih", 3, 4, 1, 32_767) + b"me"),
    "a client's name that is no text": framed(struct.pack(">hhih", 3, 4, 1, 2) + b"\xff\xfe"),
    "an array of 2**31 topics": framed(head(3, 4) + struct.pack(">i?", HUGE, True)),
    "an array of -2 topics": framed(head(3, 4) + struct.pack(">i?", -2, True)),
    "a compact array of 2**32 topics": framed(head(3, 12, flexible=True) + MANY),
    "a length that does not end": framed(head(3, 12, flexible=True) + b"\xff" * 20),
    "2**32 tags": framed(struct.pack(">hhih", 3, 12, 1, -1) + MANY + bytes(50)),
    "a tag beyond the frame": framed(struct.pack(">hhih", 3, 12, 1, -1) + b"\1\0" + MANY),
    "Produce to 2**31 topics": framed(head(0, 3) + struct.pack(">hhii", -1, -1, 0, HUGE)),
    "Produce to 2**32 topics": framed(PRODUCE_9 + MANY),
    "Produce to more than can be": framed(PRODUCE_9 + b"\xc0\x84\x3d" + b"\x01\x01\0" * 10**6),
    "Produce with 2**32 tags": framed(struct.pack(">hhih", 0, 9, 1, -1) + MANY + bytes(50)),
    "Produce with a name beyond the frame": framed(PRODUCE_9 + b"\2" + MANY + b"name"),
    "Produce with records beyond the frame": framed(
        PRODUCE_9 + b"\2\2t\2" + struct.pack(">i", 0) + MANY + b"records"
    ),
    "Produce cut short": framed(PRODUCE_9 + b"\2\2t\2"),
    "joining with 2**31 protocols": framed(
        head(11, 0) + b"\0\1g" + struct.pack(">i", 30_000) + b"\0\0" + b"\0\1c" + b"\x7f" * 4
    ),
    "committing 2**31 offsets": framed(
        head(8, 2) + b"\0\1g" + struct.pack(">i", -1) + b"\0\0" + bytes(8) + b"\x7f" * 4
    ),
}


@pytest.mark.parametrize("frame", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
def test_broken_frames_end_the_connection(client: PlainClient, frame: bytes) -> None:
    client.send_bytes(frame)
    expect_closed(client)


@pytest.mark.parametrize("seed", range(20))
def test_noise(server: LogServerProcess, seed: int) -> None:
    luck = Random(seed)
    noise = luck.randbytes(luck.choice([4, 12, 1000, 100_000]))
    with PlainClient(server.address) as raw, PlainClient(server.address) as framing:
        raw.send_bytes(noise)
        framing.send_bytes(framed(noise) * 3)
        for client in (raw, framing):
            with contextlib.suppress(OSError):  # it may have been closed by now
                client._socket.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionError):
                client.receive_bytes(1 << 30)


def test_every_beginning_of_a_request(server: LogServerProcess) -> None:
    """Once as a frame that claims to be whole, once as one whose rest never comes."""
    template = PlainClient(server.address)
    whole = [
        template.frame("produce", 9, **production("t", batch(b"a"))),
        template.frame("fetch", 11, **fetching({"t": {0: 0}})),
        template.frame("create_topics", 7, **creation("t")),
    ]
    template.close()
    with contextlib.ExitStack() as stack:
        clients = []
        for frame in whole:
            content = frame[4:]
            for size in range(8, len(content), 3):
                claims, waits = PlainClient(server.address), PlainClient(server.address)
                clients += [stack.enter_context(claims), stack.enter_context(waits)]
                claims.send_bytes(framed(content[:size]))
                waits.send_bytes(frame[: 4 + size])
        for claims in clients[::2]:
            expect_closed(claims)


def test_tags_are_skipped(client: PlainClient) -> None:
    """However many, and however large: they are for others to understand."""
    many = b"".join(b"\x80\x7f\x03abc" for _ in range(10_000))
    tags = b"\x90\x4e" + many  # ten thousand
    question = b"\x01\0\0\0" + tags  # about no topics
    client.send_bytes(framed(struct.pack(">hhih", 3, 12, 77, -1) + tags + question))
    size = int.from_bytes(client.receive_bytes(4), "big")
    assert client.receive_bytes(size)[:4] == struct.pack(">i", 77)


# Memory


def test_room_is_taken_as_bytes_come(server: LogServerProcess) -> None:
    """A hundred frames of as many megabytes are begun, and none goes on."""
    before = server.resident_bytes
    begun = struct.pack(">i", MAX_FRAME_BYTES) + head(0, 9) + bytes(300_000)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(PlainClient(server.address)).send_bytes(begun)
        PlainClient(server.address).close()
        assert server.resident_bytes < before + 60 * MB


@pytest.mark.slow
def test_answers_that_nobody_reads(server: LogServerProcess, witness: Witness) -> None:
    """The server stops reading from who does not read, and goes on when he does."""
    with PlainClient(server.address) as admin:
        name, parts = f"wide-{uuid4().hex}", 16
        topic = admin.create_topic(name, parts)
        for partition in range(parts):
            admin.produce(name, batch(bytes(60_000)), partition)
    count, before = 150, server.resident_bytes
    wanted = fetching({topic: dict.fromkeys(range(parts), 0)})  # a megabyte, sent from memory
    with PlainClient(server.address, receive_buffer=16_384) as greedy:
        for _ in range(count):
            greedy.send("fetch", 16, **wanted)
        for _ in range(50):
            witness.looks()
            assert server.resident_bytes < before + 40 * MB
        for _ in range(count):
            found = greedy.receive()[1].responses[0].partitions
            assert {each.error_code for each in found} == {0}


@pytest.mark.slow
def test_small_questions_with_large_answers(server: LogServerProcess, witness: Witness) -> None:
    before = server.resident_bytes
    question = framed(head(18, 0))  # ten bytes that are answered with hundreds
    with PlainClient(server.address, receive_buffer=16_384) as greedy:
        asking = threading.Thread(target=_send_while_it_may, args=(greedy, question * 200_000))
        asking.start()
        for _ in range(30):
            witness.looks()
        assert server.resident_bytes < before + 50 * MB
    asking.join()


def _send_while_it_may(client: PlainClient, data: bytes) -> None:
    with contextlib.suppress(OSError):  # until the other end is closed
        client.send_bytes(data)


@pytest.mark.slow
def test_bombs_are_stored_and_not_opened_beyond_the_limit(
    client: PlainClient, server: LogServerProcess
) -> None:
    name = f"bombs-{uuid4().hex}"
    client.create_topic(name, 2)
    for partition, codec in enumerate((1, 4)):
        bomb = encode([Record(value=bytes(MAX_UNPACKED), timestamp=1)], codec=codec)
        assert client.produce(name, bomb, partition).error_code == 0
        found = client.ask("list_offsets", 5, **listing(name, {partition: 1}))
        assert found.topics[0].partitions[0].error_code == 2
    wait_until(lambda: server.resident_bytes < 300 * MB, what="the memory given back")


# Connections


@pytest.mark.slow
def test_ten_thousand_connections_that_say_nothing(
    server: LogServerProcess, witness: Witness
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    silent = min(SILENT, hard - 1_000)
    assert silent > MAX_CONNECTIONS, "too few files may be opened here"
    host, _, port = server.address.rpartition(":")
    before = server.resident_bytes
    delivered: list[Any] = []
    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 0})

    def says_something() -> None:
        producer.produce(
            witness.topic, b"said", on_delivery=lambda error, message: delivered.append(error)
        )
        assert producer.flush(10) == 0
        witness.count += 1

    try:
        says_something()
        with contextlib.ExitStack() as stack:
            for number in range(silent):
                stack.enter_context(socket.create_connection((host, int(port)), 10))
                if number % 500 == 0:
                    witness.looks()
                    witness.looks_anew()
                    says_something()
            assert server.resident_bytes < before + 150 * MB
            consumer = Consumer(
                {
                    "bootstrap.servers": server.address,
                    "group.id": "late",
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe([witness.topic])
            got = [message.error() for message in consumer.consume(witness.count, timeout=30)]
            consumer.close()
            assert got == [None] * witness.count
        assert set(delivered) == {None}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_few_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system allows less than the server would take, it makes room all the same."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100, 100))
    with Served(None) as served, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(PlainClient(served.address)) for _ in range(80)]
        with PlainClient(served.address) as client:
            assert client.ask("api_versions", 0).api_keys
        expect_closed(silent[0])
        assert silent[-1].ask("api_versions", 0).api_keys
        assert served.server.broker.counts["connection: too many connections"] >= 30


def test_who_says_nothing_for_long_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.server.server.TICK_SECONDS", 0.05)
    with Served(None, ServerSettings(idle_seconds=0.5)) as served:
        with PlainClient(served.address) as silent, PlainClient(served.address) as spoke:
            assert spoke.ask("api_versions", 0).api_keys
            expect_closed(silent)
            expect_closed(spoke)
        assert served.server.broker.counts["connection: idle"] == 2


def test_a_request_byte_by_byte(client: PlainClient) -> None:
    frame = client.frame("api_versions", 0)
    for position in range(len(frame)):
        client.send_bytes(frame[position : position + 1])
    assert client.receive()[1].api_keys


@pytest.mark.slow
def test_hundreds_that_never_finish_a_request(server: LogServerProcess, witness: Witness) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(PlainClient(server.address)) for _ in range(500)]
        frame = framed(head(3, 4) + struct.pack(">i", 100) + b"\0\4name" * 100 + b"\0")
        for byte in frame[:60]:
            for client in slow:
                client.send_bytes(bytes([byte]))
            witness.looks()


def test_who_hangs_up_is_forgotten(server: LogServerProcess, witness: Witness) -> None:
    """In the middle of a wait without end, of a large answer and of a large request."""
    for _ in range(20):
        with PlainClient(server.address) as waiting:
            wanted = fetching({witness.id: {0: witness.count}}, min_bytes=HUGE)
            waiting.send("fetch", 16, **wanted | {"max_wait": timedelta(milliseconds=HUGE)})
        with PlainClient(server.address) as leaving:
            leaving.send("fetch", 16, **fetching({witness.id: {0: 0}}))
            leaving.send_bytes(struct.pack(">i", 50 * MB) + head(0, 9) + bytes(500_000))
        witness.looks()


# Requests that are whole, and wrong

CREATION = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}
BAD_NAMES = ["a/b", "/", "../up", "..", ".", "", "a" * 300, "a" * 32_000, "a\0b", "ä", "a b", "a\n"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:12])
def test_names_that_no_topic_has(server: LogServerProcess, client: PlainClient, name: str) -> None:
    folders = sorted(server.data.parent.rglob("*"))
    made = client.ask("create_topics", 7, **creation(name)).topics[0]
    assert made.error_code == INVALID_TOPIC
    assert "is not a topic name" in made.error_message
    for version in (4, 12):
        topics = [{"name": name, "topic_id": None}]
        found = client.ask("metadata", version, topics=topics, **CREATION)
        assert found.topics[0].error_code == INVALID_TOPIC
    assert client.produce(name, batch(b"x")).error_code == UNKNOWN_PARTITION
    assert client.ask("fetch", 11, **fetching({name: {0: 0}})).responses[0].partitions[0].error_code
    assert sorted(server.data.parent.rglob("*")) == folders


@pytest.mark.parametrize("partition", [-1, -(2**31), 1, HUGE])
def test_partitions_that_are_not_there(
    client: PlainClient, witness: Witness, partition: int
) -> None:
    assert client.produce(witness.topic, batch(b"x"), partition).error_code == UNKNOWN_PARTITION
    assert client.fetch(witness.id, 0, partition).error_code == UNKNOWN_PARTITION
    found = client.ask("list_offsets", 5, **listing(witness.topic, {partition: -1}))
    assert found.topics[0].partitions[0].error_code == UNKNOWN_PARTITION
    places = [{"partition_index": partition, "offset": 0}]
    topics = [{"name": witness.topic, "partitions": places}]
    trimmed = client.ask("delete_records", 2, topics=topics, timeout=timedelta(seconds=1))
    assert trimmed.topics[0].partitions[0].error_code == UNKNOWN_PARTITION


@pytest.mark.parametrize("offset", [-1, -2, -(2**63), 10**9, 2**63 - 1])
def test_offsets_that_are_not_there(client: PlainClient, witness: Witness, offset: int) -> None:
    refused = client.fetch(witness.id, offset)
    assert (refused.error_code, refused.records or b"") == (OUT_OF_RANGE, b"")


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31), HUGE])
@pytest.mark.parametrize("min_bytes", [0, -1, -(2**31), HUGE])
@pytest.mark.parametrize("wait_ms", [0, -1, -(2**31)])
def test_absurd_limits_of_a_fetch(
    client: PlainClient, witness: Witness, max_bytes: int, min_bytes: int, wait_ms: int
) -> None:
    limits = {"max_bytes": max_bytes, "min_bytes": min_bytes, "partition_max_bytes": max_bytes}
    wanted = fetching({witness.id: {0: 0}}, **limits)
    answer = client.ask("fetch", 16, **wanted | {"max_wait": timedelta(milliseconds=wait_ms)})
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0
    if max_bytes <= 0:
        assert len(found.records) < 100  # one batch goes through any limit, and no more


@pytest.mark.slow
def test_one_partition_asked_for_ten_thousand_times(client: PlainClient, witness: Witness) -> None:
    wanted = fetching({witness.topic: {0: witness.count}}, max_wait=0.5)
    wanted["topics"][0]["partitions"] *= 10_000
    answer = client.ask("fetch", 11, **wanted)
    assert len(answer.responses[0].partitions) == 10_000


Ask = Callable[[PlainClient, Witness], Any]
SECOND = timedelta(seconds=1)

WRONG: dict[str, Ask] = {
    "a topic of -5 partitions": lambda c, w: c.ask(
        "create_topics", 7, **creation("wrong", -5)
    ).topics[0],
    "a topic of 2**31 partitions": lambda c, w: c.ask(
        "create_topics", 7, **creation("wrong", HUGE)
    ).topics[0],
    "a topic on 9 servers": lambda c, w: c.ask(
        "create_topics", 7, **creation("wrong", replication_factor=9)
    ).topics[0],
    "a setting that is not a number": lambda c, w: c.ask(
        "create_topics",
        7,
        **creation("wrong", configs=[{"name": "retention.ms", "value": "\x00"}]),
    ).topics[0],
    "growing to 2**31 partitions": lambda c, w: c.ask(
        "create_partitions",
        3,
        topics=[{"name": w.topic, "count": HUGE, "assignments": None}],
        timeout=SECOND,
        validate_only=False,
    ).results[0],
    "records before the beginning deleted": lambda c, w: (
        c.ask(
            "delete_records",
            2,
            topics=[{"name": w.topic, "partitions": [{"partition_index": 0, "offset": -7}]}],
            timeout=SECOND,
        )
        .topics[0]
        .partitions[0]
    ),
    "a commit in a partition of none": lambda c, w: (
        c.ask(
            "offset_commit",
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                {
                    "name": "no/topic",
                    "partitions": [
                        {
                            "partition_index": -1,
                            "committed_offset": -9,
                            "committed_leader_epoch": -9,
                            "committed_metadata": None,
                        }
                    ],
                }
            ],
        )
        .topics[0]
        .partitions[0]
    ),
}


@pytest.mark.parametrize("ask", WRONG.values(), ids=WRONG)
def test_wrong_requests_are_told_so(client: PlainClient, witness: Witness, ask: Ask) -> None:
    assert ask(client, witness).error_code > 0
    witness.looks(client)  # the connection stays


@pytest.mark.parametrize("name", MALFORMED)
def test_batches_that_lie(client: PlainClient, witness: Witness, name: str) -> None:
    sent, code = MALFORMED[name]
    assert client.produce(witness.topic, sent(1) or b"").error_code == code


@pytest.mark.parametrize("codec", range(5))
def test_records_that_lie_inside_a_sound_batch_are_for_their_readers_to_find(
    client: PlainClient, codec: int
) -> None:
    """A checksum that fits does not make them well-formed; the server itself opens them by time."""
    name = f"liars-{uuid4().hex}"
    client.create_topic(name)
    for seed in range(30):
        body = bytearray(encode([Record(key=b"k", value=b"v" * 30, timestamp=5)] * 3))
        at = Random(seed).randrange(62, len(body))
        body[at] ^= 1 << seed % 8
        client.produce(name, resealed(bytes(body), codec))
    found = client.ask("list_offsets", 5, **listing(name, {0: 5}))
    assert found.topics[0].partitions[0].error_code in (0, 2)


def resealed(data: bytes, codec: int) -> bytes:
    """The batch with its records packed by `codec` as they are, and a checksum that fits."""
    checked = bytearray(data[21:61])
    checked[1] |= codec
    records = compress(codec, data[61:])
    crc = crc32c(bytes(checked) + records)
    length = 49 + len(records)
    return data[:8] + struct.pack(">iibI", length, -1, 2, crc) + checked + records
