from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.errors import (
    CorruptBatch,
    InvalidInput,
    LogError,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicNotFound,
)
from penstock.events.batch import read_header
from penstock.log import mapped
from penstock.log.mapped import MappedTopic, segments_for

COUNT = 200


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def log(data: Path) -> Iterator[Log]:
    with Log.open(data) as log:
        yield log


@pytest.fixture
def topic(log: Log) -> str:
    """A topic of several segments, whose partition 0 holds the numbers up to COUNT."""
    log.create("t", partitions=2, segment_bytes=1_200)
    fill(log, COUNT)
    return "t"


def fill(log: Log, count: int, *, start: int = 0) -> None:
    for first in range(start, start + count, 10):
        some = range(first, min(first + 10, start + count))
        log.append("t", [Record(value=b"%d" % n, key=b"k", partition=0) for n in some])


def read(topic: MappedTopic, start: int, end: int, rows: int = 100) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for columns in topic.columns(0, start, end, ("offset", "value"), rows):
        found += zip(
            columns.batch["offset"].to_pylist(), columns.batch["value"].to_pylist(), strict=True
        )
    return found


def numbers(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(start, end)]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
def test_any_range(log: Log, data: Path, topic: str, closed: bool, remembers: bool) -> None:
    if closed:
        log.close()
    found = MappedTopic(data, topic)
    assert (found.bounds(0), found.bounds(1)) == ((0, COUNT), (0, 0))
    for start in range(0, COUNT + 1, 33):
        for end in {start, start + 1, min(start + 95, COUNT), COUNT}:
            if end <= COUNT:
                if not remembers:
                    mapped._ENDS.clear()
                assert read(found, start, end) == numbers(start, end)


def test_pieces_are_bounded(data: Path, topic: str) -> None:
    pieces = list(MappedTopic(data, topic).columns(0, 0, COUNT, rows=10))
    assert max(piece.batch.num_rows for piece in pieces) == 10
    assert pieces[-1].next_offset == COUNT


