"""A bit that turned on disk: reported with file and position, never served, its neighbours kept."""

import logging
import shutil
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock import Log
from penstock.errors import CorruptBatch
from penstock.events.batch import HEADER_BYTES, decode
from penstock.events.record import Record
from penstock.log.policy import TopicPolicy
from penstock.log.storage.partition import Partition
from penstock.testing import LogServerProcess
from tests.log.server.plain_client import PlainClient, batch
from tests.log.storage.conftest import append

# Five batches of three records; the one in the middle is damaged.
VALUES = [b"value-%02d" % number for number in range(15)]
DAMAGED = range(6, 9)
BATCHES = [VALUES[first : first + 3] for first in range(0, 15, 3)]
POLICY = TopicPolicy(segment_bytes=1024)

# Where each field of a batch stands, and the records behind them.
FIELDS = {
    "base-offset": 0,
    "length": 8,
    "leader-epoch": 12,
    "magic": 16,
    "checksum": 17,
    "attributes": 21,
    "last-offset-delta": 23,
    "base-timestamp": 27,
    "max-timestamp": 35,
    "producer-id": 43,
    "producer-epoch": 51,
    "base-sequence": 53,
    "number-of-records": 57,
    "records": HEADER_BYTES,
}


class Damage(NamedTuple):
    folder: Path
    segment: str  # the name of the file with the five batches
    begins: int  # the third of which begins here
    ends: int

    def expect(self, partition: Partition, offset: int) -> None:
        with pytest.raises(CorruptBatch, match=f"damaged at byte {self.begins}:") as found:
            partition.slice(offset, 1000)
        assert Path(found.value.file).name == self.segment
        assert found.value.position == self.begins


def made(folder: Path, *, closed: bool, clean: bool) -> Damage:
    """The five batches on disk, their segment closed or not, after a clean end or a crash."""
    with ThreadPoolExecutor(1) as syncs:
        partition = Partition(folder, "t", 0, POLICY, syncs)
        sizes = [(append(partition, *values), partition.size)[1] for values in BATCHES]
        if closed:
            append(partition, b"x" * 1000)
            assert len(partition.segments) == 2
        if clean:
            partition.close()
    if not clean:
        for index in folder.glob("*.index"):  # the crash may come before it is written
            index.unlink()
    return Damage(folder, f"{0:020d}.log", sizes[1], sizes[2])


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def values(partition: Partition, offset: int, end: int, max_bytes: int = 10_000) -> list[bytes]:
    """What is read from `offset` to `end`, in slices of about `max_bytes`."""
    found: list[bytes] = []
    while offset < end:
        piece = partition.slice(offset, max_bytes)
        assert piece is not None
        for record in decode(memoryview(piece.read())):
            if offset <= record.position.offset < end:
                found.append(record.value or b"")
                offset = record.position.offset + 1
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("quick_syncs")
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "active"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_every_bit_of_a_batch(tmp_path: Path, syncs: Executor, closed: bool, clean: bool) -> None:
    damage = made(tmp_path, closed=closed, clean=clean)
    for bit in range(damage.begins * 8, damage.ends * 8):
        flip(tmp_path / damage.segment, bit)
        partition = Partition(tmp_path, "t", 0, POLICY, syncs)
        if not clean and not closed:
            assert [each.position for each in partition.recovery.damage] == [damage.begins]
        for offset in (DAMAGED[0], DAMAGED[-1]):
            damage.expect(partition, offset)
        for max_bytes in (1, 10_000):
            assert values(partition, 0, 6, max_bytes) == VALUES[:6]
            assert values(partition, 9, 15, max_bytes) == VALUES[9:]
        flip(tmp_path / damage.segment, bit)


@pytest.mark.usefixtures("quick_syncs")
@pytest.mark.parametrize("field", FIELDS)
def test_the_damage_is_found_again_however_the_log_goes_on(
    tmp_path: Path, syncs: Executor, field: str
) -> None:
    damage = made(tmp_path, closed=False, clean=False)
    flip(tmp_path / damage.segment, (damage.begins + FIELDS[field]) * 8 + 1)
    behind: list[bytes] = []
    for clean in (True, False, False, True, False):
        partition = Partition(tmp_path, "t", 0, POLICY, syncs)
        damage.expect(partition, 6)
        assert values(partition, 9, partition.end_offset) == VALUES[9:] + behind
        behind.append(b"%d behind" % len(behind))
        append(partition, behind[-1])
        if clean:
            partition.close()


