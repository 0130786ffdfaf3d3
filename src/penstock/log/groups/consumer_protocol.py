"""What consumers tell each other through their group, as far as the log looks into it.

Both messages begin with a version, and every version begins like the first, so the first is read.
"""

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.serial import entity_reader
from kio.serial.errors import DecodeError

CONSUMER = "consumer"
_VERSION_BYTES = 2

_read_subscription = entity_reader(ConsumerProtocolSubscription)
_read_assignment = entity_reader(ConsumerProtocolAssignment)


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics a consumer wants to read; None when the bytes are no subscription."""
    try:
        read, _ = _read_subscription(subscription, _VERSION_BYTES)
    except DecodeError:
        return None
    return frozenset(read.topics)


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """The topics and partitions a consumer was given; none when the bytes are no assignment."""
    try:
        read, _ = _read_assignment(assignment, _VERSION_BYTES)
    except DecodeError:
        return ()
    return tuple(
        (str(given.topic), int(partition))
        for given in read.assigned_partitions
        for partition in given.partitions
    )
