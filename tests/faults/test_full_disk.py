"""A full disk: writes are refused with a clear error, reads go on, and so does writing later."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from penstock import Log, Record
from penstock.clock import now_ms
from penstock.errors import DiskFull, LogError, StorageFailed
from penstock.log.client.remote import RemoteLog
from penstock.log.engine import Engine
from penstock.testing import LogServerProcess, wait_until
from tests.conftest import without_peer
from tests.log.server.plain_client import PlainClient, batch, creation

MEGABYTES = 8
BALLAST = 3 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        without_peer(f"no small disk can be mounted: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(log: Log) -> tuple[list[bytes], LogError]:
    """Appends until the disk is full; what was acknowledged, and the refusal of the next."""
    acknowledged: list[bytes] = []
    for number in range(1000):
        value = b"%06d" % number + b"x" * 50_000
        try:
            log.append("orders", [Record(value=value)])
        except LogError as refusal:
            return acknowledged, refusal
        acknowledged.append(value)
    pytest.fail("the disk took it all")


def take_the_rest(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", 0) as rest:
        while True:
            rest.write(bytes(4096))


def commits(log: Log) -> bool:
    with contextlib.suppress(LogError):
        log.commit("others", {("orders", 0): 1})
        return True
    return False


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.read("orders", 0, 0)]


def test_in_the_same_process(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    with Log.open(small_disk / "data") as log:
        log.create("orders", segment_bytes=1_000_000)
        acknowledged, refusal = fill(log)
        assert isinstance(refusal, DiskFull)
        assert len(acknowledged) > 50
        assert values(log) == acknowledged
        with pytest.raises(DiskFull, match="free some space"):
            log.append("orders", [Record(value=b"y" * 50_000)])
        ballast.unlink()
        log.append("orders", [Record(value=b"there is room again")])
        assert values(log) == [*acknowledged, b"there is room again"]
    with Log.open(small_disk / "data") as log:
        assert values(log) == [*acknowledged, b"there is room again"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_under_the_server(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    with LogServerProcess(small_disk / "data") as server:
        with RemoteLog(server.address, time_limit=5) as log:
            log.create("orders", segment_bytes=1_000_000)
            acknowledged, refusal = fill(log)
            assert isinstance(refusal, StorageFailed)
            assert "disk is full" in str(refusal)
            assert len(acknowledged) > 50
            leftover = small_disk / "leftover"
            take_the_rest(leftover)
            assert values(log) == acknowledged
            with pytest.raises(LogError):
                log.create("another")
            with pytest.raises(LogError):
                log.commit("readers", {("orders", 0): 5})
            assert server.running
            assert values(log) == acknowledged
            leftover.unlink()
            ballast.unlink()
            log.create("another")
            log.commit("readers", {("orders", 0): 5})
            log.append("orders", [Record(value=b"there is room again")])
            assert values(log) == [*acknowledged, b"there is room again"]
        server.kill()
        server.restart()
        with Log.connect(server.address) as log:
            assert values(log) == [*acknowledged, b"there is room again"]
            assert log.describe_group("readers").lags[0].committed == 5


def test_what_is_refused_is_as_if_it_had_not_been_asked(small_disk: Path) -> None:
    """Nothing of it stays, neither in memory nor on disk, and it can be asked again."""
    with Log.open(small_disk / "data") as log:
        log.create("orders", partitions=2, retention_ms=1_000_000)
        leftover = small_disk / "leftover"
        take_the_rest(leftover)
        with pytest.raises(DiskFull, match="changing topic orders"):
            log.alter("orders", retention_ms=5)
        with pytest.raises(DiskFull, match="changing topic orders"):
            log.alter("orders", partitions=3)
        with pytest.raises(DiskFull, match="changing topic another"):
            log.create("another")
        assert log.describe("orders").policy.retention_ms == 1_000_000
        assert len(log.describe("orders").partitions) == 2
        assert log.topics() == ["orders"]
        assert [path.name for path in (small_disk / "data/topics").iterdir()] == ["orders"]
        assert not list((small_disk / "data").rglob("*.new"))
        leftover.unlink()
        log.alter("orders", partitions=3, retention_ms=5)
        log.create("another")


def test_numbers_for_producers_are_not_given_before_they_are_reserved(small_disk: Path) -> None:
    engine = Engine(small_disk / "data")
    leftover = small_disk / "leftover"
    take_the_rest(leftover)
    for _ in range(2):
        with pytest.raises(DiskFull):
            engine.new_producer_id()
    leftover.unlink()
    first = engine.new_producer_id()
    engine.close()
    engine = Engine(small_disk / "data")
    assert engine.new_producer_id() > first
    engine.close()


@pytest.mark.parametrize("how", ["trim", "retention", "delete"])
def test_room_is_made_by_deleting(small_disk: Path, how: str) -> None:
    """Deleting writes to the disk itself, and must do with what there is."""
    with Log.open(small_disk / "data") as log:
        log.create("orders", segment_bytes=1_000_000)
        log.create("old", segment_bytes=1_000_000, retention_bytes=500_000)
        for number in range(40):
            log.append("old", [Record(value=b"%d" % number + bytes(50_000))])
        acknowledged, _ = fill(log)
        take_the_rest(small_disk / "leftover")
        match how:
            case "trim":
                log.trim("old", 0, log.describe("old").partitions[0].end - 5)
            case "delete":
                log.delete("old")
            case "retention":
                log._engine.topics.expire(now_ms())  # type: ignore[attr-defined]

        def goes_on() -> bool:
            with contextlib.suppress(DiskFull):
                return bool(log.append("orders", [Record(value=b"there is room again")]))
            return False

        wait_until(goes_on, what="room")  # what was deleted may still be on its way out
        assert values(log) == [*acknowledged, b"there is room again"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_starts_on_a_full_disk(small_disk: Path, end: str) -> None:
    leftover = small_disk / "leftover"
    with LogServerProcess(small_disk / "data") as server:
        with Log.connect(server.address) as log:
            log.create("orders", segment_bytes=1_000_000)
            for number in range(30):
                log.append("orders", [Record(value=b"%d" % number + bytes(50_000))])
            before = values(log)
        take_the_rest(leftover)
        getattr(server, end)()
        server.restart()
        with PlainClient(server.address) as client:
            refused = client.produce("orders", batch(bytes(100_000)))
            assert refused.error_code == 56
            assert "the disk is full: appending to orders/0" in refused.error_message
            made = client.ask("create_topics", 7, **creation("another")).topics[0]
            assert made.error_code == 56
        with Log.connect(server.address) as log:
            assert values(log) == before
            leftover.unlink()
            log.append("orders", [Record(value=b"there is room again")])
            assert values(log) == [*before, b"there is room again"]


def test_a_retry_is_stored_once_when_there_is_room(small_disk: Path) -> None:
    with (
        LogServerProcess(small_disk / "data") as server,
        PlainClient(server.address) as client,
    ):
        topic = client.create_topic("orders")
        assert client.produce("orders", batch(b"first", producer=(7, 0, 0))).base_offset == 0
        leftover = small_disk / "leftover"
        take_the_rest(leftover)
        second = batch(bytes(200_000), producer=(7, 0, 1))
        for _ in range(3):
            assert client.produce("orders", second).error_code == 56
        leftover.unlink()
        for _ in range(2):
            stored = client.produce("orders", second)
            assert (stored.error_code, stored.base_offset) == (0, 1)
        assert client.fetch(topic, 2).records in (None, b"")


@pytest.mark.slow
def test_a_group_goes_on_when_there_is_room(small_disk: Path) -> None:
    with LogServerProcess(small_disk / "data") as server:
        with Log.connect(server.address) as log:
            log.create("orders")
            log.append("orders", [Record(value=b"%d" % number) for number in range(10)])
            leftover = small_disk / "leftover"
            take_the_rest(leftover)
            wait_until(lambda: not commits(log), what="the groups' file to be full")
        consumer = Consumer(
            {
                "bootstrap.servers": server.address,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        consumer.subscribe(["orders"])
        assert not consumer.consume(10, timeout=2)  # its share could not be written down
        leftover.unlink()
        got = consumer.consume(10, timeout=30)
        consumer.close()
        assert [message.value() for message in got] == [b"%d" % number for number in range(10)]
