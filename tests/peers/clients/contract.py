"""What the suite asks of a Kafka client, whichever it is.

A client that cannot do a thing leaves the method as it is here; `able` then says so.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.events.record import Record
from penstock.testing import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RANGE, COOPERATIVE = "range", "cooperative-sticky"
HEARTBEAT_MS = 300  # so that a rebalance is heard of soon
SESSION_MS = 10_000


class Refused(Exception):
    """The client reported that it could not do what it was asked."""


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How records are sent.

    `largest` is the most that the client itself lets through, in bytes; `patience` how long it
    tries, in seconds.
    """

    codec: str = "none"
    acks: str = "all"
    idempotent: bool = False
    largest: int = 1_000_000
    patience: float = 30.0

    @property
    def patience_ms(self) -> int:
        return round(self.patience * 1_000)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How records are read: with a group, or all partitions by oneself from `start`."""

    group: str | None = None
    start: str = "earliest"
    count: int | None = None
    strategy: str = RANGE
    instance: str | None = None


SOMEHOW = Sending()


class Feed(ABC):
    """Records on their way to a topic; leaving it waits until all have arrived."""

    @abstractmethod
    def send(self, record: Record) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Raises Refused when any record was refused."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Follower:
    """A consumer that reads on a thread of its own, until it has its count or is stopped."""

    def __init__(self, read: Callable[["Follower"], None], count: int | None) -> None:
        self.received: list[Record] = []
        self._count = count
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(read,))
        self._thread.start()

    def _run(self, read: Callable[["Follower"], None]) -> None:
        try:
            read(self)
        except BaseException as error:
            self._failure = error

    @property
    def full(self) -> bool:
        return self._count is not None and len(self.received) >= self._count

    @property
    def done(self) -> bool:
        return self.full or self._stopped.is_set()

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.received]

    def await_values(self, *values: bytes, within: float = 40.0) -> None:
        """Waits until each of these has been received."""
        wait_until(
            lambda: self._failure or not set(values) - set(self.values()),
            within=within,
            what=f"{len(values)} values, of which there are {len(self.received)}",
        )
        if self._failure is not None:
            raise self._failure

    def finish(self, within: float = 40.0) -> list[Record]:
        """Waits until it has its count and has left."""
        self._thread.join(within)
        if self._thread.is_alive():
            self.stop()
            raise TimeoutError(f"{len(self.received)} records of {self._count}: {self.values()}")
        if self._failure is not None:
            raise self._failure
        return self.received

    def stop(self) -> None:
        """Lets it commit and leave its group."""
        self._stopped.set()
        self._thread.join(40)
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Client(ABC):
    name: str
    dates: bool = True
    """Whether it can give a record a time of its own."""
    cooperates: bool = False
    """Whether it can hand over partitions one by one."""
    endures: bool = False
    """Whether it waits for a server that is away."""

    def __init__(self, address: str) -> None:
        self.address = address

    @classmethod
    def able(cls, *things: str) -> bool:
        return all(getattr(cls, each) is not getattr(Client, each) for each in things)

    # Records

    @abstractmethod
    def feed(self, topic: str, how: Sending) -> Feed: ...

    @abstractmethod
    def read(self, topic: str, how: Reading, into: Follower) -> None:
        """Takes records into the follower until it is done, then commits and leaves."""

    def produce(self, topic: str, records: Iterable[Record], how: Sending = SOMEHOW) -> None:
        with self.feed(topic, how) as feed:
            for record in records:
                feed.send(record)

    def follow(self, topic: str, how: Reading) -> Follower:
        return Follower(lambda follower: self.read(topic, how, follower), how.count)

    def consume(self, topic: str, count: int, *, group: str | None = None) -> list[Record]:
        """So many records, in the order in which they came; a group goes on where it was."""
        return self.follow(topic, Reading(group=group, count=count)).finish()

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        """The first offset at this time or later, else the end; -2 is the start, -1 the end."""

    # Topics

    @abstractmethod
    def topics(self) -> dict[str, int]:
        """The number of partitions of every topic."""

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        raise NotImplementedError

    def delete(self, topic: str) -> None:
        raise NotImplementedError

    def add_partitions(self, topic: str, total: int) -> None:
        raise NotImplementedError

    def trim(self, topic: str, partition: int, before: int) -> None:
        raise NotImplementedError

    def settings(self, topic: str) -> dict[str, str]:
        raise NotImplementedError

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        raise NotImplementedError

    # Groups

    def groups(self) -> set[str]:
        raise NotImplementedError

    def members(self, group: str) -> int:
        raise NotImplementedError

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        raise NotImplementedError

    def lag(self, group: str) -> dict[tuple[str, int], int]:
        """How many records the group has yet to read in each partition."""
        committed = self.committed(group)
        return {place: self.offset_at(*place, -1) - at for place, at in committed.items()}

    def rewind(self, group: str, topic: str) -> None:
        """Puts the group back to the start of all partitions of the topic."""
        raise NotImplementedError

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def transact(self, topic: str) -> None:
        """Tries to produce in a transaction; raises Refused."""
        raise NotImplementedError
