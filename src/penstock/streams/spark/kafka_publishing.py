"""Publishing to Apache Kafka: a transaction holds a batch and its number."""

import json
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock import clock
from penstock.errors import LogUnreachable, WriterFenced
from penstock.events.batch import decode, read_header
from penstock.events.record import Record
from penstock.log.client.connection import meaning, meaningful, settings
from penstock.streams.source.punctuation import punctuation
from penstock.streams.spark.publishing import Appended, Written

_TIME_LIMIT = 60.0
_BATCH_BYTES = 1_000_000
_LARGEST = 1_000_000_000  # bytes of a record that the client sends: topics have limits of their own
_BACK = 16  # records of the control topic that are read at first, markers among them


class KafkaPublisher:
    """By a transaction for each batch, which holds all that the query wrote and the batch's number.

    The numbers stand in a compacted topic of the query's own. Beginning transactions fences every
    other process that does the same for this query; so what the control topic says after that
    stays true until this process is fenced itself.
    """

    def __init__(
        self,
        address: str,
        query: str,
        writers: Mapping[str, str],
        *,
        batch_bytes: int | None = None,
    ) -> None:
        """`query` names the query among all that write to this Kafka, and `writers` its nodes. More
        than `batch_bytes` are not sent at once, unless in one record."""
        self._address = address
        self._query = query
        self._writers = writers
        if not topic_exists(address, control_topic(query)):
            create_control_topic(address, query)
        self._producer = Producer(
            settings(
                address,
                transactional_id=f"penstock.{query}",
                linger_ms=5,
                batch_size=min(batch_bytes or _BATCH_BYTES, _BATCH_BYTES),
                message_max_bytes=_LARGEST,
                queue_buffering_max_messages=1_000_000,
            )
        )
        with meaningful(f"transactions of {query!r} cannot begin"):
            self._producer.init_transactions(_TIME_LIMIT)
        # By partition: the last offset of what this batch has stored there, and how many records.
        self._stored: dict[tuple[str, int], tuple[int, int]] = {}
        self._last = self._last_batch()

    @property
    def _control(self) -> str:
        return control_topic(self._query)

    def last_batch(self, node: str, topic: str, partitions: int) -> int:
        return self._last

    def publish(self, batch: int, written: Sequence[Written]) -> Appended:
        if batch <= self._last or not written:
            return {}
        producer = self._producer
        self._stored = {}
        try:
            producer.begin_transaction()
            for each in written:
                self._produce(each)
            producer.produce(self._control, json.dumps({"batch": batch}).encode(), self._query)
            producer.flush(_TIME_LIMIT)  # committing alone would not say where records stand
            producer.commit_transaction(_TIME_LIMIT)
        except (KafkaException, SystemError) as failed:
            # What is raised while callbacks are called, Python wraps as a fault of theirs.
            cause = failed if isinstance(failed, KafkaException) else failed.__cause__
            if not isinstance(cause, KafkaException):
                raise
            error = cause.args[0]
            if error.fatal():
                raise WriterFenced(
                    f"{self._query!r} was fenced: {error.str()}",
                    hint="another process runs this app; stop one of them",
                ) from failed
            raise meaning(error, f"batch {batch} of {self._query!r} was not published") from failed
        self._last = batch
        return self._appended()

    def _appended(self) -> Appended:
        """Asking for the ends of topics would be too early: Kafka ends each transaction with a mark
        in every partition, and writes these when it has said already that all is committed."""
        appended: Appended = {}
        for (topic, partition), (last, count) in self._stored.items():
            # When others have written in between, the range begins too late to follow on anything.
            appended.setdefault(topic, {})[partition] = range(last + 1 - count, last + 2)
        return appended

    def _note(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            place = str(message.topic()), int(message.partition() or 0)
            last, count = self._stored.get(place, (-1, 0))
            self._stored[place] = max(last, offset), count + 1

    def _produce(self, written: Written) -> None:
        for partition, contents in written.records.items():
            for content in contents:
                for record in _records(memoryview(content)):
                    self._send(written.topic, record, partition)
        if written.promise is not None:
            for partition in range(written.partitions):
                said = punctuation(self._writers[written.node], written.promise)
                self._send(written.topic, said, partition)

    def _send(self, topic: str, record: Record, partition: int) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    timestamp=clock.now_ms() if record.timestamp is None else record.timestamp,
                    headers=list(record.headers),
                    on_delivery=self._note,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def close(self) -> None:
        """What was begun and not committed is aborted by the broker."""

    def _last_batch(self) -> int:
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
            with meaningful(f"the control topic of {self._query!r} cannot be read"):
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


def control_topic(query: str) -> str:
    return f"penstock-commits-{query}"


def topic_exists(address: str, topic: str) -> bool:
    admin = AdminClient(settings(address))
    with meaningful("the topics of Kafka cannot be listed"):
        return topic in admin.list_topics(timeout=_TIME_LIMIT).topics


def create_control_topic(address: str, query: str) -> None:
    """Of one partition and compacted; as many replicas as the broker gives by itself."""
    name = control_topic(query)
    topic = NewTopic(name, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient(settings(address))  # which has to be there until it is done
    made = admin.create_topics([topic])
    with meaningful(f"the control topic of {query!r} cannot be made"):
        made[name].result(_TIME_LIMIT)
