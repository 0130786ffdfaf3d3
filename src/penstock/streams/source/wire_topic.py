"""A topic read over the wire, from a server of ours or from Apache Kafka."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
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


class WireTopic:
    def __init__(self, address: str, topic: str) -> None:
        self.name = topic
        self._log = Log.connect(address)
        policy = self._log.describe(topic).policy
        self.is_stamped = policy.message_timestamp_type == "LogAppendTime"
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
                # What is asked for is there: a fetch that waits at the end is in the way of the
                # next range.
                fetch_wait_max_ms=5,
                queued_min_messages=200_000,
            )
        )

    def close(self) -> None:
        self._consumer.close()
        self._log.close()

    @property
    def id(self) -> UUID:
        return self._log.describe(self.name).id

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

    def changed_files(self) -> list[Path]:
        return []

    def offsets_at(self, partitions: Collection[int], timestamp: int) -> dict[int, int]:
        places = [TopicPartition(self.name, each, max(timestamp, 0)) for each in partitions]
        with meaningful(f"no offsets of {self.name!r} by time"):
            found = self._consumer.offsets_for_times(places, timeout=_TIME_LIMIT)
        offsets = {}
        for each in found:
            if each.error is not None:
                raise meaning(each.error, f"no offset of {self.name}/{each.partition} by time")
            is_there = each.offset >= 0
            offsets[each.partition] = each.offset if is_there else self.bounds(each.partition).end
        return offsets

    def append_times(self, partition: int, start: int, end: int) -> AppendTimes | None:
        return None if self._is_kafka else self._log.append_times(self.name, partition, start, end)

    def columns(
        self, partition: int, start: int, end: int, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        first = self.bounds(partition).start
        if start < first:
            raise lost(self.name, partition, start, first)
        place = TopicPartition(self.name, partition, start)
        self._consumer.assign([place])
        try:
            for messages in self._received(partition, start, end):
                yield _columns(messages, names)
        finally:
            self._consumer.unassign()

    def _received(self, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        messages: list[Message] = []
        give_up = clock.monotonic() + _PATIENCE
        position = start
        while position < end:
            # It waits for as many as it is asked for, where gaps do not keep them away.
            for message in self._consumer.consume(min(_ROWS, end - position), 0.05):
                give_up = clock.monotonic() + _PATIENCE
                error = message.error()
                if error is None:
                    position = (message.offset() or 0) + 1
                    if position <= end:
                        messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    offset = message.offset()
                    position = max(position, end if offset in (None, OFFSET_INVALID) else offset)
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise lost(self.name, partition, position, self.bounds(partition).start)
                else:
                    raise meaning(error, f"{self.name}/{partition} cannot be read")
            if len(messages) >= _ROWS:
                yield messages
                messages = []
            if clock.monotonic() > give_up:
                raise LogUnreachable(
                    f"nothing came from {self.name}/{partition}@{position} for {_PATIENCE:.0f} s",
                    hint="is the log running?",
                )
        if messages:
            yield messages


def _columns(messages: list[Message], names: Sequence[str]) -> pa.RecordBatch:
    def build(name: str) -> pa.Array:
        kind = columns.SCHEMA.field(name).type
        match name:
            case "timestamp":
                stamps = [message.timestamp()[1] for message in messages]
                return pa.array(stamps, pa.int64()).view(kind)
            case "headers":
                return _headers([message.headers() for message in messages], kind)
        return pa.array([getattr(message, name)() for message in messages], kind)

    schema = pa.schema([columns.SCHEMA.field(name) for name in names])
    return pa.RecordBatch.from_arrays([build(name) for name in names], schema=schema)


def _headers(headers: list[Any], kind: pa.DataType) -> pa.Array:
    if not any(headers):
        places = pa.array(np.zeros(len(headers) + 1, np.int32))
        return pa.ListArray.from_arrays(places, pa.array([], kind.value_type))
    pairs = [[{"key": key, "value": value} for key, value in each or ()] for each in headers]
    return pa.array(pairs, kind)
