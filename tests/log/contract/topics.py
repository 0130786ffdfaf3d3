"""How topics behave in every log."""

from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.errors import (
    InvalidDuration,
    InvalidInput,
    InvalidPolicy,
    InvalidTopic,
    PartitionNotFound,
    TopicExists,
    TopicNotFound,
)
from penstock.events.record import Position, Record
from penstock.log.contract import Bounds, Log
from penstock.log.policy import Setting

DAY_MS = 86_400_000


class TopicsContract:
    def test_a_new_topic_is_described(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=3, retention="2 days", segment_bytes=2_000_000)
        described = log.describe(topic)
        assert described.name == topic
        assert described.id != UUID(int=0)
        assert described.partitions == (Bounds(0, 0),) * 3
        assert described.policy.retention_ms == 2 * DAY_MS
        assert described.policy.segment_bytes == 2_000_000
        assert described.policy.cleanup_policy == "delete"

    def test_topics_are_listed_in_order(self, log: Log, topic: str) -> None:
        before = log.topics()
        for name in ("b", "c", "a"):
            log.create(f"{topic}-{name}")
        assert log.topics() == sorted(before + [f"{topic}-{name}" for name in "abc"])
        assert not [name for name in log.topics() if name.startswith("__")]

    def test_a_topic_is_made_once(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=2)
        with pytest.raises(TopicExists, match=topic):
            log.create(topic, partitions=5)
        assert len(log.describe(topic).partitions) == 2

    @pytest.mark.parametrize(
        "name", ["", ".", "..", "a/b", "a b", "ä", "a\n", "a\0", "^a", "x" * 250, "x" * 300]
    )
    def test_an_impossible_name_is_refused(self, log: Log, name: str) -> None:
        with pytest.raises(InvalidTopic):
            log.create(name)
        assert name not in log.topics()

    def test_a_name_of_the_greatest_length_is_taken(self, log: Log, topic: str) -> None:
        longest = topic.ljust(249, "x")
        log.create(longest)
        assert log.append(longest, [Record(value=b"a")]) == [Position(longest, 0, 0)]
        log.delete(longest)

    @pytest.mark.parametrize(
        ("setting", "error"),
        [
            ({"colour": "red"}, InvalidPolicy),
            ({"retention": "soon"}, InvalidDuration),
            ({"retention": "9" * 400 + "s"}, InvalidDuration),
            ({"segment_bytes": "many"}, InvalidPolicy),
            ({"message_timestamp_type": "Tomorrow"}, InvalidPolicy),
        ],
    )
    def test_an_impossible_setting_is_refused(
        self, log: Log, topic: str, setting: dict[str, Setting], error: type[InvalidInput]
    ) -> None:
        with pytest.raises(error):
            log.create(topic, partitions=1, **setting)
        assert topic not in log.topics()

    @pytest.mark.parametrize("partitions", [0, -1])
    def test_a_topic_needs_a_partition(self, log: Log, topic: str, partitions: int) -> None:
        with pytest.raises(InvalidInput):
            log.create(topic, partitions=partitions)
        assert topic not in log.topics()

    def test_settings_change_one_by_one(self, log: Log, topic: str) -> None:
        log.create(topic, retention="2 days", max_message_bytes=5_000)
        log.alter(topic, retention_ms=DAY_MS)
        assert log.describe(topic).policy.retention_ms == DAY_MS
        assert log.describe(topic).policy.max_message_bytes == 5_000

    def test_none_puts_a_setting_back(self, log: Log, topic: str) -> None:
        log.create(topic)
        default = log.describe(topic).policy
        log.alter(topic, retention="2 days", max_message_bytes=5_000)
        assert log.describe(topic).policy != default
        log.alter(topic, retention=None, max_message_bytes=None)
        assert log.describe(topic).policy == default

    def test_an_impossible_change_changes_nothing(self, log: Log, topic: str) -> None:
        log.create(topic, retention="2 days")
        with pytest.raises(InvalidPolicy):
            log.alter(topic, retention="3 days", segment_bytes=-5)
        assert log.describe(topic).policy.retention_ms == 2 * DAY_MS

    def test_partitions_are_added_and_records_stay(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=1)
        log.append(topic, [Record(value=b"a")])
        log.alter(topic, partitions=3)
        assert log.describe(topic).partitions == (Bounds(0, 1), Bounds(0, 0), Bounds(0, 0))
        assert log.append(topic, [Record(value=b"b", partition=2)]) == [Position(topic, 2, 0)]

    def test_partitions_cannot_be_taken_away(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=3)
        with pytest.raises(InvalidInput):
            log.alter(topic, partitions=2)
        log.alter(topic, partitions=3)
        assert len(log.describe(topic).partitions) == 3

    def test_a_deleted_topic_is_gone(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, [Record(value=b"a")])
        log.delete(topic)
        assert topic not in log.topics()
        with pytest.raises(TopicNotFound):
            log.describe(topic)
        with pytest.raises(TopicNotFound):
            log.append(topic, [Record(value=b"b")])
        assert topic not in log.topics()

    def test_a_topic_made_again_has_nothing_of_the_old_one(self, log: Log, topic: str) -> None:
        log.create(topic, retention="2 days")
        old = log.describe(topic)
        log.append(topic, [Record(value=b"old") for _ in range(5)])
        log.trim(topic, 0, 2)
        log.delete(topic)
        log.create(topic, partitions=2)
        new = log.describe(topic)
        assert new.id != old.id
        assert new.policy.retention_ms != old.policy.retention_ms
        assert new.partitions == (Bounds(0, 0), Bounds(0, 0))
        assert log.append(topic, [Record(value=b"new", partition=0)]) == [Position(topic, 0, 0)]
        assert [record.value for record in log.read(topic, 0, 0)] == [b"new"]

    @pytest.mark.parametrize(
        "ask",
        [
            lambda log, topic: log.describe(topic),
            lambda log, topic: log.alter(topic, retention="1 day"),
            lambda log, topic: log.alter(topic, partitions=4),
            lambda log, topic: log.delete(topic),
            lambda log, topic: log.append(topic, [Record(value=b"a")]),
            lambda log, topic: log.append(topic, []),
            lambda log, topic: list(log.read(topic, 0, 0)),
            lambda log, topic: log.bounds(topic, 0),
            lambda log, topic: log.offset_at(topic, 0, 1),
            lambda log, topic: log.trim(topic, 0, 0),
            lambda log, topic: log.subscribe(f"of-{topic}", [topic]),
            lambda log, topic: log.commit(f"of-{topic}", {(topic, 0): 0}),
        ],
    )
    def test_a_missing_topic_is_not_found_and_not_made(
        self, log: Log, topic: str, ask: Callable[[Log, str], object]
    ) -> None:
        with pytest.raises(TopicNotFound):
            ask(log, topic)
        assert topic not in log.topics()

    @pytest.mark.parametrize("partition", [2, -1])
    @pytest.mark.parametrize(
        "ask",
        [
            lambda log, topic, nr: log.append(topic, [Record(value=b"a", partition=nr)]),
            lambda log, topic, nr: list(log.read(topic, nr, 0)),
            lambda log, topic, nr: log.bounds(topic, nr),
            lambda log, topic, nr: log.offset_at(topic, nr, 1),
            lambda log, topic, nr: log.trim(topic, nr, 0),
            lambda log, topic, nr: log.commit(f"of-{topic}", {(topic, nr): 0}),
        ],
    )
    def test_a_missing_partition_is_not_found(
        self, log: Log, topic: str, partition: int, ask: Callable[[Log, str, int], object]
    ) -> None:
        log.create(topic, partitions=2)
        with pytest.raises(PartitionNotFound):
            ask(log, topic, partition)
        assert log.describe(topic).partitions == (Bounds(0, 0), Bounds(0, 0))
