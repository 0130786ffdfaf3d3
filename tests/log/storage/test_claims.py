from concurrent.futures import Executor
from pathlib import Path

import pytest

from penstock.errors import CorruptBatch
from penstock.events.batch import APPEND_TIME, TRANSACTIONAL, check_produced
from penstock.log.policy import TopicPolicy
from penstock.log.storage.claims import CONTINUES, FIRST_WRITER, NOBODY, Claim
from penstock.log.storage.partition import Partition

from .conftest import HeldExecutor, batch, read

WRITER = FIRST_WRITER + 1


def several(*counts: int, **options: object) -> memoryview:
    return memoryview(bytearray(b"".join(batch(*range(count), **options) for count in counts)))


def signed(data: memoryview, claim: Claim) -> list[tuple[int, int, int, int]]:
    """Attributes, producer, epoch and sequence of each batch, as it stands in the data after."""
    headers, at = [], 0
    while at < len(data):
        headers.append(check_produced(data, at))
        at += headers[-1].size
    put = claim.put_on(data, headers)
    found, at = [], 0
    while at < len(data):
        found.append(check_produced(data, at))
        at += found[-1].size
    assert put == found
    return [(h.attributes, h.producer_id, h.producer_epoch, h.base_sequence) for h in found]


def test_a_writers_batches_are_signed() -> None:
    assert signed(several(1, 2, 3, codec=3), Claim(WRITER, 9)) == [
        (CONTINUES | 3, WRITER, 0, 9),
        (CONTINUES | 3, WRITER, 0, 9),
        (3, WRITER, 0, 9),
    ]


def test_attributes_that_are_not_theirs_are_taken_off() -> None:
    foreign = several(1, 1, attributes=TRANSACTIONAL | CONTINUES | APPEND_TIME, producer=(5, 1, 1))
    assert signed(foreign, Claim(WRITER, 0)) == [
        (APPEND_TIME | CONTINUES, WRITER, 0, 0),
        (APPEND_TIME, WRITER, 0, 0),
    ]


def test_nobodys_batches_are_signed_only_to_hold_together() -> None:
    assert signed(several(1), Claim()) == [(0, -1, -1, -1)]
    assert [producer for _, producer, _, _ in signed(several(1, 1), Claim())] == [NOBODY, NOBODY]


@pytest.mark.parametrize("producer", [NOBODY, WRITER, 2**63 - 1])
def test_a_producer_cannot_pass_for_a_writer(
    tmp_path: Path, held: HeldExecutor, producer: int
) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    with pytest.raises(CorruptBatch, match="a writer's"):
        partition.append(batch(1, producer=(producer, 0, 0)))
    # The bit alone means nothing: recovery would take for unfinished what was acknowledged.
    partition.append(batch(1, attributes=CONTINUES))
    again = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    assert read(again, 0) == [(0, b"1")]
    assert again.recovery.cut_bytes == 0


def test_an_append_lies_in_one_segment(tmp_path: Path, held: HeldExecutor) -> None:
    partition = Partition(tmp_path, "t", 0, TopicPolicy(segment_bytes=1024), held)
    for number in range(3):
        partition.append(several(*[5] * 20), Claim(WRITER, number))
    assert [segment.next_offset for segment in partition.segments] == [100, 200, 300]


def test_stamped_topics_stamp_writers_batches_too(tmp_path: Path, syncs: Executor) -> None:
    policy = TopicPolicy(message_timestamp_type="LogAppendTime", durability="os")
    partition = Partition(tmp_path, "t", 0, policy, syncs)
    appended = partition.append(several(2, 2), Claim(WRITER, 0))
    assert appended.append_time > 0
    assert [at for at, _ in read(partition, 0)] == [0, 1, 2, 3]
    again = Partition(tmp_path, "t", 0, policy, syncs)
    last = again.last_append_of(WRITER)
    assert last is not None
    assert (last.last_sequence, last.base_offset, last.last_offset) == (0, 0, 3)


def test_a_writer_is_remembered_for_good(
    tmp_path: Path, held: HeldExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike a producer, which may be gone after a day; also when its records are gone."""
    partition = Partition(tmp_path, "t", 0, TopicPolicy(segment_bytes=1024), held)
    partition.append(several(3), Claim(WRITER, 41))
    held.run()
    monkeypatch.setattr("penstock.log.storage.partition.now_ms", lambda: 2**42)
    partition.append(batch(b"x" * 2000))
    partition.when_durable(4, lambda error: None)
    held.run()
    partition.forget_before(4)
    partition.close()
    again = Partition(tmp_path, "t", 0, TopicPolicy(), held)
    assert again.start_offset == 4
    last = again.last_append_of(WRITER)
    assert last is not None
    assert last.last_sequence == 41
    assert not again.append(several(1), Claim(WRITER, 41)).is_new


def test_a_snapshot_does_not_speak_for_records_that_a_power_cut_took(
    tmp_path: Path, held: HeldExecutor
) -> None:
    policy = TopicPolicy(durability="os")
    partition = Partition(tmp_path, "t", 0, policy, held)
    partition.append(several(2, 2), Claim(WRITER, 1))
    size = partition.segments[0].size
    partition.append(several(2), Claim(WRITER, 2))
    partition.close()
    (tmp_path / "durable").unlink()
    with (tmp_path / f"{0:020d}.log").open("r+b") as log:
        log.truncate(size)
    again = Partition(tmp_path, "t", 0, policy, held)
    assert again.append(several(2), Claim(WRITER, 2)) == (4, 6, -1, True)
