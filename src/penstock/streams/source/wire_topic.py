"""A topic read over the wire, from a server of ours or from Apache Kafka."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, Message, TopicPartition

from penstock import clock
from penstock.errors import LogUnreachable
from penstock.events import columns
from penstock.log import Bounds, Log
from penstock.log.client.connection import meaning, meaningful, settings
from penstock.streams.source.topic import AppendTimes, lost

_ROWS = 50_000
_PATIENCE = 60.0  # seconds without a single message before a server is given up
_TIME_LIMIT = 30.0
_HEADERS = columns.SCHEMA.field("headers").type


class WireTopic:
    def __init__(self, address: str, topic: str) -> None:
        self.name = topic
        self._log = Log.connect(address)
        self.id = self._log.describe(topic).id
        self._is_kafka = address.startswith("kafka://")
        self._consumer = Consumer(
            settings(
                address,
                group_id="penstock-source",  # never joined: partitions are assigned by hand
                enable_auto_commit=False,
                enable_partition_eof=True,
                isolation_level="read_committed",
                auto_offset_reset="error",
                fetch_queue_backoff_ms=5,
                queued_min_messages=200_000,
            )
        )

    def partitions(self) -> int:
        with meaningful(f"topic {self.name!r} cannot be looked up"):
            described = self._consumer.list_topics(self.name, timeout=_TIME_LIMIT)
        topic = described.topics[self.name]
        if topic.error is not None:
            raise meaning(topic.error, f"topic {self.name!r} cannot be looked up")
        return len(topic.partitions)

    def bounds(self, partition: int) -> Bounds:
        """The end is that of the last transaction which is not open any more."""
        with meaningful(f"no offsets of {self.name}/{partition}"):
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self.name, partition), timeout=_TIME_LIMIT
            )
        if found is None:
            raise LogUnreachable(
                f"no offsets of {self.name}/{partition}", hint="is the log running?"
            )
        return Bounds(*found)

    def offset_at(self, partition: int, timestamp: int) -> int:
        return self._log.offset_at(self.name, partition, timestamp)

    def append_times(self, partition: int, start: int, end: int) -> AppendTimes | None:
        return None if self._is_kafka else self._log.append_times(self.name, partition, start, end)

    def columns(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        first = self.bounds(partition).start
        if start < first:
            raise lost(self.name, partition, start, first)
        place = TopicPartition(self.name, partition, start)
        self._consumer.assign([place])
        try:
            yield from self._received(partition, start, end)
        finally:
            self._consumer.unassign()

    def _received(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        messages: list[Message] = []
        give_up = clock.monotonic() + _PATIENCE
        position = start
        while position < end:
            for message in self._consumer.consume(_ROWS, 0.05):
                give_up = clock.monotonic() + _PATIENCE
                error = message.error()
                if error is None:
                    position = (message.offset() or 0) + 1
                    if position <= end:
                        messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    offset = message.offset()
                    position = max(position, end if offset in (None, OFFSET_INVALID) else offset)
                else:
                    raise meaning(error, f"{self.name}/{partition} cannot be read")
            if len(messages) >= _ROWS:
                yield _columns(messages)
                messages = []
            if clock.monotonic() > give_up:
                raise LogUnreachable(
                    f"nothing came from {self.name}/{partition}@{position} for {_PATIENCE:.0f} s",
                    hint="is the log running?",
                )
        if messages:
            yield _columns(messages)


def _columns(messages: list[Message]) -> pa.RecordBatch:
    headers: list[Any] = [message.headers() or () for message in messages]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([message.timestamp()[1] for message in messages], pa.int64()).view(
                columns.SCHEMA.field("timestamp").type
            ),
            pa.array([[*map(_header, each)] for each in headers], _HEADERS),
            pa.array([message.offset() for message in messages], pa.int64()),
        ],
        schema=columns.SCHEMA,
    )


def _header(pair: tuple[str, bytes | None]) -> dict[str, Any]:
    return {"key": pair[0], "value": pair[1]}
