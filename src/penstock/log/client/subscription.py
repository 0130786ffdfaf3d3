"""A member of a consumer group: the records of the partitions that are its share.

    with log.subscribe("billing", ["orders"]) as records:
        for record in records:
            charge(record)
            records.commit()

Every record is delivered at least once. What has been handed out is committed by `commit`, and
by the end of a `with` block that is left without an exception; never on its own. A member that
takes over a partition begins where the group has last committed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Event, Lock
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock import clock
from penstock.errors import InvalidInput, LogClosed, TopicNotFound
from penstock.events.record import Record
from penstock.log.client.connection import logger, meaning, meaningful, receive, record_of, settings
from penstock.log.contract import Start

_ROUND = 0.1  # seconds until a waiting thread looks up; records end a round at once
_BLINK = 0.001  # seconds, for what does not end a round by itself
_FIRST_CONTACT = 5.0  # seconds for the first answer of the log
_ANSWER = 1.0  # seconds for one that can be asked for again
_LOOK = 3.0  # seconds of silence before it looks at the topics, and between two looks
_PATIENCE = 30.0  # seconds for any other

# The group is being arranged anew, or its server is: worth another try when that is over.
_UNSETTLED = {
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
}
# Reported in passing: the client deals with these itself.
_PASSING = {*_UNSETTLED, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED}

Place = tuple[str, int]


class Subscription:
    """Belongs to one thread; `close` alone may be called from another.

    The member joins, and takes part in sharing out the partitions, while it is being asked for
    records: one that is not asked for five minutes loses its share to the others. Asking raises
    TopicNotFound some seconds after a topic has been deleted.
    """

    def __init__(
        self, address: str, group: str, topics: Sequence[str], *, start: Start = "earliest"
    ) -> None:
        """Raises TopicNotFound, and LogUnreachable when nothing answers within a few seconds."""
        self._group = group
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        if not self._group or not self._topics:
            raise InvalidInput(
                "a subscription needs the name of a group and at least one topic",
                hint='such as subscribe("billing", ["orders"])',
            )
        self._from_end = start == "latest"
        self._queue: deque[Message] = deque()
        self._share: set[Place] = set()
        self._joined = False
        self._positions: dict[Place, int] = {}
        self._uncommitted: set[Place] = set()
        self._answers: dict[frozenset[tuple[Place, int]], KafkaError | None] = {}
        self._troubled = False
        self._look_at = clock.monotonic() + _LOOK
        self._closing = Event()
        self._in_block = False
        self._left = False
        self._client = Lock()
        self._consumer = Consumer(
            settings(
                address,
                group_id=group,
                # Members keep their partitions, and their place in them, as others come and go.
                partition_assignment_strategy="cooperative-sticky",
                heartbeat_interval_ms=500,
                session_timeout_ms=10_000,
                enable_auto_commit=False,
                enable_partition_eof=True,
                # Where records were trimmed unread, go on with the first that is left; the
                # client logs a warning.
                auto_offset_reset="earliest",
                fetch_wait_max_ms=100,
                fetch_queue_backoff_ms=5,
                queued_min_messages=1_000_000,
                topic_metadata_refresh_interval_ms=10_000,
            )
            | {"logger": logger, "log_level": 4, "on_commit": self._answered}
        )
        try:
            with meaningful(f"no log answers at {address}"):
                self._check_topics(_FIRST_CONTACT)
        except BaseException:
            self._leave()
            raise
        self._consumer.subscribe(
            self._topics,
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _check_topics(self, timeout: float) -> None:
        known = self._consumer.list_topics(timeout=timeout).topics
        for name in self._topics:
            if name not in known:
                raise TopicNotFound(f"there is no topic {name!r}", hint="create it first")

    @property
    def assignment(self) -> frozenset[Place]:
        """The partitions, as (topic, number), that are this member's share at present.

        With `start="latest"`, whatever is appended to a partition once it shows here is read.
        """
        return frozenset(self._share)

    def __iter__(self) -> Self:
        """Waits for more at the end, and goes on until the subscription is closed."""
        return self

    def __next__(self) -> Record:
        while not self._closing.is_set():
            if (record := self._take()) is not None:
                return record
            self._fill(_ROUND)
        raise StopIteration

    def until_end(self) -> Iterator[Record]:
        """The records up to where this member's partitions ended when it first looked, or more.

        A member to which the group gives no partition has nothing to read.
        """
        ends: dict[Place, int] = {}
        while not self._closing.is_set():
            while (record := self._take()) is not None:
                yield record
            for place in self._share - ends.keys():
                if (end := self._end(place)) is not None:
                    ends[place] = end
            if self._joined and all(
                place in ends and self._positions.get(place, -1) >= ends[place]
                for place in self._share
            ):
                return
            self._fill(_ROUND)

    def poll(self, timeout: float = 1.0) -> list[Record]:
        """The records that are there, after waiting up to `timeout` seconds for the first one."""
        if self._closing.is_set():
            raise self._closed()
        deadline = clock.monotonic() + timeout
        records: list[Record] = []
        while not self._closing.is_set():
            left = 0.0 if self._queue else deadline - clock.monotonic()
            self._fill(min(max(left, 0.0), _ROUND))
            while (record := self._take()) is not None:
                records.append(record)
            if records or clock.monotonic() >= deadline:
                break
        return records

    def commit(self) -> None:
        """Commits all that has been handed out of the partitions that are this member's now.

        Those that went to another member are left out: it has begun where the group had
        committed, and delivers their records again.
        """
        if self._left:
            raise self._closed()
        deadline = clock.monotonic() + _PATIENCE
        while offsets := dict(self._positions):
            error = self._try_commit(offsets, deadline)
            if error is None:
                self._uncommitted -= offsets.keys()
                return
            if error.code() not in _UNSETTLED or clock.monotonic() > deadline:
                raise meaning(error, f"the offsets of group {self._group!r} are not committed")
            self._fill(_ROUND)

    def _try_commit(self, offsets: dict[Place, int], deadline: float) -> KafkaError | None:
        # Sent off and waited for here: the client's own waiting has no limit, and keeps the
        # member from giving up partitions when the group wants them back.
        asked = frozenset(offsets.items())
        self._answers.clear()
        with self._client, meaningful(f"the offsets of group {self._group!r} are not committed"):
            self._consumer.commit(
                offsets=[TopicPartition(*place, offset) for place, offset in asked],
                asynchronous=True,
            )
        while asked not in self._answers:
            if clock.monotonic() > deadline:
                return KafkaError(KafkaError._TIMED_OUT)
            self._fill(_BLINK)
        return self._answers[asked]

    def _answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        asked = frozenset(((each.topic, each.partition), each.offset) for each in partitions)
        errors = [error, *(each.error for each in partitions)]
        self._answers[asked] = next((each for each in errors if each is not None), None)

    def close(self) -> None:
        """Ends the iteration and leaves the group, committing nothing.

        Called during the subscription's `with` block, by whichever thread, it only ends the
        iteration; the end of the block commits and leaves.
        """
        self._closing.set()
        if not self._in_block:
            self._leave()

    def __enter__(self) -> Self:
        self._in_block = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self._in_block = False
            self.close()

    def _closed(self) -> LogClosed:
        return LogClosed(
            f"this subscription of group {self._group!r} has been closed", hint="subscribe again"
        )

    def _leave(self) -> None:
        with self._client:
            if not self._left:
                self._left = True
                self._consumer.close()

    def _fill(self, timeout: float) -> None:
        """Queues what comes within `timeout` seconds, and takes part in sharing out partitions."""
        with self._client, meaningful(f"group {self._group!r} cannot read"):
            if not self._left:
                messages = receive(self._consumer, timeout)
                self._queue.extend(messages)
                if messages:
                    self._look_at = clock.monotonic() + _LOOK
                elif clock.monotonic() > self._look_at:
                    self._look()

    def _look(self) -> None:
        """Asks for the topics: nobody else tells that one was deleted or has grown."""
        self._look_at = clock.monotonic() + _LOOK
        with suppress(KafkaException):  # the server is away for a while
            self._check_topics(_ANSWER)

    def _take(self) -> Record | None:
        """The next record of the queue, from here on counted as handed out."""
        while self._queue:
            message = self._queue.popleft()
            place = (message.topic() or "", message.partition() or 0)
            offset = message.offset() or 0
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._pass_over(error)
            elif place in self._share:
                self._troubled = False
                self._positions[place] = offset + (error is None)
                if error is None:
                    self._uncommitted.add(place)
                    return record_of(message)
        return None

    def _pass_over(self, error: KafkaError) -> None:
        if error.code() not in _PASSING:
            raise meaning(error, f"group {self._group!r} cannot read")
        if not self._troubled:  # told once; while a server is away, the client repeats itself
            logger.warning("group %s: %s", self._group, error.str())
        self._troubled = True

    def _end(self, place: Place) -> int | None:
        """Where the partition ends at present; None while the server is away."""
        try:
            with self._client:
                partition = TopicPartition(*place)
                return self._consumer.get_watermark_offsets(partition, timeout=_ANSWER)[1]
        except KafkaException:
            return None

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._from_end and partitions:
            # Settled now rather than by the first fetch, so that nothing that is appended in
            # between is passed over.
            partitions = consumer.committed(partitions, timeout=_PATIENCE)
            for each in partitions:
                if each.offset < 0:
                    each.offset = consumer.get_watermark_offsets(each, timeout=_PATIENCE)[1]
        consumer.incremental_assign(partitions)
        self._share.update((each.topic, each.partition) for each in partitions)
        self._joined = True

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joined = False  # until the group has said what this member gets instead
        for place in ((each.topic, each.partition) for each in partitions):
            self._share.discard(place)
            self._positions.pop(place, None)
            if place in self._uncommitted and not self._left:
                logger.warning(
                    "group %s: %s/%d is no longer this member's, and what it has handed out from "
                    "there is not committed",
                    *(self._group, *place),
                )
            self._uncommitted.discard(place)
        self._queue = deque(
            message
            for message in self._queue
            if (message.topic(), message.partition()) in self._share
        )
