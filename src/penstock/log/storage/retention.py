"""The bounded buffer: old segments go when a topic's time or bytes are used up."""

from penstock.log.policy import FOREVER
from penstock.log.storage.partition import Partition
from penstock.log.storage.segment import Segment


def expire(partition: Partition, now: int) -> int:
    """Deletes whole segments from the start; returns how many.

    The active one goes only when all its records are too old, not because of its size.
    """
    if partition.policy.retention_ms != FOREVER and _is_older(
        partition, partition.segments[-1], now - partition.policy.retention_ms
    ):
        partition.roll()
    return partition.forget_before(max(_start_by_time(partition, now), _start_by_bytes(partition)))


def _start_by_time(partition: Partition, now: int) -> int:
    if partition.policy.retention_ms == FOREVER:
        return 0
    oldest = now - partition.policy.retention_ms
    start = 0
    for segment in partition.segments[:-1]:
        if not _is_older(partition, segment, oldest):
            break
        start = segment.next_offset
    return start


def _is_older(partition: Partition, segment: Segment, oldest: int) -> bool:
    """Whether its records are all about times before, and have all been here since before.

    With their timestamps alone, events of last year would go as soon as they are loaded.
    """
    return segment.max_timestamp < oldest and (
        partition.append_times.latest(segment.next_offset - 1) < oldest
    )


def _start_by_bytes(partition: Partition) -> int:
    if partition.policy.retention_bytes == FOREVER:
        return 0
    excess, start = partition.size - partition.policy.retention_bytes, 0
    for segment in partition.segments[:-1]:
        excess -= segment.size
        if excess < 0:
            break
        start = segment.next_offset
    return start
