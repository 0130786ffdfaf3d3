"""A member of a consumer group: the records of the partitions that are its share.

    with log.subscribe("billing", ["orders"]) as records:
        for record in records:
            try:
            self._check_topics(names, address)
        except BaseException:
            self._consumer.close()
            raise
        self._consumer.subscribe(
            names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _check_topics(self, names: Sequence[str], address: str) -> None:
        with meaningful(f"no log answers at {address}"):
            known = self._consumer.list_topics(timeout=_FIRST_CONTACT).topics
        for name in names:
            if name not in known:
                raise TopicNotFound(
                    f"there is no topic {name!r}", hint="create it first, or look for a typing error"
                )

    @property
    def assignment(self) -> frozenset[Place]:
        """The partitions, as (topic, number), that are this member's share at present.

        With `start="latest"`, whatever is appended to a partition once it shows here is read.
        """
        return frozenset(self._share)

    def __iter__(self) -> Self:
        """Waits for more at the end and goes on until the subscription is closed."""
        return self

    def __next__(self) -> Record:
        while not self._closing.is_set():
            if (record := self._take()) is not None:
                return record
            self._fill(_ROUND)
        raise StopIteration

    def until_end(self) -> Iterator[Record]:
        """The records up to where this member's partitions ended when it first looked.

        A member to which the group gives no partition has none to read.
        """
        ends: dict[Place, int] = {}
        while not self._closing.is_set():
            while (record := self._take()) is not None:
                yield record
            for place in self._share - ends.keys():
                ends[place] = self._end(place)
            if self._joined and all(self._positions.get(p, -1) >= ends[p] for p in self._share):
                return
            self._fill(_ROUND)

    def poll(self, timeout: float = 1.0) -> list[Record]:
        """The records that are there, after waiting up to `timeout` seconds for the first one."""
        if self._closing.is_set():
            raise LogClosed(f"this subscription of group {self._group!r} has been closed")
        deadline = clock.monotonic() + timeout
        records: list[Record] = []
        while not self._closing.is_set():
            while (record := self._take()) is not None:
                records.append(record)
            left = deadline - clock.monotonic()
            if records or left < 0:
                break
            self._fill(min(left, _ROUND))
        return records

    def commit(self) -> None:
        """Commits all that has been handed out of the partitions that are this member's now.

        Those that have gone to another member are left out: it may have handed out more already.
        """
        deadline = clock.monotonic() + _PATIENCE
        while self._positions:
            try:
                with self._client_lock:
                    done = self._consumer.commit(
                        offsets=[TopicPartition(*at) for at in self._next_offsets()],
                        asynchronous=False,
                    )
                error = next((each.error for each in done if each.error), None)
            except KafkaException as failed:
                error = failed.args[0]
            if error is None:
                return
            if error.code() not in _UNSETTLED or clock.monotonic() > deadline:
                raise meaning(error, f"the offsets of group {self._group!r} are not committed")
            self._fill(_ROUND)

    def close(self) -> None:
        """Ends the iteration and leaves the group, committing nothing.

        While a thread is in the subscription's `with` block, leaving is up to the end of the block.
        """
        self._closing.set()
        if not self._in_block:
            self._leave()
            records.commit()

Every record is delivered at least once. What has been handed out is committed by `commit`, and
by the end of a `with` block that is left without an exception; never on its own. A member that
joins the group, or takes over, begins where the group has last committed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from threading import Event, Lock
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock import clock
from penstock.errors import InvalidInput, LogClosed, LogUnreachable, TopicNotFound
from penstock.events.record import Record
from penstock.log.connection import logger, meaning, meaningful, receive, record_of, settings
from penstock.log.contract import Start

_ROUND = 0.1  # seconds until a waiting thread looks up; records end a round at once
_FIRST_CONTACT = 5.0
_PATIENCE = 30.0  # seconds for an answer from the log

# The group is being arranged anew, or its coordinator is: worth another try once that is over.
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

Place = tuple[str, int]


class Subscription:
    """Belongs to one thread; `close` alone may be called from another.

    The member joins, and takes part in sharing out the partitions, whenever it is asked for
    records: one that is not asked for five minutes loses its share to the others.
    """

    def __init__(
        self, address: str, group: str, topics: Sequence[str], *, start: Start = "earliest"
    ) -> None:
        """Raises TopicNotFound, and LogUnreachable when nothing answers within a few seconds."""
        if not group:
            raise InvalidInput("a group needs a name")
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names:
            raise InvalidInput(f"group {group!r} needs a topic to read")
        self._group = group
        self._from_end = start == "latest"
        self._queue: deque[Message] = deque()
        self._share: set[Place] = set()
        self._joined = False
        self._positions: dict[Place, int] = {}
        self._closing = Event()
        self._in_block = False
        self._client_lock = Lock()
        self._consumer = Consumer(
            settings(
                address,
                group_id=group,
                # Members keep their partitions, and their place in them, while others come and go.
                partition_assignment_strategy="cooperative-sticky",
                heartbeat_interval_ms=500,
                session_timeout_ms=10_000,
                enable_auto_commit=False,
                enable_partition_eof=True,
                # Where records were trimmed before they were read, go on with the first that is left.
                auto_offset_reset="earliest",
                fetch_wait_max_ms=100,
                fetch_queue_backoff_ms=5,
                queued_min_messages=1_000_000,
            )
            | {"logger": logger, "log_level": 4},
        )
        try:
            self._check_topics(names, address)
        except BaseException:
            self._consumer.close()
            raise
        self._consumer.subscribe(
            names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _check_topics(self, names: Sequence[str], address: str) -> None:
        with meaningful(f"no log answers at {address}"):
            known = self._consumer.list_topics(timeout=_FIRST_CONTACT).topics
        for name in names:
            if name not in known:
                raise TopicNotFound(
                    f"there is no topic {name!r}", hint="create it first, or look for a typing error"
                )

    @property
    def assignment(self) -> frozenset[Place]:
        """The partitions, as (topic, number), that are this member's share at present.

        With `start="latest"`, whatever is appended to a partition once it shows here is read.
        """
        return frozenset(self._share)

    def __iter__(self) -> Self:
        """Waits for more at the end and goes on until the subscription is closed."""
        return self

    def __next__(self) -> Record:
        while not self._closing.is_set():
            if (record := self._take()) is not None:
                return record
            self._fill(_ROUND)
        raise StopIteration

    def until_end(self) -> Iterator[Record]:
        """The records up to where this member's partitions ended when it first looked.

        A member to which the group gives no partition has none to read.
        """
        ends: dict[Place, int] = {}
        while not self._closing.is_set():
            while (record := self._take()) is not None:
                yield record
            for place in self._share - ends.keys():
                ends[place] = self._end(place)
            if self._joined and all(self._positions.get(p, -1) >= ends[p] for p in self._share):
                return
            self._fill(_ROUND)

    def poll(self, timeout: float = 1.0) -> list[Record]:
        """The records that are there, after waiting up to `timeout` seconds for the first one."""
        if self._closing.is_set():
            raise LogClosed(f"this subscription of group {self._group!r} has been closed")
        deadline = clock.monotonic() + timeout
        records: list[Record] = []
        while not self._closing.is_set():
            while (record := self._take()) is not None:
                records.append(record)
            left = deadline - clock.monotonic()
            if records or left < 0:
                break
            self._fill(min(left, _ROUND))
        return records

    def commit(self) -> None:
        """Commits all that has been handed out of the partitions that are this member's now.

        Those that have gone to another member are left out: it may have handed out more already.
        """
        deadline = clock.monotonic() + _PATIENCE
        while self._positions:
            try:
                with self._client_lock:
                    done = self._consumer.commit(
                        offsets=[TopicPartition(*at) for at in self._next_offsets()],
                        asynchronous=False,
                    )
                error = next((each.error for each in done if each.error), None)
            except KafkaException as failed:
                error = failed.args[0]
            if error is None:
                return
            if error.code() not in _UNSETTLED or clock.monotonic() > deadline:
                raise meaning(error, f"the offsets of group {self._group!r} are not committed")
            self._fill(_ROUND)

    def close(self) -> None:
        """Ends the iteration and leaves the group, committing nothing.

        While a thread is in the subscription's `with` block, leaving is up to the end of the block.
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
        self._in_block = False
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def _leave(self) -> None:
        with self._client_lock:
            self._consumer.close()

    def _fill(self, timeout: float) -> None:
        """Queues what comes within `timeout` seconds, and lets the group share out partitions."""
        with self._client_lock, meaningful(f"group {self._group!r} cannot read"):
            self._queue.extend(receive(self._consumer, timeout))

    def _take(self) -> Record | None:
        """The next record of the queue, from here on counted as handed out."""
        while self._queue:
            message = self._queue.popleft()
            error = message.error()
            place = (message.topic() or "", message.partition() or 0)
            if error is None:
                self._positions[place] = (message.offset() or 0) + 1
                return record_of(message)
            if error.code() == KafkaError._PARTITION_EOF:
                self._positions[place] = message.offset() or 0
            elif error.fatal() or not error.retriable()
                raise meaning(error, f"group {self._group!r} cannot read")
        return None
