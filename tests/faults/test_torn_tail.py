"""A write that was cut short: the torn end goes, all that is whole stays, appending goes on."""

import logging
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import Log
from penstock.events.batch import encode
from penstock.events.record import Record
from penstock.log.policy import TopicPolicy
from penstock.log.storage.partition import Partition
from tests.log.storage.conftest import HeldExecutor, append, batch, read

ACKNOWLEDGED = [b"one", b"two", b"three", b"four"]
LAST = [b"five", b"", b"seven" * 9]
BEFORE = list(enumerate(ACKNOWLEDGED))


def interrupted(folder: Path) -> int:
    """Leaves a partition as a killed process would, its last batch whole but not acknowledged.

    Returns where that batch begins in the file.
    """
    held = HeldExecutor()
    partition = Partition(folder, "t", 0, TopicPolicy(), held)
    for first in (0, 2):
        partition.append(batch(*ACKNOWLEDGED[first : first + 2]))
    partition.when_durable(len(ACKNOWLEDGED), lambda error: None)
    held.run()
    before = partition.size
    partition.append(batch(*LAST))
    return before


def segment_of(folder: Path) -> Path:
    (segment,) = folder.glob("*.log")
    return segment


def goes_on(folder: Path, cut: int, whole: list[tuple[int, bytes]] = BEFORE) -> None:
    """Opens what is left, looks at it, appends to it, and opens that again."""
    with ThreadPoolExecutor(1) as syncs:
        partition = Partition(folder, "t", 0, TopicPolicy(), syncs)
        assert partition.recovery.cut_bytes == cut
        assert not partition.recovery.damage
        assert read(partition, 0) == whole
        assert append(partition, b"next") == len(whole)
        again = Partition(folder, "t", 0, TopicPolicy(), syncs)
        assert again.recovery.cut_bytes == 0
        assert read(again, 0) == [*whole, (len(whole), b"next")]


@pytest.mark.usefixtures("quick_syncs")
def test_a_tail_torn_at_any_byte_is_cut_to_the_last_whole_batch(tmp_path: Path) -> None:
    original = tmp_path / "original"
    begins = interrupted(original)
    content = segment_of(original).read_bytes()
    assert len(content) - begins > 100
    for size in range(begins, len(content)):
        torn = tmp_path / str(size)
        shutil.copytree(original, torn)
        segment_of(torn).write_bytes(content[:size])
        goes_on(torn, cut=size - begins)


def test_a_whole_batch_stays_even_if_nobody_was_told(tmp_path: Path) -> None:
    interrupted(tmp_path)
    goes_on(tmp_path, cut=0, whole=list(enumerate(ACKNOWLEDGED + LAST)))


# What stands behind the end, from the sound batch that would have stood there.
GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "one zero": lambda last: b"\0",
    "a header of zeros": lambda last: bytes(61),
    "a block of zeros": lambda last: bytes(4096),
    "more zeros than are read at once": lambda last: bytes(5 << 20),
    "ones": lambda last: b"\xff" * 333,
    "noise": lambda last: random.Random(7).randbytes(10_000),
    "text": lambda last: b"the quick brown fox " * 50,
    "a batch with a lower offset": lambda last: bytes(8) + last[8:],
    "a batch with a higher offset": lambda last: (7).to_bytes(8, "big") + last[8:],
    "a sound batch of an earlier life": lambda last: encode([Record(value=b"old")], base_offset=4),
    "a batch that claims to be huge": lambda last: (
        last[:8] + (2**31 - 1).to_bytes(4, "big") + last[12:]
    ),
    "a batch that claims a negative size": lambda last: last[:8] + b"\xff" * 4 + last[12:],
    "holes where blocks were not written": lambda last: last[:30] + bytes(len(last)) + last[30:],
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_stands_after_the_end_is_cut_off(tmp_path: Path, garbage: str) -> None:
    begins = interrupted(tmp_path)
    segment = segment_of(tmp_path)
    content = segment.read_bytes()
    behind = GARBAGE[garbage](content[begins:])
    segment.write_bytes(content[:begins] + behind)
    goes_on(tmp_path, cut=len(behind))


def test_the_log_says_how_much_it_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log.open(tmp_path) as log:
        log.create("orders")
        log.append("orders", [Record(value=value) for value in ACKNOWLEDGED])
    with segment_of(tmp_path / "topics/orders/0").open("ab") as segment:
        segment.write(b"torn" * 30)
    with caplog.at_level(logging.WARNING), Log.open(tmp_path) as log:
        assert [record.value for record in log.read("orders", 0, 0)] == ACKNOWLEDGED
    assert "orders/0: cut 120 torn bytes off the end; it goes on at offset 4" in caplog.text
