"""What consumers put into their group's bytes, written by kio."""

from io import BytesIO

from kio.schema.consumer_protocol_assignment.v1 import data as assignments
from kio.schema.consumer_protocol_subscription.v1 import data as subscriptions
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

VERSION_1 = b"\0\1"


def subscription(*topics: str) -> bytes:
    out = BytesIO()
    entity_writer(subscriptions.ConsumerProtocolSubscription)(
        out,
        subscriptions.ConsumerProtocolSubscription(
            topics=topics, user_data=None, owned_partitions=()
        ),
    )
    return VERSION_1 + out.getvalue()


def assignment(*places: tuple[str, int]) -> bytes:
    out = BytesIO()
    entity_writer(assignments.ConsumerProtocolAssignment)(
        out,
        assignments.ConsumerProtocolAssignment(
            assigned_partitions=tuple(
                assignments.TopicPartition(topic=TopicName(topic), partitions=(i32(partition),))
                for topic, partition in places
            ),
            user_data=b"whatever",
        ),
    )
    return VERSION_1 + out.getvalue()
