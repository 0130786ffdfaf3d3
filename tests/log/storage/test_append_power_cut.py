"""The power goes while a writer appends: of each append all is there, or nothing."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.events.batch import encode
from penstock.events.record import Record
from penstock.log.policy import TopicPolicy
from penstock.log.storage.claims import FIRST_WRITER, Claim
from penstock.log.storage.partition import Partition
from tests.faults.disk_model import Disk

from .conftest import HeldExecutor, read

WRITER = FIRST_WRITER + 1
BATCHES, RECORDS = 4, 3
POLICY = TopicPolicy(segment_bytes=6_000)


def one_append(number: int) -> memoryview:
    values = [[b"%d %d" % (number, n) + b"." * 200] * RECORDS for n in range(BATCHES)]
    records = [[Record(value=value, key=b"k", timestamp=1) for value in some] for some in values]
    return memoryview(bytearray(b"".join(map(encode, records))))


@pytest.mark.parametrize("seed", range(25))
def test_all_or_nothing(tmp_path: Path, seed: int) -> None:
    luck = random.Random(seed)
    root = tmp_path / "disk"
    root.mkdir()
    survivors: list[tuple[Path, int]] = []
    acknowledged = -1
    with pytest.MonkeyPatch.context() as monkeypatch:
        disk = Disk(root, monkeypatch)

        def maybe_cut() -> None:
            if luck.random() < 0.05 and len(survivors) < 20:
                target = tmp_path / str(len(survivors))
                disk.after_change = lambda: None  # what the test itself writes is no change
                disk.cut_power(target, luck)
                disk.after_change = maybe_cut
                survivors.append((target, acknowledged))

        disk.after_change = maybe_cut
        held = HeldExecutor()
        partition = Partition(root, "t", 0, POLICY, held)
        for number in range(30):
            appended = partition.append(one_append(number), Claim(WRITER, number))
            partition.when_durable(appended.next_offset, lambda error: None)
            if luck.random() < 0.4:
                held.run()
                acknowledged = number
    assert survivors
    with ThreadPoolExecutor(1) as syncs:
        for folder, promised in survivors:
            again = Partition(folder, "t", 0, POLICY, syncs)
            whole, rest = divmod(again.end_offset, BATCHES * RECORDS)
            assert rest == 0
            assert whole > promised
            assert not again.recovery.damage
            last = again.last_append_of(WRITER)
            assert (-1 if last is None else last.last_sequence) == whole - 1
            found = [value.partition(b".")[0] for _, value in read(again, 0)]
            assert found == [
                b"%d %d" % (number, n)
                for number in range(whole)
                for n in range(BATCHES)
                for _ in range(RECORDS)
            ]
            assert again.append(one_append(whole), Claim(WRITER, whole)).is_new
