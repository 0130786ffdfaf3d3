"""Publishing what a batch wrote, once, however often it is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.events.batch import encode
from penstock.log.client.direct import Direct
from penstock.log.writer import Pen, Piece
from penstock.streams.source.punctuation import punctuation

_TIME_LIMIT = 60.0

Appended = dict[str, dict[int, range | None]]
"""By topic and partition, the offsets of what was appended, None where that is not known."""


@dataclass
class Written:
    """What a node wrote in a batch: the record batches of each partition. `promise` is the node's
    clock, in microseconds, which every partition is told, None to tell nothing."""

    node: str
    topic: str
    partitions: int
    records: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    promise: int | None = None


class Publisher(Protocol):
    """Of one query; it fences every other process that runs the same one."""

    def last_batch(self, node: str, topic: str, partitions: int) -> int:
        """The last batch that was published of a node, -1 before the first."""

    def publish(self, batch: int, written: Sequence[Written]) -> Appended:
        """Publishes all of it, but for what was published before. Returns where it stands now.

        Raises WriterFenced when another process runs the query meanwhile.
        """

    def close(self) -> None: ...


class LogPublisher:
    """By a writer of our log for each node: each partition notes the writer's last batch with its
    records."""

    def __init__(self, address: str, writers: Mapping[str, str]) -> None:
        """`writers` are the names that nodes write by."""
        self._log = Direct(address, _TIME_LIMIT)
        self._pens: dict[str, Pen] = {
            node: self._log.open_writer(name) for node, name in writers.items()
        }

    def last_batch(self, node: str, topic: str, partitions: int) -> int:
        pen = self._pens[node]
        return max(self._log.last_batch(pen, topic, number) for number in range(partitions))

    def publish(self, batch: int, written: Sequence[Written]) -> Appended:
        pieces = []
        for each in written:
            pen = self._pens[each.node]
            content = {number: [*some] for number, some in each.records.items()}
            if each.promise is not None:
                said = encode([punctuation(pen.name, each.promise)])
                for number in range(each.partitions):
                    content.setdefault(number, []).append(said)
            pieces += [
                Piece(each.topic, number, b"".join(some), pen, batch)
                for number, some in content.items()
            ]
        appended: Appended = {}
        for piece, stored in zip(pieces, self._log.store(pieces) if pieces else (), strict=True):
            offsets = stored.offsets if stored.is_new else None
            appended.setdefault(piece.topic, {})[piece.partition] = offsets
        return appended

    def close(self) -> None:
        self._log.close()
