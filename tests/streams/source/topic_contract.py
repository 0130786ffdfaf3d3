"""What every topic offers to the source, wherever its log is."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pyarrow as pa
import pytest

from penstock import Log, Record
from penstock.errors import DataLost, TopicNotFound
from penstock.events.columns import COLUMNS, SCHEMA
from penstock.streams.source.topic import SourceTopic, open_topic
from penstock.testing import wait_until

COUNT = 60
START = 1_700_000_000_000
# Not in order, as timestamps of several producers are not.
STAMPS = [START + 10 * (number - number % 7) for number in range(COUNT)]


def record(number: int) -> Record:
    return Record(
        key=None if number % 3 else b"k%d" % number,
        value=None if number % 5 == 4 else b"%d" % number,
        headers=(("n", b"%d" % number), ("none", None)) if number % 4 == 0 else (),
        timestamp=STAMPS[number],
        partition=1,
    )


def table(topic: SourceTopic, start: int, end: int, names: tuple[str, ...] = COLUMNS) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return pa.Table.from_batches(topic.columns(1, start, end, names), schema=schema)


class SourceTopicContract:
    """A subclass gives `log`, through which records are appended, and the `address` to read at."""

    @pytest.fixture
    def name(self, log: Log) -> str:
        name = f"source-{uuid4().hex[:12]}"
        log.create(name, partitions=2)
        for first in range(0, COUNT, 6):
            log.append(name, [record(number) for number in range(first, first + 6)])
        return name

    @pytest.fixture
    def topic(self, address: str, name: str) -> Iterator[SourceTopic]:
        with closing(open_topic(address, name)) as topic:
            yield topic

    def test_what_there_is(self, log: Log, topic: SourceTopic, name: str) -> None:
        assert (topic.name, topic.id) == (name, log.describe(name).id)
        assert topic.partitions() == 2
        assert [topic.bounds(number) for number in (0, 1)] == [(0, 0), (0, COUNT)]

    def test_any_range(self, topic: SourceTopic) -> None:
        for start, end in itertools.combinations((0, 1, 17, 18, COUNT - 1, COUNT), 2):
            found = table(topic, start, end).to_pylist()
            assert [row["offset"] for row in found] == list(range(start, end))
            for row in found:
                sent = record(row["offset"])
                assert (row["key"], row["value"]) == (sent.key, sent.value)
                assert [(each["key"], each["value"]) for each in row["headers"]] == list(
                    sent.headers
                )
            stamps = table(topic, start, end)["timestamp"].cast(pa.int64()).to_pylist()
            assert stamps == STAMPS[start:end]
        assert table(topic, 5, 5).num_rows == 0

    def test_some_columns(self, topic: SourceTopic) -> None:
        found = table(topic, 3, 5, ("offset", "value"))
        assert found.to_pylist() == [{"offset": 3, "value": b"3"}, {"offset": 4, "value": None}]

    def test_offsets_by_time(self, topic: SourceTopic) -> None:
        for moment in sorted({*STAMPS, *(stamp + 1 for stamp in STAMPS), START - 1}):
            late = [number for number, stamp in enumerate(STAMPS) if stamp >= moment]
            found = topic.offsets_at((0, 1), moment)
            assert found == {0: 0, 1: late[0] if late else COUNT}

    def test_offsets_by_time_of_what_comes_later(self, log: Log, topic: SourceTopic) -> None:
        later = STAMPS[-1] + 1_000
        assert topic.offsets_at([1], later) == {1: COUNT}
        log.append(topic.name, [Record(value=b"", timestamp=later, partition=1)])
        assert topic.offsets_at([1], later) == {1: COUNT}
        assert topic.offsets_at([1], later + 1) == {1: COUNT + 1}

    def test_what_is_appended_later(self, log: Log, topic: SourceTopic) -> None:
        assert table(topic, COUNT - 1, COUNT).num_rows == 1
        log.append(topic.name, [record(0)])
        assert topic.bounds(1) == (0, COUNT + 1)
        assert table(topic, COUNT, COUNT + 1)["value"].to_pylist() == [b"0"]

    def test_new_partitions(self, log: Log, topic: SourceTopic) -> None:
        log.alter(topic.name, partitions=3)
        wait_until(lambda: topic.partitions() == 3, within=20, what="the new partition")
        wait_until(lambda: topic.bounds(2) == (0, 0), within=20, what="its bounds")

    def test_records_that_are_gone(self, log: Log, topic: SourceTopic) -> None:
        log.trim(topic.name, 1, 10)
        wait_until(lambda: topic.bounds(1) == (10, COUNT), within=20, what="the new start")
        with pytest.raises(DataLost, match=f"records 4 to 9 of {topic.name}/1 are gone"):
            table(topic, 4, 20)
        assert table(topic, 10, 20).num_rows == 10
        assert topic.offsets_at([1], START) == {1: 10}

    def test_no_topic(self, address: str) -> None:
        with pytest.raises(TopicNotFound, match="nothing-here"):
            open_topic(address, "nothing-here")

    def test_another_topic_of_the_same_name(self, log: Log, address: str, name: str) -> None:
        topic = open_topic(address, name)
        before = str(topic.id)
        assert open_topic(address, name, before).name == name
        log.delete(name)
        log.create(name, partitions=2)
        with pytest.raises(DataLost, match="deleted and made again"):
            open_topic(address, name, before)


class WithAppendTimes:
    def test_when_records_were_appended(self, log: Log, topic: SourceTopic) -> None:
        notes = topic.append_times(1, 5, 20)
        assert notes == log.append_times(topic.name, 1, 5, 20)
        assert notes
        assert notes[0][0] <= 5
