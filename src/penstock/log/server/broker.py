"""What the handlers share: the engine, the groups, and who this server is."""

import asyncio
from collections import Counter

from penstock.errors import (
    CorruptBatch,
    InvalidDuration,
    InvalidInput,
    InvalidPolicy,
    InvalidTopic,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionNotFound,
    PenstockError,
    RecordTooLarge,
    StaleProducerEpoch,
    StorageFailed,
    TopicExists,
    TopicNotFound,
)
from penstock.log.engine import Engine
from penstock.log.groups.coordinator import Coordinator
from penstock.log.server.settings import ServerSettings
from penstock.log.topics import Topic, Topics

NODE_ID = 1

# Kafka's number for each of our errors.
ERROR_CODES: dict[type[PenstockError], int] = {
    OffsetOutOfRange: 1,
    CorruptBatch: 2,
    TopicNotFound: 3,
    PartitionNotFound: 3,
    RecordTooLarge: 10,
    InvalidTopic: 17,
    TopicExists: 36,
    InvalidPolicy: 40,
    InvalidDuration: 40,
    InvalidInput: 42,
    OutOfOrderSequence: 45,
    StaleProducerEpoch: 47,
    StorageFailed: 56,
}
UNKNOWN_SERVER_ERROR = -1


def error_code(error: Exception) -> int:
    for kind in type(error).__mro__:
        if kind in ERROR_CODES:
            return ERROR_CODES[kind]
    return UNKNOWN_SERVER_ERROR


class Broker:
    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.node_id = NODE_ID
        self.cluster_id = engine.cluster_id
        self.advertised = ("127.0.0.1", 0)
        self.loop = asyncio.get_running_loop()
        self.groups = Coordinator(
            engine.journal,
            schedule=self.loop.call_later,
            post=self.loop.call_soon_threadsafe,
            settings=settings.groups,
        )
        self.groups.keep_topics(engine.topics.names())
        damage = {
            "groups: damaged places in the journal": len(engine.journal.damage),
            "groups: unreadable facts in the journal": self.groups.unreadable,
        }
        self.counts: Counter[str] = +Counter(damage)
        """What was refused or lost, by reason; nothing is dropped without a count."""

    @property
    def topics(self) -> Topics:
        return self.engine.topics

    def find_or_create(self, name: str) -> Topic:
        """The topic, made now if the settings say so."""
        topic = self.topics.find(name)
        if topic is None and self.settings.auto_create:
            return self.topics.create(name, self.settings.partitions, {})
        return self.topics.get(name)

    def forget(self, topic: str) -> None:
        """From any thread: the groups' offsets in a deleted topic."""
        self.loop.call_soon_threadsafe(self.groups.forget_topic, topic)
