"""How a topic is followed without a group in every log."""

import pytest

from penstock.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from penstock.events.record import Record
from penstock.log.client.follower import Follower
from penstock.log.contract import Log
from penstock.testing import wait_until

WITHIN = 20.0


def collect(records: Follower, count: int) -> list[bytes | None]:
    """The values of that many records, each partition's in order."""
    found: list[Record] = []

    def enough() -> bool:
        found.extend(records.poll(0.1))
        return len(found) >= count

    wait_until(enough, within=WITHIN)
    assert len(found) == count
    return [record.value for record in sorted(found, key=lambda record: record.position)]


def at(partition: int, *values: bytes) -> list[Record]:
    return [Record(value=value, partition=partition) for value in values]


class FollowingContract:
    def test_what_is_there_comes_first_and_then_what_is_appended(
        self, log: Log, topic: str
    ) -> None:
        log.create(topic, partitions=2)
        log.append(topic, [*at(0, b"passed over", b"a"), *at(1, b"b")])
        with log.follow(topic, {0: 1, 1: 0}) as records:
            assert collect(records, 2) == [b"a", b"b"]
            log.append(topic, [*at(0, b"c"), *at(1, b"d")])
            assert collect(records, 2) == [b"c", b"d"]

    def test_following_from_the_end_shows_only_what_comes(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, at(0, b"old"))
        with log.follow(topic, {0: 1}) as records:
            assert records.poll(0.2) == []
            log.append(topic, at(0, b"new"))
            assert collect(records, 1) == [b"new"]

    def test_only_the_partitions_asked_for_are_followed(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=2)
        with log.follow(topic, {1: 0}) as records:
            log.append(topic, [*at(0, b"not this"), *at(1, b"this")])
            assert collect(records, 1) == [b"this"]
            assert records.poll(0.2) == []

    def test_until_end_ends_and_poll_goes_on_behind_it(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=3)  # the last one stays empty
        log.append(topic, [*at(0, *(b"%d" % n for n in range(2_500))), *at(1, b"one")])
        with log.follow(topic, {0: 0, 1: 0, 2: 0}) as records:
            values = [record.value for record in records.until_end()]
            assert len(values) == 2_501
            assert [value for value in values if value != b"one"] == [
                b"%d" % n for n in range(2_500)
            ]
            assert list(records.until_end()) == []
            log.append(topic, at(2, b"later"))
            assert collect(records, 1) == [b"later"]

    def test_partitions_that_come_later_are_followed_on_request(self, log: Log, topic: str) -> None:
        log.create(topic)
        with log.follow(topic, {0: 0}, grow=True) as growing, log.follow(topic, {0: 0}) as fixed:
            log.alter(topic, partitions=3)
            log.append(topic, [*at(1, b"in the new one"), *at(2, b"in the newer")])
            assert collect(growing, 2) == [b"in the new one", b"in the newer"]
            assert [*fixed.poll(0.5), *fixed.poll(0.5)] == []  # the first one looks

    @pytest.mark.parametrize("offset", [-1, 2, 4])
    def test_an_offset_outside_is_refused_with_the_bounds(
        self, log: Log, topic: str, offset: int
    ) -> None:
        log.create(topic)
        log.append(topic, at(0, b"a", b"b", b"c"))
        log.trim(topic, 0, 3 if offset == 2 else 0)
        with pytest.raises(OffsetOutOfRange) as refused:
            log.follow(topic, {0: offset})
        assert refused.value.end == 3

    def test_what_is_not_there_cannot_be_followed(self, log: Log, topic: str) -> None:
        with pytest.raises(TopicNotFound):
            log.follow(topic, {0: 0})
        log.create(topic)
        with pytest.raises(PartitionNotFound):
            log.follow(topic, {1: 0})

    def test_following_a_deleted_topic_says_so(self, log: Log, topic: str) -> None:
        log.create(topic)
        with log.follow(topic, {0: 0}) as records:
            log.append(topic, at(0, b"a"))
            assert collect(records, 1) == [b"a"]
            log.delete(topic)
            with pytest.raises(TopicNotFound):
                wait_until(lambda: records.poll(0.1), within=WITHIN)
