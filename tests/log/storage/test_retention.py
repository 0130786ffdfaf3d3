from concurrent.futures import Executor
from pathlib import Path

import pytest

from penstock.log.policy import FOREVER, TopicPolicy
from penstock.log.storage import partition as partition_module
from penstock.log.storage.partition import Partition
from penstock.log.storage.retention import expire

from .conftest import append, read

SECOND = 1_000


@pytest.fixture(autouse=True)
def _past(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended was appended long ago, too."""
    monkeypatch.setattr(partition_module, "now_ms", lambda: 0)


def filled(folder: Path, syncs: Executor, **policy: int) -> Partition:
    """A hundred records, one for each second from 0 to 99, in small segments."""
    partition = Partition(folder, "t", 0, TopicPolicy.of({"segment.bytes": 1024, **policy}), syncs)
    for second in range(100):
        append(partition, second * SECOND)
    return partition


def test_segments_whose_records_are_all_too_old_go(tmp_path: Path, syncs: Executor) -> None:
    partition = filled(tmp_path, syncs, retention_ms=50 * SECOND)
    assert expire(partition, now=90 * SECOND) > 0
    assert 40 - 15 < partition.start_offset <= 40
    assert read(partition, partition.start_offset)[-1] == (99, b"99000")
    assert expire(partition, now=90 * SECOND) == 0


def test_records_of_long_ago_stay_as_long_as_others(
    tmp_path: Path, syncs: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = 1_000 * SECOND
    monkeypatch.setattr(partition_module, "now_ms", lambda: loaded)
    partition = filled(tmp_path, syncs, retention_ms=50 * SECOND)
    assert expire(partition, now=loaded + 50 * SECOND) == 0
    assert expire(partition, now=loaded + 52 * SECOND) > 0
    assert (partition.start_offset, partition.end_offset) == (100, 100)


def test_the_active_segment_goes_too_when_all_of_it_is_old(tmp_path: Path, syncs: Executor) -> None:
    partition = filled(tmp_path, syncs, retention_ms=50 * SECOND)
    expire(partition, now=149 * SECOND)
    assert read(partition, partition.start_offset)[-1] == (99, b"99000")
    expire(partition, now=149 * SECOND + 1)
    assert (partition.start_offset, partition.end_offset) == (100, 100)
    assert append(partition, 200 * SECOND) == 100
    assert partition.size < 1024


def test_what_goes_frees_its_room_also_if_it_was_there_at_the_opening(
    tmp_path: Path, syncs: Executor
) -> None:
    filled(tmp_path, syncs, retention_ms=50 * SECOND).close()
    again = Partition(tmp_path, "t", 0, TopicPolicy(retention_ms=50 * SECOND), syncs)
    expire(again, now=10**9)
    held = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [name for name in held if name.startswith(str(tmp_path)) and "(deleted)" in name]


def test_segments_beyond_the_bytes_go_from_the_start(tmp_path: Path, syncs: Executor) -> None:
    partition = filled(tmp_path, syncs, retention_ms=FOREVER, retention_bytes=3000)
    before = partition.size
    expire(partition, now=10**9)
    assert 3000 <= partition.size < 3000 + 1024 < before
    assert sum(path.stat().st_size for path in tmp_path.glob("*.log")) == partition.size


def test_without_limits_nothing_goes(tmp_path: Path, syncs: Executor) -> None:
    partition = filled(tmp_path, syncs, retention_ms=FOREVER)
    assert expire(partition, now=10**15) == 0
    assert partition.start_offset == 0


def test_what_went_stays_away_after_a_restart(tmp_path: Path, syncs: Executor) -> None:
    partition = filled(tmp_path, syncs, retention_ms=50 * SECOND)
    expire(partition, now=90 * SECOND)
    start = partition.start_offset
    again = Partition(tmp_path, "t", 0, partition.policy, syncs)
    assert (again.start_offset, again.end_offset) == (start, 100)
