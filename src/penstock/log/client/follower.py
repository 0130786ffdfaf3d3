"""Reading a topic's partitions as they grow.

    with log.follow("orders", {0: 17, 1: 4}) as records:
        for record in records.until_end(): ...
        while True:
            for record in records.poll(): ...

There is no group: nothing is shared with others, and nothing is committed.
"""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock import clock
from penstock.errors import LogUnreachable, TopicNotFound
from penstock.events.record import Record
from penstock.log.client.connection import logger, meaning, receive, record_of, settings

_ROUND = 0.5  # seconds; records end a round at once
_LOOK = 2.0  # seconds of silence before it looks at the topic itself, and between two looks
_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}


class Follower:
    """Belongs to one thread. Records of a partition come in order; partitions are interleaved.

    Where records are trimmed before they were read, it goes on with the first that is left. It
    survives a restart of the server.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        offsets: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        grow: bool,
        time_limit: float,
    ) -> None:
        """`offsets` are known to lie within their partitions, which end at `ends` at present."""
        self._topic = topic
        self._positions = dict(offsets)
        self._ends = dict(ends)
        self._grow = grow
        self._limit = time_limit
        self._look_at = clock.monotonic() + _LOOK
        self._consumer = Consumer(
            settings(
                address,
                group_id="penstock-follower",  # asked for by the client, and never joined
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="earliest",
                fetch_wait_max_ms=100,
                fetch_queue_backoff_ms=5,
            )
        )
        self._assign(offsets)

    def _assign(self, offsets: Mapping[int, int]) -> None:
        self._consumer.incremental_assign(
            [TopicPartition(self._topic, partition, at) for partition, at in offsets.items()]
        )

    def poll(self, timeout: float = 1.0) -> list[Record]:
        """The records that are there, after waiting up to `timeout` seconds for the first one.

        Raises TopicNotFound some seconds after the topic has been deleted.
        """
        deadline = clock.monotonic() + timeout
        while True:
            left = max(deadline - clock.monotonic(), 0.0)
            records = self._receive(left)
            if records:
                self._look_at = clock.monotonic() + _LOOK
            elif clock.monotonic() > self._look_at:
                self._look()
            if records or not left:
                return records

    def until_end(self) -> Iterator[Record]:
        """The records up to where the partitions ended when the following began.

        Raises LogUnreachable when nothing comes for the log's time limit.
        """
        heard = clock.monotonic()
        while any(self._positions[partition] < end for partition, end in self._ends.items()):
            before = dict(self._positions)
            yield from self._receive(_ROUND)
            if self._positions != before:
                heard = clock.monotonic()
            elif clock.monotonic() - heard > self._limit:
                raise LogUnreachable(
                    f"topic {self._topic!r} cannot be read: nothing came for {self._limit:g} s"
                )

    def _receive(self, timeout: float) -> list[Record]:
        records = []
        for message in receive(self._consumer, timeout):
            error, partition, at = message.error(), message.partition() or 0, message.offset() or 0
            if error is None:
                records.append(record_of(message))
                self._positions[partition] = at + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._positions[partition] = at
            elif error.code() in _PASSING:
                logger.warning("following %s: %s", self._topic, error.str())
            else:
                raise meaning(error, f"topic {self._topic!r} cannot be read")
        return records

    def _look(self) -> None:
        """Whether the topic is still there, and how many partitions it has: nobody else tells."""
        self._look_at = clock.monotonic() + _LOOK
        try:
            # All topics are asked for, as asking for one by its name may make it.
            known = self._consumer.list_topics(timeout=_LOOK).topics
        except KafkaException:
            return  # the server is away for a while
        if self._topic not in known:
            raise TopicNotFound(f"topic {self._topic!r} is gone", hint="it was deleted meanwhile")
        if self._grow:
            new = known[self._topic].partitions.keys() - self._positions.keys()
            self._positions.update(dict.fromkeys(new, 0))
            self._assign(dict.fromkeys(new, 0))

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
