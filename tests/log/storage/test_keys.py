import shutil
from pathlib import Path

import pytest

from penstock.errors import CorruptBatch, VersionConflict
from penstock.events.batch import BatchHeader, encode
from penstock.events.record import Record
from penstock.log.policy import TopicPolicy
from penstock.log.storage import keys
from penstock.log.storage.claims import Claim
from penstock.log.storage.partition import Partition

from .conftest import HeldExecutor

POLICY = TopicPolicy(segment_bytes=2048, durability="os")


def opened(folder: Path, held: HeldExecutor) -> Partition:
    return Partition(folder, "t", 0, POLICY, held)


def put(partition: Partition, *names: bytes | None, codec: int = 0) -> None:
    partition.append(
        memoryview(encode([Record(key=n, value=b"." * 20) for n in names], codec=codec))
    )


def last(partition: Partition, key: bytes) -> int:
    """The key's last offset, by way of a conflict."""
    record = memoryview(bytearray(encode([Record(value=b"")])))
    with pytest.raises(VersionConflict) as conflict:
        partition.append(record, Claim(expected={key: -2}))
    return conflict.value.actual


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the batches that were read for their keys."""
    seen: list[int] = []
    real = keys._keys

    def spying(data: bytes, header: BatchHeader) -> object:
        seen.append(header.base_offset)
        return real(data, header)

    monkeypatch.setattr(keys, "_keys", spying)
    return seen


@pytest.mark.parametrize("codec", range(5))
def test_of_any_batch(tmp_path: Path, held: HeldExecutor, codec: int) -> None:
    partition = opened(tmp_path, held)
    put(partition, b"a", None, b"b", b"a", b"", codec=codec)
    put(partition, None, b"\x00" * 300, codec=codec)
    found = [last(partition, key) for key in (b"a", b"b", b"", b"\x00" * 300, b"c", b"\x00")]
    assert found == [3, 2, 4, 6, -1, -1]


def test_nothing_is_done_before_somebody_asks(
    tmp_path: Path, held: HeldExecutor, scanned: list[int]
) -> None:
    partition = opened(tmp_path, held)
    for _ in range(100):
        put(partition, b"a")
    held.run()
    partition.close()
    assert scanned == []
    assert not (tmp_path / keys.KEYS_FILE).exists()


def test_each_batch_is_read_once_and_not_again_after_a_restart(
    tmp_path: Path, held: HeldExecutor, scanned: list[int]
) -> None:
    partition = opened(tmp_path, held)
    for number in range(50):
        put(partition, b"%d" % (number % 7))
        assert last(partition, b"%d" % (number % 7)) == number
    assert scanned == [*range(50)]
    partition.close()
    again = opened(tmp_path, held)
    put(again, b"new")
    assert [last(again, b"new"), last(again, b"0"), last(again, b"6")] == [50, 49, 48]
    assert scanned == [*range(51)]


def test_a_killed_process_leaves_a_snapshot_of_the_segments_before(
    tmp_path: Path, held: HeldExecutor, scanned: list[int]
) -> None:
    partition = opened(tmp_path / "0", held)
    for number in range(100):
        put(partition, b"%d" % (number % 7))
        last(partition, b"0")
        held.run()
    assert len(partition.segments) > 3
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    scanned.clear()
    again = opened(tmp_path / "1", held)
    assert [last(again, b"%d" % n) for n in range(7)] == [98, 99, 93, 94, 95, 96, 97]
    assert 0 < len(scanned) < 50


def test_a_snapshot_of_what_a_crash_took_is_not_believed(
    tmp_path: Path, held: HeldExecutor
) -> None:
    partition = opened(tmp_path / "0", held)
    put(partition, b"a")
    first = partition.segments[-1].size
    put(partition, b"a")
    assert last(partition, b"a") == 1
    partition.close()
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    # Acknowledged by the system, and lost with the power, as "os" allows.
    (tmp_path / "1" / "durable").unlink()
    (tmp_path / "1" / f"{0:020d}.index").unlink()
    with (tmp_path / "1" / f"{0:020d}.log").open("r+b") as log:
        log.truncate(first)
    again = opened(tmp_path / "1", held)
    put(again, b"b")
    put(again, b"b")
    assert [last(again, b"a"), last(again, b"b")] == [0, 2]


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"x" * 60])
def test_a_damaged_snapshot_is_made_again(
    tmp_path: Path, held: HeldExecutor, damage: bytes
) -> None:
    partition = opened(tmp_path, held)
    put(partition, b"a", b"b", b"a")
    assert last(partition, b"a") == 2
    partition.close()
    snapshot = tmp_path / keys.KEYS_FILE
    content = bytearray(snapshot.read_bytes())
    content[-1] ^= 1
    snapshot.write_bytes(damage or content)
    again = opened(tmp_path, held)
    assert [last(again, b"a"), last(again, b"b")] == [2, 1]


def test_forgotten_records_leave_the_snapshot(tmp_path: Path, held: HeldExecutor) -> None:
    partition = opened(tmp_path, held)
    for number in range(100):
        put(partition, b"%03d" % number)
    assert last(partition, b"000") == 0
    partition.forget_before(90)
    assert [last(partition, b"089"), last(partition, b"090")] == [-1, 90]
    partition.close()
    content = (tmp_path / keys.KEYS_FILE).read_bytes()
    assert b"089" not in content
    assert b"090" in content


def test_a_damaged_log_cannot_tell(tmp_path: Path, held: HeldExecutor) -> None:
    partition = opened(tmp_path, held)
    put(partition, b"a")
    put(partition, b"a")
    partition.close()
    file = tmp_path / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    content[70] ^= 1
    file.write_bytes(content)
    again = opened(tmp_path, held)
    with pytest.raises(CorruptBatch):
        again.append(memoryview(bytearray(encode([Record(value=b"")]))), Claim(expected={b"a": 1}))
