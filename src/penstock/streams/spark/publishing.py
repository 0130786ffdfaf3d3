"""Publishing a batch of records once, however often it is asked for."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from penstock.events.batch import encode
from penstock.log.client.direct import Direct
from penstock.log.writer import Exact, Pen, Piece
from penstock.streams.source.punctuation import punctuation

if TYPE_CHECKING:
    from penstock.streams.spark.sink import SinkSpec

_TIME_LIMIT = 60.0


class Publisher(Protocol):
    def publish(self, batch: int, records: Mapping[int, bytes], promise: int | None) -> None:
        """Publishes the record batches of each partition, unless that was done before.

        `promise` is the node's clock, in microseconds, which every partition is told. Raises
        WriterFenced when another process runs the node meanwhile.
        """


def publisher_for(spec: "SinkSpec") -> Publisher:
    if spec.log.startswith("kafka://"):
        from penstock.streams.spark.kafka_publishing import KafkaPublisher

        return KafkaPublisher(spec.log, spec.topic, spec.partitions, spec.writer)
    pen = Pen(spec.writer, spec.epoch)
    return LogPublisher(_connected(spec.log), spec.topic, spec.partitions, pen)


@lru_cache(maxsize=16)
def _connected(address: str) -> Exact:
    """Kept between batches by the process that commits."""
    return Direct(address, _TIME_LIMIT)


class LogPublisher:
    """By a writer of our log: each partition notes the writer's last batch with its records."""

    def __init__(self, log: Exact, topic: str, partitions: int, pen: Pen) -> None:
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._pen = pen

    def publish(self, batch: int, records: Mapping[int, bytes], promise: int | None) -> None:
        content = dict(records)
        if promise is not None:
            said = encode([punctuation(self._pen.name, promise)])
            content = {each: content.get(each, b"") + said for each in range(self._partitions)}
        pieces = [
            Piece(self._topic, partition, batches, self._pen, batch)
            for partition, batches in content.items()
        ]
        if pieces:
            self._log.store(pieces)
