"""How a client reaches a log over the wire, what it receives, and what its errors mean."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from penstock.errors import (
    CorruptBatch,
    GroupNotEmpty,
    GroupNotFound,
    InvalidInput,
    InvalidPolicy,
    InvalidTopic,
    LogError,
    LogUnreachable,
    OutOfOrderSequence,
    PartitionNotFound,
    PenstockError,
    RecordTooLarge,
    StaleProducerEpoch,
    StorageFailed,
    TopicExists,
    TopicNotFound,
)
from penstock.events.record import Record

logger = logging.getLogger(__name__)
# While a server is away, the client reports twenty times a second that it cannot connect.
logger.addFilter(lambda line: not line.getMessage().startswith("FAIL "))

_SCHEME = "kafka://"
_AT_ONCE = 1_000  # messages taken from the client in one go

_CREATE = "create it first, or look for a typing error"
_DAMAGED = "the bytes changed on their way or on disk"
_TAKEN_OVER = "another producer took over"
_RUNNING = "is the log running, and is its address right?"

_MEANINGS: dict[int, tuple[type[PenstockError], str]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: (TopicNotFound, _CREATE),
    KafkaError._UNKNOWN_TOPIC: (TopicNotFound, _CREATE),
    KafkaError._NOENT: (TopicNotFound, _CREATE),
    KafkaError.UNKNOWN_TOPIC_ID: (TopicNotFound, "it was deleted in the meantime"),
    KafkaError._UNKNOWN_PARTITION: (PartitionNotFound, "partitions are numbered from 0"),
    KafkaError.TOPIC_ALREADY_EXISTS: (TopicExists, "choose another name, or delete it first"),
    KafkaError.TOPIC_EXCEPTION: (InvalidTopic, "use letters, digits, '.', '_' and '-'"),
    KafkaError.INVALID_CONFIG: (InvalidPolicy, "the log refuses this setting, or its value"),
    KafkaError.INVALID_PARTITIONS: (InvalidPolicy, "partitions can be added, not taken away"),
    KafkaError.INVALID_REPLICATION_FACTOR: (InvalidPolicy, "there are not that many brokers"),
    KafkaError.POLICY_VIOLATION: (InvalidPolicy, "the log's own rules forbid it"),
    KafkaError.MSG_SIZE_TOO_LARGE: (RecordTooLarge, "raise the topic's max_message_bytes"),
    KafkaError.RECORD_LIST_TOO_LARGE: (RecordTooLarge, "raise the topic's segment_bytes"),
    KafkaError.INVALID_TIMESTAMP: (InvalidInput, "the topic bounds how far off a time may be"),
    KafkaError.KAFKA_STORAGE_ERROR: (StorageFailed, "its disk refuses; see the server's output"),
    KafkaError.INVALID_MSG: (CorruptBatch, _DAMAGED),
    KafkaError._BAD_MSG: (CorruptBatch, _DAMAGED),
    KafkaError._BAD_COMPRESSION: (CorruptBatch, _DAMAGED),
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: (OutOfOrderSequence, "append again"),
    KafkaError.INVALID_PRODUCER_EPOCH: (StaleProducerEpoch, _TAKEN_OVER),
    KafkaError.PRODUCER_FENCED: (StaleProducerEpoch, _TAKEN_OVER),
    KafkaError.GROUP_ID_NOT_FOUND: (GroupNotFound, "see the list of groups"),
    KafkaError.NON_EMPTY_GROUP: (GroupNotEmpty, "close its members first"),
    KafkaError.INVALID_GROUP_ID: (InvalidInput, "a group needs a name"),
    KafkaError.REQUEST_TIMED_OUT: (LogUnreachable, _RUNNING),
    KafkaError.NETWORK_EXCEPTION: (LogUnreachable, _RUNNING),
    KafkaError.BROKER_NOT_AVAILABLE: (LogUnreachable, _RUNNING),
    KafkaError.LEADER_NOT_AVAILABLE: (LogUnreachable, "the partition has no leader yet; try again"),
    KafkaError._TRANSPORT: (LogUnreachable, _RUNNING),
    KafkaError._ALL_BROKERS_DOWN: (LogUnreachable, _RUNNING),
    KafkaError._RESOLVE: (LogUnreachable, "the host name is not known"),
    KafkaError._TIMED_OUT: (LogUnreachable, _RUNNING),
    KafkaError._TIMED_OUT_QUEUE: (LogUnreachable, _RUNNING),
    KafkaError._MSG_TIMED_OUT: (LogUnreachable, _RUNNING),
}


def settings(address: str, **own: Any) -> dict[str, Any]:
    """What every client is told; `own` settings are written with underscores for dots.

    The address is `host:port`, or `kafka://` and several of them with commas between. Whatever
    goes wrong comes back as an exception, so librdkafka writes nothing of its own to stderr.
    """
    servers = address.removeprefix(_SCHEME).strip("/")
    if not servers or not all(":" in server for server in servers.split(",")):
        raise InvalidInput(
            f"{address!r} is not the address of a log",
            hint="write host:port, or kafka://host:port,host:port",
        )
    return {
        "bootstrap.servers": servers,
        "client.id": "penstock",
        "log_level": 0,
        "socket.nagle.disable": True,
        # A local server is back within a second; there is no reason to stay away for ten.
        "reconnect.backoff.max.ms": 1_000,
        **{name.replace("_", "."): setting for name, setting in own.items()},
    }


def meaning(error: KafkaError, what: str) -> PenstockError:
    """penstock's own error for a client's; `what` is what went wrong, in a few words."""
    kind, hint = _MEANINGS.get(error.code(), (LogError, ""))
    return kind(f"{what}: {error.str()}", hint=hint)


@contextmanager
def meaningful(what: str) -> Iterator[None]:
    """Raises what the client raises as penstock's own error."""
    try:
        yield
    except KafkaException as failed:
        raise meaning(failed.args[0], what) from failed


def receive(consumer: Consumer, timeout: float) -> list[Message]:
    """The messages that are there, after waiting up to `timeout` seconds for the first one.

    Among them are those without content that report an error or the end of a partition.
    """
    first = consumer.poll(timeout)
    # Unlike poll, consume would wait for the full number, so it is only asked for what is there.
    return [] if first is None else [first, *consumer.consume(_AT_ONCE - 1, 0)]


def record_of(message: Message) -> Record:
    headers = message.headers()
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(headers) if headers else (),  # type: ignore[arg-type]
        timestamp=message.timestamp()[1],
        topic=message.topic() or "",
        partition=message.partition(),
        offset=message.offset(),
    )
