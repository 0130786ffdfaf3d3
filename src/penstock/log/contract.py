"""What every log can do, wherever it lives: in this process, in memory, or behind an address.

with Log.open("penstock-data") as log:
    log.create("orders", partitions=4)
    log.append("orders", [Record(key=b"7", value=b"...")])
    for record in log.read("orders", 0, 0): ...
    with log.subscribe("billing", ["orders"]) as records:
        for record in records: ...
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self
from uuid import UUID

from penstock.events.record import Position, Record
from penstock.log.policy import Setting, TopicPolicy

if TYPE_CHECKING:
    from penstock.log.client.follower import Follower
    from penstock.log.client.subscription import Subscription
    from penstock.log.writer import Expected, Writer

Start = Literal["earliest", "latest"]


class Bounds(NamedTuple):
    """The offsets a partition holds: `start` is the first, `end` the one after the last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: UUID
    policy: TopicPolicy
    partitions: tuple[Bounds, ...]


class GroupLag(NamedTuple):
    """Where a group stands in one partition; `committed` is -1 when it has not committed there."""

    topic: str
    partition: int
    committed: int
    end: int
    member: str

    @property
    def lag(self) -> int:
        return self.end - max(self.committed, 0)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    name: str
    state: str
    members: tuple[str, ...]
    lags: tuple[GroupLag, ...]


class Log(ABC):
    @staticmethod
    def open(path: str | Path) -> "Log":
        """The log in this folder, owned by this process until `close`; made when it is missing.

        Raises LogLocked, with the owner's process id and address, when another process has it.
        """
        from penstock.log.embedded import EmbeddedLog

        return EmbeddedLog(Path(path))

    @staticmethod
    def memory() -> "Log":
        """A log without a folder, gone when it is closed."""
        from penstock.log.embedded import EmbeddedLog

        return EmbeddedLog(None)

    @staticmethod
    def connect(address: str, *, time_limit: float = 30.0) -> "Log":
        """The log served at `host:port`, by penstock or by Apache Kafka.

        `time_limit` bounds each call, in seconds.
        """
        from penstock.log.client.remote import RemoteLog

        return RemoteLog(address, time_limit=time_limit)

    @staticmethod
    def join(path: str | Path) -> "Log":
        """The log of this folder, through the server that owns it; one is started if need be."""
        from penstock.log.owner import find_or_start

        return Log.connect(find_or_start(Path(path)))

    @abstractmethod
    def create(self, topic: str, *, partitions: int = 1, **policy: Setting) -> None:
        """Makes a topic; the settings are those of TopicPolicy. Raises TopicExists."""

    @abstractmethod
    def alter(self, topic: str, *, partitions: int | None = None, **policy: Setting | None) -> None:
        """Changes settings, None putting one back to its default; grows to `partitions`."""

    @abstractmethod
    def delete(self, topic: str) -> None: ...

    @abstractmethod
    def topics(self) -> list[str]:
        """The names of all topics, sorted, without the log's internal ones."""

    @abstractmethod
    def describe(self, topic: str) -> TopicDescription: ...

    @abstractmethod
    def append(
        self, topic: str, records: Iterable[Record], *, expected: "Expected | None" = None
    ) -> list[Position]:
        """Appends and returns where each record stands, in order, once all are durable.

        A record goes to its own `partition` if it has one, else where the hash of its key says
        (murmur2, as Kafka's Java clients do), else with its neighbours to one partition in turn.
        Records for one partition are stored in the order given; across partitions the call is not
        atomic: when it raises, some partitions may have theirs.

        With `expected`, all records go to one partition, whole or not at all, and only if its last
        offset is the one expected, or with `{key: offset}` the last offset of each of these keys
        in it; -1 is where there must be none. Raises VersionConflict otherwise, and InvalidInput
        when the records go to several partitions. Apache Kafka cannot do that: LogError.
        """

    @abstractmethod
    def open_writer(self, name: str) -> "Writer":
        """A writer, whose batches are stored once each; all older ones of the name are fenced.

        Not offered by Apache Kafka: LogError.
        """

    @abstractmethod
    def append_times(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[int, int]]:
        """When the records from `start` to before `end` were appended: offsets and milliseconds.

        Each pair holds from its offset on, up to the next one's, and is right within a second. The
        first may stand before `start`; none is there where nothing is known of the time. Not
        offered by Apache Kafka: LogError.
        """

    @abstractmethod
    def read(
        self, topic: str, partition: int, offset: int, *, limit: int | None = None
    ) -> Iterator[Record]:
        """The records from `offset` to the end as it stands now, at most `limit` of them.

        Raises OffsetOutOfRange below the start or beyond the end, at the first record.
        """

    @abstractmethod
    def follow(self, topic: str, offsets: Mapping[int, int], *, grow: bool = False) -> "Follower":
        """The records of these partitions, each from its offset on, and then those to come.

        With `grow`, partitions that the topic gets later are followed as well, from their start.
        Raises OffsetOutOfRange below the start or beyond the end of a partition.
        """

    @abstractmethod
    def bounds(self, topic: str, partition: int) -> Bounds: ...

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        """The first offset whose record is as late as `timestamp` (milliseconds), or the end."""

    @abstractmethod
    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Forgets the records before `offset`."""

    @abstractmethod
    def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest"
    ) -> "Subscription":
        """Joins the group, whose members share the partitions and take over from one that goes.

        `start` is where the group begins in a partition in which it has not committed yet.
        """

    @abstractmethod
    def groups(self) -> list[str]: ...

    @abstractmethod
    def describe_group(self, group: str) -> GroupDescription: ...

    @abstractmethod
    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Sets a group's next offsets by (topic, partition); GroupNotEmpty while it has members."""

    @abstractmethod
    def delete_group(self, group: str) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
