"""What consumers tell each other through their group, as far as the log looks into it.

A message begins with its version, and every version begins like the first, so the first is read.
"""

from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.serial import entity_reader
from kio.serial.errors import SerialError

CONSUMER = "consumer"
_VERSION_BYTES = 2

_read_subscription = entity_reader(ConsumerProtocolSubscription)


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics a consumer wants to read; None when the bytes are no subscription."""
    try:
        read, _ = _read_subscription(subscription, _VERSION_BYTES)
    except (SerialError, ValueError):
        return None
    return frozenset(read.topics)
