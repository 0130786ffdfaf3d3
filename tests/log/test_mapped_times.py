from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from penstock import Log, Record
from penstock.events.batch import read_header
from penstock.log import mapped_times
from penstock.log.mapped import MappedTopic

DAY = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path) as log:
        log.create("t", segment_bytes=2_000)
        yield log


def append(log: Log, stamps: list[int]) -> None:
    for first in range(0, len(stamps), 5):
        some = stamps[first : first + 5]
        log.append("t", [Record(value=b"x" * 20, timestamp=stamp) for stamp in some])


@pytest.mark.parametrize("closed", [False, True])
def test_any_time_as_the_log_itself_says(log: Log, tmp_path: Path, closed: bool) -> None:
    random = Random(5)
    stamps = [DAY + 10 * number + random.randrange(-200, 200) for number in range(300)]
    append(log, stamps)
    log.trim("t", 0, 42)
    moments = [DAY - 10**6, *range(DAY - 300, DAY + 3_300, 37), DAY + 10**6]
    expected = [log.offset_at("t", 0, moment) for moment in moments]
    if closed:
        log.close()
    topic = MappedTopic(tmp_path, "t")
    assert [topic.offset_at(0, moment) for moment in moments] == expected
    for moment in reversed(moments):
        assert topic.offset_at(0, moment) == expected[moments.index(moment)]


def test_what_comes_later_is_noted_and_nothing_twice(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.alter("t", segment_bytes=10**6)
    append(log, [DAY + number for number in range(1_000)])
    topic = MappedTopic(tmp_path, "t")
    assert topic.offset_at(0, DAY + 999) == 999
    steps: list[int] = []

    def counting(data: bytes, position: int) -> object:
        steps.append(position)
        return read_header(data, position)

    monkeypatch.setattr(mapped_times, "read_header", counting)
    append(log, [DAY + 1_000])
    assert topic.offset_at(0, DAY + 1_000) == 1_000
    assert topic.offset_at(0, DAY + 500) == 500
    assert len(steps) < 150  # not the 200 batches once more


def test_an_empty_partition(log: Log, tmp_path: Path) -> None:
    topic = MappedTopic(tmp_path, "t")
    assert topic.offset_at(0, DAY) == 0
    append(log, [DAY])
    assert topic.offset_at(0, DAY) == 0
    assert topic.offset_at(0, DAY + 1) == 1
