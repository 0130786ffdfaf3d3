"""Where groups stand: the offsets they committed, by topic and partition."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

TopicPartition = tuple[str, int]


class Committed(NamedTuple):
    """The next offset to read. `note` is the committer's own; `at_ms` is when it was committed."""

    offset: int
    leader_epoch: int = -1
    note: str = ""
    at_ms: int = 0


class Offsets:
    """What is remembered of all groups; keeping it durable is the coordinator's."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, Committed]]] = {}

    def groups(self) -> Iterator[str]:
        return iter(self._by_group)

    def get(self, group: str, topic: str, partition: int) -> Committed | None:
        return self._by_group.get(group, {}).get(topic, {}).get(partition)

    def of(self, group: str) -> dict[TopicPartition, Committed]:
        return {
            (topic, partition): committed
            for topic, partitions in self._by_group.get(group, {}).items()
            for partition, committed in partitions.items()
        }

    def topics(self) -> set[str]:
        return {topic for topics in self._by_group.values() for topic in topics}

    def of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        """Every group and place at which the topic is committed."""
        return [
            (group, (topic, partition))
            for group, topics in self._by_group.items()
            for partition in topics.get(topic, ())
        ]

    def set(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        topics = self._by_group.setdefault(group, {})
        for (topic, partition), committed in offsets.items():
            topics.setdefault(topic, {})[partition] = committed

    def drop(self, group: str, place: TopicPartition) -> None:
        topic, partition = place
        topics = self._by_group[group]
        del topics[topic][partition]
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._by_group[group]
