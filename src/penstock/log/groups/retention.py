"""Which committed offsets nobody will come back for."""

from collections.abc import Mapping

from penstock.log.groups.consumer_protocol import CONSUMER, subscribed_topics
from penstock.log.groups.group import Group, State
from penstock.log.groups.offsets import Committed, TopicPartition


def subscription(group: Group) -> frozenset[str] | None:
    """The topics that its consumers read; None when that cannot be told, so it may be any."""
    topics: set[str] = set()
    for member in group.members if group.protocol_type == CONSUMER else ():
        read = subscribed_topics(member.protocols.get(group.protocol or "", b""))
        if read is None:
            return None
        topics |= read
    return frozenset(topics)


def outlived(
    group: Group, offsets: Mapping[TopicPartition, Committed], before_ms: int
) -> list[TopicPartition]:
    """The offsets that have not been in use since `before_ms`.

    An offset counts from its commit: in a group that never had members, in the topics that a stable
    group no longer reads, and in a group without members from when it lost the last, if later.
    """
    if group.state is State.EMPTY:
        idle_ms = group.empty_since_ms if group.protocol_type is not None else 0
        read: frozenset[str] | None = frozenset()
    elif group.state is State.STABLE and group.protocol_type == CONSUMER:
        idle_ms, read = 0, subscription(group)
    else:
        return []
    return [
        place
        for place, committed in offsets.items()
        if read is not None and place[0] not in read and max(committed.at_ms, idle_ms) < before_ms
    ]
