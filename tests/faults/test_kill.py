"""`kill -9` of the server, again and again, under load."""

import threading
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from penstock import Log
from penstock.testing import LogServerProcess, wait_until

ROUNDS = 20
PARTITIONS = 3
PATIENCE = 60.0
AT_ONCE = 50


class Sender:
    """Sends numbers without a pause, and keeps which of them were acknowledged."""

    def __init__(self, address: str, name: str, *, idempotent: bool) -> None:
        self.name = name
        self.idempotent = idempotent
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.failed: list[KafkaError] = []
        self.stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            for _ in range(AT_ONCE):
                number = self.sent
                self._producer.produce(
                    "events",
                    f"{self.name}:{number}".encode(),
                    partition=number % PARTITIONS,
                    on_delivery=partial(self._delivered, number),
                )
                self.sent += 1
            # Never far ahead of the log, so that every round kills it with some under way.
            while len(self._producer) > 10 * AT_ONCE and not self.stop.is_set():
                self._producer.poll(0.05)
            self._producer.poll(0.005)
        self._producer.flush(PATIENCE)

    def wait_for(self, count: int) -> None:
        what = f"{count} acknowledgements for {self.name}"
        wait_until(lambda: len(self.acknowledged) >= count, within=PATIENCE, what=what)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(number)
        else:
            self.failed.append(error)


class Reader:
    """A group's only member, which commits what it has seen and goes on across the restarts."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seen: Counter[tuple[int, int]] = Counter()
        self.committed: dict[int, int] = {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with Log.connect(self.address) as log, log.subscribe("readers", ["events"]) as records:
            while not self.stop.is_set():
                reached: dict[int, int] = {}
                for record in records.poll(0.1):
                    _, partition, offset = record.position
                    self.seen[partition, offset] += 1
                    reached[partition] = offset + 1
                if reached:
                    records.commit()
                    self.committed |= reached


@pytest.mark.timeout(400)
def test_no_acknowledged_record_is_lost_and_none_is_invented(tmp_path: Path) -> None:
    with LogServerProcess(tmp_path / "data") as server:
        with Log.connect(server.address) as log:
            log.create("events", partitions=PARTITIONS, segment_bytes=100_000)
        senders = [
            Sender(server.address, "idempotent-a", idempotent=True),
            Sender(server.address, "idempotent-b", idempotent=True),
            Sender(server.address, "plain", idempotent=False),
        ]
        reader = Reader(server.address)
        try:
            for _ in range(ROUNDS):
                before = [len(sender.acknowledged) for sender in senders]
                for sender, count in zip(senders, before, strict=True):
                    sender.wait_for(count + AT_ONCE)
                server.kill()
                server.restart()
        finally:
            for sender in senders:
                sender.stop.set()
            for sender in senders:
                sender.thread.join()
        stored = _stored(server.address)
        try:
            wait_until(
                lambda: len(reader.seen) == sum(map(len, stored.values())),
                within=PATIENCE,
                what="the reader to have seen it all",
            )
        finally:
            reader.stop.set()
            reader.thread.join()
        with Log.connect(server.address) as log:
            lags = {lag.partition: lag for lag in log.describe_group("readers").lags}

    for sender in senders:
        _check(sender, stored)
    for partition, reached in reader.committed.items():
        assert lags[partition].committed >= reached


def _stored(address: str) -> dict[int, list[tuple[str, int]]]:
    """The sender and the number of every record, by partition and in order."""
    stored: dict[int, list[tuple[str, int]]] = defaultdict(list)
    with Log.connect(address) as log:
        for partition in range(PARTITIONS):
            for offset, record in enumerate(log.read("events", partition, 0)):
                assert record.offset == offset
                name, _, number = (record.value or b"").decode().partition(":")
                stored[partition].append((name, int(number)))
    return stored


def _check(sender: Sender, stored: dict[int, list[tuple[str, int]]]) -> None:
    assert not sender.failed
    assert len(sender.acknowledged) > ROUNDS * AT_ONCE
    found: Counter[int] = Counter()
    for partition, records in stored.items():
        numbers = [number for name, number in records if name == sender.name]
        assert all(number % PARTITIONS == partition for number in numbers)
        if sender.idempotent:
            assert numbers == sorted(numbers)
        found.update(numbers)
    assert sender.acknowledged <= found.keys()
    assert found.keys() <= set(range(sender.sent))
    if sender.idempotent:
        assert set(found.values()) == {1}
