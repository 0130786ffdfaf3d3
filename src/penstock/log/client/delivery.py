"""Appending over the wire: one producer for all threads, each waiting for its own records."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.events.record import Position, Record
from penstock.log.client.connection import meaning, settings

_ROUND = 0.1  # seconds; deliveries end a round at once


class _Parcel:
    """The records of one call and what has been reported about them."""

    def __init__(self, topic: str, size: int) -> None:
        self.positions = [Position(topic, -1, -1)] * size
        self.sent = 0
        self.reported = 0
        self.failed = 0
        self.error: KafkaError | None = None

    def report(self, index: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.positions[index] = Position(
                self.positions[index].topic,
                message.partition(),  # type: ignore[arg-type]
                message.offset(),  # type: ignore[arg-type]
            )
        else:
            self.fail(error)
        self.reported += 1

    def fail(self, error: KafkaError, count: int = 1) -> None:
        self.failed += count
        self.error = self.error or error

    def settled(self) -> bool:
        return self.reported >= self.sent


class SharedProducer:
    """An idempotent producer: what it retries is stored once, in order, on every replica.

    Batches hold up to `batch_bytes`, unless a single record is larger. `time_limit` in seconds is
    how long a record may take. Once `broken`, it refuses everything and must be replaced.
    """

    def __init__(self, address: str, *, batch_bytes: int, time_limit: float) -> None:
        self._producer = Producer(
            settings(
                address,
                enable_idempotence=True,
                acks="all",
                linger_ms=0,
                batch_size=batch_bytes,
                # The topic's own limit decides, not the client's.
                message_max_bytes=1_000_000_000,
                message_timeout_ms=round(time_limit * 1_000),
                topic_metadata_propagation_max_ms=1_000,
            )
        )
        self._limit = time_limit
        self._round = Condition()
        self._serving = False
        self.broken = False

    def append(
        self, topic: str, records: Sequence[Record], places: Sequence[int]
    ) -> list[Position]:
        parcel = _Parcel(topic, len(records))
        for record, place in zip(records, places, strict=True):
            try:
                self._send(topic, record, place, parcel)
            except KafkaException as refused:
                parcel.fail(refused.args[0], len(records) - parcel.sent)
                break
            parcel.sent += 1
        while not parcel.settled():
            self._serve(parcel.settled)
        if parcel.error is not None:
            self.broken |= parcel.error.fatal() or parcel.error.code() == KafkaError._FATAL
            raise meaning(
                parcel.error,
                f"{parcel.failed} of {len(records)} records for topic {topic!r} are not confirmed",
            )
        return parcel.positions

    def _send(self, topic: str, record: Record, place: int, parcel: _Parcel) -> None:
        report = partial(parcel.report, parcel.sent)
        looked_again = False
        while True:
            try:
                return self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    place,
                    on_delivery=report,
                    timestamp=record.timestamp or 0,
                    headers=list(record.headers),
                )
            except BufferError:  # the queue is full until some of it has been delivered
                self._serve(lambda: False)
            except KafkaException as refused:
                unknown = refused.args[0].code() == KafkaError._UNKNOWN_PARTITION
                if not unknown or looked_again:
                    raise
                # The producer knows the topic as it was before it grew.
                self._producer.list_topics(timeout=self._limit)
                looked_again = True

    def _serve(self, settled: Callable[[], bool]) -> None:
        """Lets reports come in for one round, in this thread or in the one that is at it already.

        One thread at a time serves the reports of all. A second one in the client would be left
        waiting there when the first takes the last report that it is waiting for.
        """
        with self._round:
            if settled():
                return
            if self._serving:
                self._round.wait()
                return
            self._serving = True
        try:
            self._producer.poll(_ROUND)
        finally:
            with self._round:
                self._serving = False
                self._round.notify_all()

    def close(self) -> None:
        self._producer.close()