def test_what_is_appended_later_is_found_from_where_reading_ended(
    log: Log, data: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.alter(topic, segment_bytes=10**6)
    fill(log, 500, start=COUNT)
    found = MappedTopic(data, topic)
    read(found, 0, 700)
    steps: list[int] = []

    def counting(data: bytes, position: int) -> object:
        steps.append(position)
        return read_header(data, position)

    monkeypatch.setattr(mapped, "read_header", counting)
    fill(log, 10, start=700)
    assert read(found, 700, 710) == numbers(700, 710)
    assert len(steps) <= 2


@pytest.mark.usefixtures("log")
def test_a_remembered_place_where_another_batch_stands_by_now(data: Path, topic: str) -> None:
    found = MappedTopic(data, topic)
    read(found, 0, COUNT)
    last = max(mapped._ENDS, key=lambda name: (name.topic == found.id, name.base_offset))
    mapped._ENDS[last] = mapped._ENDS[last]._replace(position=17, offset=last.base_offset + 1)
    assert read(found, COUNT - 5, COUNT) == numbers(COUNT - 5, COUNT)


def test_retention_took_the_start(log: Log, data: Path, topic: str) -> None:
    found = MappedTopic(data, topic)
    late = found.columns(0, 0, COUNT, rows=10)
    next(late)
    log.trim(topic, 0, 150)
    assert found.bounds(0) == (150, COUNT)
    with pytest.raises(OffsetOutOfRange) as refused:
        found.columns(0, 149, COUNT)
    assert (refused.value.start, refused.value.end) == (150, COUNT)
    with pytest.raises(OffsetOutOfRange, match="retention"):
        list(late)
    assert read(found, 150, COUNT) == numbers(150, COUNT)


@pytest.mark.parametrize(("start", "end"), [(0, COUNT + 1), (-1, 5), (COUNT + 1, COUNT + 1)])
def test_beyond_what_is_durable(data: Path, topic: str, start: int, end: int) -> None:
    with pytest.raises(OffsetOutOfRange):
        MappedTopic(data, topic).columns(0, start, end)


def test_arguments_that_cannot_be(log: Log, data: Path, topic: str) -> None:
    found = MappedTopic(data, topic)
    with pytest.raises(InvalidInput, match="lower one first"):
        found.columns(0, 5, 4)
    with pytest.raises(PartitionNotFound):
        found.bounds(2)
    with pytest.raises(TopicNotFound):
        MappedTopic(data, "another")
    log.create("volatile", durability="memory")
    with pytest.raises(LogError, match="over the wire"):
        MappedTopic(data, "volatile")


def test_partitions_that_come_later(log: Log, data: Path, topic: str) -> None:
    found = MappedTopic(data, topic)
    assert found.partitions == 2
    log.alter(topic, partitions=3)
    assert found.partitions == 3
    assert found.bounds(2) == (0, 0)
    assert found.id == log.describe(topic).id


def test_a_topic_deleted_and_made_again_is_another(log: Log, data: Path, topic: str) -> None:
    found = MappedTopic(data, topic)
    late = found.columns(0, 0, COUNT, rows=10)
    next(late)
    log.delete(topic)
    with pytest.raises(TopicNotFound, match="there is no topic"):
        found.bounds(0)
    log.create(topic)
    fill(log, COUNT)
    with pytest.raises(TopicNotFound, match="another one made"):
        found.bounds(0)
    with pytest.raises(TopicNotFound):
        list(late)
    again = MappedTopic(data, topic)
    assert again.id != found.id
    assert read(again, 0, COUNT) == numbers(0, COUNT)


def test_a_file_that_lacks_records_is_damaged(log: Log, data: Path, topic: str) -> None:
    log.close()
    folder = MappedTopic(data, topic).folder(0)
    last = segments_for(folder, COUNT - 1, COUNT)[0]
    with last.open("r+b") as file:
        file.truncate(0)
    with pytest.raises(CorruptBatch, match="are missing"):
        read(MappedTopic(data, topic), 0, COUNT)


def test_segments_for(data: Path, topic: str) -> None:
    folder = MappedTopic(data, topic).folder(0)
    everything = segments_for(folder, 0, COUNT)
    assert everything == sorted(folder.glob("*.log"))
    assert len(everything) > 2
    second = int(everything[1].stem)
    assert segments_for(folder, second - 1, second) == everything[:1]
    assert segments_for(folder, second - 1, second + 1) == everything[:2]
    assert segments_for(folder, second, second + 1) == everything[1:2]
    assert segments_for(folder / "none", 0, 1) == []


def test_append_times(log: Log, data: Path, topic: str) -> None:
    assert MappedTopic(data, topic).append_times(0, 0, COUNT) == log.append_times(
        topic, 0, 0, COUNT
    )


@pytest.mark.parametrize("closed", [False, True])
def test_headers_of_batches(log: Log, topic: str, data: Path, closed: bool) -> None:
    if closed:
        log.close()
    mapped_topic = MappedTopic(data, topic)
    spans = [(each.base_offset, each.next_offset) for each in mapped_topic.batches(0, 0, COUNT)]
    assert spans == [(n, n + 10) for n in range(0, COUNT, 10)]
    part = [each.base_offset for each in mapped_topic.batches(0, 35, 61)]
    assert part == [30, 40, 50, 60], "those that hold the first and the last of them included"
    assert list(mapped_topic.batches(0, 50, 50)) == []
    with pytest.raises(OffsetOutOfRange):
        list(mapped_topic.batches(0, 0, COUNT + 1))


def test_headers_tell_the_batches_of_a_writer(log: Log, data: Path) -> None:
    log.create("t")
    writer = log.open_writer("shop.totals")
    for batch in (3, 5):
        writer.append("t", {0: [Record(value=b"x")] * 2}, batch=batch)
    found = MappedTopic(data, "t").batches(0, 0, 4)
    assert [(each.base_sequence, each.next_offset) for each in found] == [(3, 2), (5, 4)]
