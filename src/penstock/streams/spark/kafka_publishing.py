"""Publishing to Apache Kafka: a transaction holds a batch and its number."""

import json
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock import clock
from penstock.errors import LogUnreachable, WriterFenced
from penstock.events.batch import decode, read_header
from penstock.events.record import Record
from penstock.log.client.connection import meaning, meaningful, settings
from penstock.streams.source.punctuation import punctuation

_TIME_LIMIT = 60.0
_BACK = 16  # records of the control topic that are read at first, markers among them


class KafkaPublisher:
    """By a transaction that holds the batch and its number.

    The numbers stand in a compacted topic of the node's own. Beginning transactions fences every
    other process that does the same for this node; so what the control topic says after that
    stays true until this transaction ends, or this process is fenced itself.
    """

    def __init__(self, address: str, topic: str, partitions: int, writer: str) -> None:
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._writer = writer

    @property
    def _control(self) -> str:
        return control_topic(self._writer)

    def publish(self, batch: int, records: Mapping[int, bytes], promise: int | None) -> None:
        producer = Producer(
            settings(
                self._address,
                transactional_id=f"penstock.{self._writer}",
                linger_ms=20,
                batch_size=1_000_000,
                queue_buffering_max_messages=1_000_000,
            )
        )
        try:
            producer.init_transactions(_TIME_LIMIT)
            if batch <= self.last_batch():
                return
            producer.begin_transaction()
            self._produce(producer, records, promise)
            producer.produce(self._control, json.dumps({"batch": batch}).encode(), self._writer)
            producer.commit_transaction(_TIME_LIMIT)
        except KafkaException as failed:
            error = failed.args[0]
            if error.fatal():
                raise WriterFenced(
                    f"{self._writer!r} was fenced: {error.str()}",
                    hint="another process runs this node; stop one of them",
                ) from failed
            raise meaning(error, f"batch {batch} of {self._writer!r} was not published") from failed

    def _produce(
        self, producer: Producer, records: Mapping[int, bytes], promise: int | None
    ) -> None:
        for partition, content in records.items():
            for record in _records(memoryview(content)):
                self._send(producer, record, partition)
        if promise is not None:
            for partition in range(self._partitions):
                self._send(producer, punctuation(self._writer, promise), partition)

    def _send(self, producer: Producer, record: Record, partition: int) -> None:
        while True:
            try:
                producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    partition,
                    timestamp=clock.now_ms() if record.timestamp is None else record.timestamp,
                    headers=list(record.headers),
                )
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def last_batch(self) -> int:
        """The number of the last batch whose transaction was committed, -1 before the first."""
        consumer = Consumer(
            settings(
                self._address,
                group_id="penstock-sink",
                enable_auto_commit=False,
                enable_partition_eof=True,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
            )
        )
        place = TopicPartition(self._control, 0)
        try:
            with meaningful(f"the control topic of {self._writer!r} cannot be read"):
                first, end = consumer.get_watermark_offsets(place, timeout=_TIME_LIMIT)
                back = _BACK
                while True:
                    start = max(first, end - back)
                    found = self._batches(consumer, start)
                    if found or start <= first:
                        return max(found, default=-1)
                    back *= 8  # transactions that were aborted stand in between
        finally:
            consumer.close()

    def _batches(self, consumer: Consumer, start: int) -> list[int]:
        consumer.assign([TopicPartition(self._control, 0, start)])
        found: list[int] = []
        give_up = clock.monotonic() + _TIME_LIMIT
        while clock.monotonic() < give_up:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                raise KafkaException(error)
            found.append(json.loads(message.value() or b"{}")["batch"])
        raise LogUnreachable(
            f"{self._control} was not read to its end in {_TIME_LIMIT:.0f} s",
            hint="is Kafka running?",
        )


def _records(batches: memoryview) -> Iterator[Record]:
    """One batch at a time: those of several tasks all begin at offset 0."""
    at = 0
    while at < len(batches):
        end = at + read_header(batches, at).size
        yield from decode(batches[at:end])
        at = end


def control_topic(writer: str) -> str:
    return f"penstock-commits-{writer}"


def create_control_topic(address: str, writer: str) -> None:
    """Of one partition and compacted; as many replicas as the broker gives by itself."""
    name = control_topic(writer)
    topic = NewTopic(name, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient(settings(address))  # which has to be there until it is done
    made = admin.create_topics([topic])
    with meaningful(f"the control topic of {writer!r} cannot be made"):
        made[name].result(_TIME_LIMIT)