@pytest.mark.usefixtures("quick_syncs")
def test_the_last_batch_damaged_after_it_was_acknowledged(tmp_path: Path, syncs: Executor) -> None:
    """It is no torn write: its bytes stay for whoever can mend them, its offsets are not reused."""
    original = made(tmp_path / "original", closed=False, clean=False)
    size = (original.folder / original.segment).stat().st_size
    begins = size - (original.ends - original.begins)
    for bit in range(begins * 8, size * 8, 3):
        folder = tmp_path / str(bit)
        shutil.copytree(original.folder, folder)
        flip(folder / original.segment, bit)
        for next_offset in (15, 16):
            partition = Partition(folder, "t", 0, POLICY, syncs)
            assert (folder / original.segment).stat().st_size >= size
            original._replace(begins=begins).expect(partition, 12)
            assert append(partition, b"behind") == next_offset
        assert values(partition, 15, 17) == [b"behind"] * 2


@pytest.mark.parametrize("left", range(5))
def test_acknowledged_batches_that_are_gone_are_missed(
    tmp_path: Path, syncs: Executor, left: int
) -> None:
    original = made(tmp_path, closed=False, clean=False)
    segment = tmp_path / original.segment
    size = left * (original.ends - original.begins)
    segment.write_bytes(segment.read_bytes()[:size])
    for next_offset in (15, 16):
        partition = Partition(tmp_path, "t", 0, POLICY, syncs)
        assert values(partition, 0, left * 3) == VALUES[: left * 3]
        with pytest.raises(CorruptBatch, match=f"damaged at byte {size}:"):
            partition.slice(left * 3, 1000)
        assert append(partition, b"behind") == next_offset


# Over the wire


def batches_of(content: bytes) -> list[int]:
    return [record.position.offset for record in decode(memoryview(content))]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_over_the_wire(log_server: LogServerProcess, end: str) -> None:
    """One topic for each field that is damaged."""
    with PlainClient(log_server.address) as client:
        ids = {field: client.create_topic(field) for field in FIELDS}
        for field in FIELDS:
            for content in BATCHES:
                assert client.produce(field, batch(*content)).error_code == 0
    getattr(log_server, end)()
    for field, at in FIELDS.items():
        segment = log_server.data / f"topics/{field}/0/{0:020d}.log"
        size = segment.stat().st_size // 5
        flip(segment, (2 * size + at) * 8 + 1)
    log_server.restart()
    with PlainClient(log_server.address) as client:
        for field, topic in ids.items():
            for offset in DAMAGED:
                refused = client.fetch(topic, offset)
                assert (refused.error_code.name, refused.records) == ("corrupt_message", b"")
            assert batches_of(client.fetch(topic, 0).records) == [*range(6)]
            assert batches_of(client.fetch(topic, 9).records) == [*range(9, 15)]
            path = log_server.data / f"topics/{field}/0/{0:020d}.log"
            assert log_server.output.count(f"{path} is damaged at byte {2 * size}:") == 1
    expect_refusal(log_server.address)


def expect_refusal(address: str) -> None:
    """As a client library and as the Python API have it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition("records", 0, 0)])
    got = [message for _ in range(7) for message in consumer.consume(1, timeout=10)]
    consumer.close()
    assert [message.value() for message in got[:6]] == VALUES[:6]
    error = got[6].error()
    assert error is not None
    assert error.code() == KafkaError.INVALID_MSG
    with Log.connect(address) as log:
        assert [record.value for record in log.read("records", 0, 9)] == VALUES[9:]
        reading = log.read("records", 0, 0)
        assert [next(reading).value for _ in range(6)] == VALUES[:6]
        with pytest.raises(CorruptBatch):
            next(reading)


def test_in_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log.open(tmp_path) as log:
        log.create("orders")
        for content in BATCHES:
            log.append("orders", [Record(value=value) for value in content])
    segment = tmp_path / f"topics/orders/0/{0:020d}.log"
    begins = segment.stat().st_size // 5 * 2
    flip(segment, (begins + 70) * 8)
    with caplog.at_level(logging.ERROR), Log.open(tmp_path) as log:
        reading = log.read("orders", 0, 0)
        assert [next(reading).value for _ in range(6)] == VALUES[:6]
        with pytest.raises(CorruptBatch) as found:
            next(reading)
        assert (found.value.file, found.value.position) == (str(segment), begins)
        assert [record.value for record in log.read("orders", 0, 9)] == VALUES[9:]
    assert f"{segment} is damaged at byte {begins}:" in caplog.text
