from concurrent.futures import Executor
from pathlib import Path

from penstock.log.policy import FOREVER, TopicPolicy
from penstock.log.storage.partition import Partition
from penstock.log.storage.retention import expire

from .conftest import append, read


def filled(folder: Path, syncs: Executor, **policy: int) -> Partition:
    """A hundred records with the timestamps 0 to 99, in small segments."""
    partition = Partition(folder, "t", 0, TopicPolicy.of({"segment.bytes": 1024, **policy}), syncs)
    for time in range(100):
        append(partition, time)
    return partition


def test_segments_whose_records_are_all_too_old_go(tmp_path: Path, syncs: Executor) -> None:
    partition = filled(tmp_path, syncs, retention_ms=50)
    assert expire(partition, now=90) > 0
    assert 40 - 15 < partition.start_offset <= 40
    assert read(partition, partition.start_offset)[-1] == (99, b"99")
    assert expire(partition, now=90) == 0


def test_the_active_segment_stays_however_old(tmp_path: Path, syncs: Executor) -> None:
    partition = filled(tmp_path, syncs, retention_ms=50)
    expire(partition, now=10**9)
    assert len(partition.segments) == 1
    assert read(partition, partition.start_offset)[-1] == (99, b"99")


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
    partition = filled(tmp_path, syncs, retention_ms=50)
    expire(partition, now=90)
    start = partition.start_offset
    again = Partition(tmp_path, "t", 0, partition.policy, syncs)
    assert (again.start_offset, again.end_offset) == (start, 100)
