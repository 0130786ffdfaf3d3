"""Finding records by their time."""

from typing import NamedTuple

from penstock.events.batch import decode
from penstock.events.record import Record
from penstock.log.storage.partition import Partition


class Timed(NamedTuple):
    offset: int
    timestamp: int


def first_at(partition: Partition, timestamp: int) -> Timed | None:
    """The first record as late as `timestamp`, among those that can be read."""
    for segment in partition.segments:
        if segment.max_timestamp < timestamp:
            continue
        for header in segment.headers(segment.index.before_time(timestamp)):
            if header.base_offset >= partition.end_offset:
                return None
            if header.max_timestamp < timestamp:
                continue
            for record in _batch_at(partition, max(header.base_offset, partition.start_offset)):
                found = Timed(record.position.offset, record.timestamp or 0)
                if found.timestamp >= timestamp and found.offset >= partition.start_offset:
                    return found
    return None


def latest(partition: Partition) -> Timed | None:
    """The first record with the highest timestamp of all."""
    highest = max(segment.max_timestamp for segment in partition.segments)
    return first_at(partition, highest) if highest >= 0 else None


def _batch_at(partition: Partition, offset: int) -> list[Record]:
    found = partition.slice(offset, 1)
    return (
        [] if found is None else list(decode(memoryview(found.read()), partition=partition.index))
    )
