"""A full disk: writes are refused with a clear error, reads go on, and so does writing later."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.errors import DiskFull, LogError, StorageFailed
from penstock.log.remote import RemoteLog
from penstock.testing import LogServerProcess
from tests.conftest import without_peer

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
