import os
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import (
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordTooLarge,
    StaleProducerEpoch,
    StorageFailed,
)
from penstock.events.batch import decode
from penstock.log.policy import TopicPolicy
from penstock.log.storage.partition import Partition
from penstock.log.storage.published import read_durable_offset
from penstock.log.storage.segment import Segment
from penstock.log.storage.times import Timed, first_at, latest
from penstock.log.storage.warm import WARM_INDEXES

from .conftest import HeldExecutor, append, batch, read

SMALL = TopicPolicy(segment_bytes=1024)


def test_what_is_appended_is_read_back_from_every_offset(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    for first in range(0, 300, 3):
        assert append(partition, *(b"%d" % n for n in range(first, first + 3))) == first
    assert len(partition.segments) > 5
    everything = [(n, b"%d" % n) for n in range(300)]
    for offset in range(301):
        assert read(partition, offset) == everything[offset:]
        assert read(partition, offset, max_bytes=1) == everything[offset:]


def test_nothing_is_read_or_acknowledged_before_the_sync(
    tmp_path: Path, held: HeldExecutor
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    done: list[Exception | None] = []
    partition.when_durable(partition.append(batch(b"a")).next_offset, done.append)
    assert (partition.end_offset, partition.slice(0, 100), done) == (0, None, [])
    assert read_durable_offset(tmp_path) == 0
    held.run()
    assert (partition.end_offset, read(partition, 0), done) == (1, [(0, b"a")], [None])
    assert read_durable_offset(tmp_path) == 1


def test_one_sync_covers_every_append_before_it(
    tmp_path: Path, held: HeldExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    done: list[Exception | None] = []
    for _ in range(50):
        partition.when_durable(partition.append(batch(b"a")).next_offset, done.append)
    held.run()
    assert (len(synced), done) == (1, [None] * 50)


def test_a_sync_also_covers_segments_closed_since_the_last_one(
    tmp_path: Path, held: HeldExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, held)
    for _ in range(30):
        partition.append(batch(b"x" * 100))
    rolled = {segment.file.fd for segment in partition.segments}
    assert len(rolled) > 3
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    partition.when_durable(30, lambda error: None)
    held.run()
    assert rolled <= set(synced)


def test_a_failed_sync_refuses_writes_for_good_and_keeps_reads(
    tmp_path: Path, held: HeldExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    partition.when_durable(partition.append(batch(b"kept")).next_offset, lambda error: None)
    held.run()

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    done: list[Exception | None] = []
    partition.when_durable(partition.append(batch(b"lost?")).next_offset, done.append)
    held.run()
    assert isinstance(done[0], StorageFailed)
    monkeypatch.undo()
    with pytest.raises(StorageFailed, match="Input/output error"):
        partition.append(batch(b"refused"))
    partition.when_durable(2, done.append)
    assert isinstance(done[1], StorageFailed)
    assert read(partition, 0) == [(0, b"kept")]


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_without_fsync_records_are_visible_at_once(
    tmp_path: Path, held: HeldExecutor, durability: str
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(durability=durability), held)
    partition.append(batch(b"a", b"b"))
    assert read(partition, 0) == [(0, b"a"), (1, b"b")]
    assert not held.held


def test_offsets_of_a_partition_in_memory_are_never_given_again(
    tmp_path: Path, syncs: Executor
) -> None:
    policy = TopicPolicy(durability="memory")
    before = Partition(tmp_path, "t", 0, policy, syncs)
    append(before, b"a", b"b")
    after = Partition(tmp_path, "t", 0, policy, syncs)
    assert after.start_offset == after.end_offset > before.end_offset
    with pytest.raises(OffsetOutOfRange):
        after.slice(1, 100)
    assert append(after, b"c") == after.start_offset
    assert not list(tmp_path.glob("*.log"))


def test_append_time_replaces_the_producers(tmp_path: Path, syncs: Executor) -> None:
    policy = TopicPolicy(message_timestamp_type="LogAppendTime")
    partition = Partition(tmp_path, "t", 0, policy, syncs)
    appended = partition.append(batch(5, 6))
    partition.when_durable(2, lambda error: None)
    partition.close()
    found = partition.slice(0, 1000)
    assert found is not None
    records = list(decode(memoryview(found.read())))
    assert {record.timestamp for record in records} == {appended.append_time}
    assert appended.append_time > 1_700_000_000_000
    assert first_at(partition, appended.append_time) == Timed(0, appended.append_time)


def test_a_batch_above_the_limit_is_refused_whole(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(max_message_bytes=200), syncs)
    two = memoryview(bytes(batch(b"small")) + bytes(batch(b"x" * 300)))
    with pytest.raises(RecordTooLarge, match="takes 200"):
        partition.append(two)
    assert partition.next_offset == 0
    assert append(partition, b"small") == 0


def test_a_retried_batch_keeps_its_place(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), syncs)
    first = append(partition, b"a", b"b", producer=(7, 0, 0))
    second = append(partition, b"c", producer=(7, 0, 2))
    assert append(partition, b"a", b"b", producer=(7, 0, 0)) == first
    assert append(partition, b"c", producer=(7, 0, 2)) == second
    assert partition.end_offset == 3
    with pytest.raises(OutOfOrderSequence):
        partition.append(batch(b"e", producer=(7, 0, 5)))
    append(partition, b"new epoch", producer=(7, 1, 0))
    with pytest.raises(StaleProducerEpoch):
        partition.append(batch(b"old epoch", producer=(7, 0, 3)))


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(tmp_path: Path, syncs: Executor, clean: bool) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    for sequence in range(40):
        append(partition, b"x" * 50, producer=(7, 3, sequence))
    assert len(partition.segments) > 3
    if clean:
        partition.close()
    else:
        syncs.submit(lambda: None).result()
    again = Partition(tmp_path, "t", 0, SMALL, syncs)
    assert append(again, b"x" * 50, producer=(7, 3, 39)) == 39
    assert append(again, b"y", producer=(7, 3, 40)) == 40
    with pytest.raises(OutOfOrderSequence):
        again.append(batch(b"z", producer=(7, 3, 42)))


def test_a_sequence_begins_again_after_the_highest_number(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), syncs)
    append(partition, b"a", producer=(7, 0, 2**31 - 2))
    append(partition, b"b", b"c", producer=(7, 0, 2**31 - 1))
    assert append(partition, b"b", b"c", producer=(7, 0, 2**31 - 1)) == 1
    assert append(partition, b"d", producer=(7, 0, 1)) == 3


def test_records_are_found_by_time(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    times = [10, 30, 20, 50, 40, 60, 55, 90, 70, 80] * 10
    for at in range(0, 100, 5):
        append(partition, *(1000 * (at // 10) + time for time in times[at : at + 5]))
    everything = [(n, int(value)) for n, value in read(partition, 0)]
    for sought in range(0, 9200, 7):
        expected = next((Timed(n, time) for n, time in everything if time >= sought), None)
        assert first_at(partition, sought) == expected, sought
    assert latest(partition) == max(
        (Timed(n, time) for n, time in everything), key=lambda timed: timed.timestamp
    )
    assert latest(Partition(None, "empty", 0, SMALL, syncs)) is None


def test_by_time_nothing_before_the_start_is_found(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), syncs)
    append(partition, 10, 20, 30, 40)
    partition.forget_before(2)
    assert first_at(partition, 5) == Timed(2, 30)


def test_the_start_moves_up_and_stays_after_a_restart(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    for n in range(100):
        append(partition, b"%d" % n)
    held_slice = partition.slice(0, 10_000)
    assert held_slice is not None
    content = held_slice.read()
    assert partition.forget_before(57) > 3
    assert partition.forget_before(20) == 0
    assert held_slice.read() == content  # somebody was still sending it
    assert read(partition, 57)[0] == (57, b"57")
    with pytest.raises(OffsetOutOfRange) as refusal:
        partition.slice(56, 100)
    assert (refusal.value.start, refusal.value.end) == (57, 100)
    again = Partition(tmp_path, "t", 0, SMALL, syncs)
    assert (again.start_offset, again.end_offset) == (57, 100)


def test_offsets_beyond_either_end_are_refused(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    append(partition, b"a")
    assert partition.slice(1, 100) is None
    for offset in (-1, 2, 2**62):
        with pytest.raises(OffsetOutOfRange):
            partition.slice(offset, 100)


def test_an_old_segment_is_closed_even_if_it_is_small(
    tmp_path: Path, syncs: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(segment_ms=1000), syncs)
    append(partition, b"a")
    partition.segments[-1].began_ms -= 999
    append(partition, b"b")
    partition.segments[-1].began_ms -= 1000
    append(partition, b"c")
    assert [segment.base_offset for segment in partition.segments] in ([0, 2], [0, 1, 2])


def test_a_watcher_is_woken_once_by_durable_records(tmp_path: Path, held: HeldExecutor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    woken: list[int] = []
    partition.watch(lambda: woken.append(partition.end_offset))
    appended = partition.append(batch(b"a"))
    assert not woken
    partition.when_durable(appended.next_offset, lambda error: None)
    held.run()
    assert woken == [1]
    partition.when_durable(partition.append(batch(b"b")).next_offset, lambda error: None)
    held.run()
    assert woken == [1]


def test_reading_through_all_segments_keeps_few_indexes(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    for n in range(400):
        append(partition, b"%d" % n)
    partition.close()
    again = Partition(tmp_path, "t", 0, replace(SMALL), syncs)
    assert len(again.segments) > 2 * WARM_INDEXES
    assert len(read(again, 0)) == 400
    loaded = [segment for segment in again.segments if segment._index is not None]
    assert len(loaded) <= WARM_INDEXES + 1
    assert len(read(again, 0)) == 400


def test_a_deleted_partition_tells_whoever_waits(tmp_path: Path, held: HeldExecutor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    done: list[Exception | None] = []
    woken: list[bool] = []
    partition.watch(lambda: woken.append(True))
    partition.when_durable(partition.append(batch(b"a")).next_offset, done.append)
    partition.abandon()
    assert isinstance(done[0], StorageFailed)
    assert woken == [True]
    held.run()  # the sync under way has nobody left to tell
    with pytest.raises(StorageFailed, match="deleted"):
        partition.append(batch(b"b"))


def test_closing_what_nobody_wrote_to_writes_nothing(
    tmp_path: Path, syncs: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), syncs)
    append(partition, b"a")
    partition.close()
    again = Partition(tmp_path, "t", 0, TopicPolicy(), syncs)
    written: list[object] = []
    monkeypatch.setattr(os, "fsync", written.append)
    monkeypatch.setattr(os, "fdatasync", written.append)
    again.close()
    assert not written
    monkeypatch.undo()
    append(again, b"b")
    again.close()
    last = Partition(tmp_path, "t", 0, TopicPolicy(), syncs)
    assert last.recovery.scanned_bytes == 0
    assert read(last, 0) == [(0, b"a"), (1, b"b")]


def test_what_is_forgotten_while_it_is_looked_up_is_out_of_range(
    tmp_path: Path, syncs: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    for n in range(100):
        append(partition, b"%d" % n)
    look_up = partition._segment_of

    def late(offset: int) -> Segment:
        partition.forget_before(90)
        return look_up(offset)

    monkeypatch.setattr(partition, "_segment_of", late)
    with pytest.raises(OffsetOutOfRange):
        partition.slice(3, 1000)


def test_an_abandoned_partition_touches_no_file(tmp_path: Path, syncs: Executor) -> None:
    partition = Partition(tmp_path, "t", 0, SMALL, syncs)
    for n in range(100):
        append(partition, b"%d" % n)
    partition.abandon()
    before = sorted(tmp_path.iterdir())
    assert partition.forget_before(90) == 0
    assert sorted(tmp_path.iterdir()) == before


def test_the_durable_end_never_moves_back(tmp_path: Path, held: HeldExecutor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    partition.when_durable(partition.append(batch(b"a")).next_offset, lambda error: None)
    partition.policy = TopicPolicy(durability="os")
    partition.append(batch(b"b"))
    partition._advance(1, partition.segments[-1], 0)
    assert partition.end_offset == 2


def test_one_who_cannot_be_told_keeps_nobody_else_waiting(
    tmp_path: Path, held: HeldExecutor
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    told: list[Exception | None] = []

    def fail(error: Exception | None) -> None:
        raise ValueError("gone")

    partition.when_durable(partition.append(batch(b"a")).next_offset, fail)
    partition.when_durable(partition.append(batch(b"b")).next_offset, told.append)
    held.run()
    assert told == [None]
    partition.when_durable(partition.append(batch(b"c")).next_offset, told.append)
    held.run()
    assert told == [None, None]
