"""One measurement, by a client in a process of its own: nothing of one carries over to the next.

    python -m penstock.bench.client MEASURE HOST:PORT TOPIC RECORDS BYTES

prints its figures as JSON. The topic is there already, empty but for what was produced to it here.
"""

import json
import os
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.clock import monotonic, sleep
from penstock.errors import LogError

PARTITIONS = 4
MEGABYTE = 1_000_000
RATE = 1_000  # records a second, end to end

_BATCH = 10_000
_WITHIN = 120.0
_WARM_UP = 0.05  # of the latencies: connections are made, code is compiled
_SENT_AT = struct.Struct("<d")
_PRODUCER = {
    "acks": "all",
    "compression.type": "none",
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 512 * 1024,
}
# With librdkafka's own settings a consumer of small records pauses for a second again and again,
# and a fetch of partitions that are read to their end holds up the others for half a second.
_CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 256 * 1024,
}

Measured = dict[str, float]
"""A measurement's numbers by their unit, or by their percentile (in milliseconds)."""


def produce(address: str, topic: str, records: int, size: int) -> Measured:
    """Everything acknowledged, from the first record handed over to the last answer."""
    producer = _producer(address, linger_ms=5)
    producer.list_topics(topic, timeout=_WITHIN)
    batch: list[dict[str, Any]] = [{"value": os.urandom(size)}] * _BATCH
    began, sent, turn = monotonic(), 0, 0
    while sent < records:
        taken = producer.produce_batch(topic, batch[: records - sent], partition=turn % PARTITIONS)
        sent, turn = sent + taken, turn + 1
        if taken < _BATCH:  # the queue is full
            producer.poll(0.01)
    unanswered = producer.flush(_WITHIN)
    seconds = monotonic() - began
    _check_stored(address, topic, records, unanswered)
    return _speed(records, size, seconds)


def consume(address: str, topic: str, records: int, size: int) -> Measured:
    """Everything that was produced, from asking for it to the last record in Python's hands."""
    consumer = _consumer(address)
    consumer.list_topics(topic, timeout=_WITHIN)
    partitions = _partitions(topic)
    began, received = monotonic(), 0
    consumer.assign(partitions)
    while received < records and monotonic() - began < _WITHIN:
        received += len(consumer.consume(min(_BATCH, records - received), 1.0))
    seconds = monotonic() - began
    # Errors come as messages too. To look at each message would cost more than to fetch it.
    read = sum(max(place.offset, 0) for place in consumer.position(partitions))
    consumer.close()
    if read < records:
        raise LogError(f"{read} of {records} records came within {seconds:.1f} s")
    return _speed(records, size, seconds)


def sync_produce(address: str, topic: str, records: int, size: int) -> Measured:
    """One record at a time: the next is sent when the one before is acknowledged."""
    producer = _producer(address, linger_ms=0)
    value, latencies, unanswered = os.urandom(size), [], 0
    for _ in range(records):
        began = monotonic()
        producer.produce(topic, value, partition=0)
        unanswered += producer.flush(_WITHIN)
        latencies.append(monotonic() - began)
    _check_stored(address, topic, records, unanswered)
    return _percentiles(latencies)


def end_to_end(address: str, topic: str, records: int, size: int) -> Measured:
    """From the producer's hands to the consumer's, at RATE records a second."""
    consumer = _consumer(address)
    consumer.assign(_partitions(topic))
    producer = _producer(address, linger_ms=0)
    # One record in each partition goes ahead, so that all connections stand before it counts.
    for partition in range(PARTITIONS):
        producer.produce(topic, _stamped(size), partition=partition)
    _latencies(consumer, PARTITIONS)
    latencies: list[float] = []
    receiver = threading.Thread(target=lambda: latencies.extend(_latencies(consumer, records)))
    receiver.start()
    began = monotonic()
    for number in range(records):
        producer.produce(topic, _stamped(size), partition=number % PARTITIONS)
        producer.poll(0)
        sleep(max(0.0, began + (number + 1) / RATE - monotonic()))
    producer.flush(_WITHIN)
    receiver.join()
    consumer.close()
    if len(latencies) < records:
        raise LogError(f"{len(latencies)} of {records} records came within {_WITHIN:g} s")
    return _percentiles(latencies)


def _stamped(size: int) -> bytes:
    return _SENT_AT.pack(monotonic()).ljust(size, b".")


def _latencies(consumer: Consumer, records: int) -> list[float]:
    """Seconds from the stamp of each record to its arrival; fewer when they do not come."""
    latencies: list[float] = []
    deadline = monotonic() + _WITHIN
    while len(latencies) < records and monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if error := message.error():
            raise KafkaException(error)
        latencies.append(monotonic() - _SENT_AT.unpack_from(message.value() or b"")[0])
    return latencies


def _producer(address: str, *, linger_ms: int) -> Producer:
    return Producer({"bootstrap.servers": address, "linger.ms": linger_ms, **_PRODUCER})


def _consumer(address: str) -> Consumer:
    return Consumer({"bootstrap.servers": address, **_CONSUMER})


def _partitions(topic: str) -> list[TopicPartition]:
    """All of the topic's, from their start."""
    return [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]


def _check_stored(address: str, topic: str, records: int, unanswered: int) -> None:
    """In place of a callback for each record, which would cost more than to send it."""
    consumer = _consumer(address)
    ends = [consumer.get_watermark_offsets(place, timeout=_WITHIN) for place in _partitions(topic)]
    consumer.close()
    stored = sum(end for _, end in ends)
    if unanswered or stored < records:
        raise LogError(f"of {records} records {stored} are stored, {unanswered} not answered")


def _speed(records: int, size: int, seconds: float) -> Measured:
    return {"MB/s": records * size / MEGABYTE / seconds, "records/s": records / seconds}


def _percentiles(seconds: list[float]) -> Measured:
    ordered = sorted(seconds[int(len(seconds) * _WARM_UP) :])
    return {f"p{q}": ordered[len(ordered) * q // 100] * 1_000 for q in (50, 99)}


MEASURES: dict[str, Callable[[str, str, int, int], Measured]] = {
    "produce": produce,
    "consume": consume,
    "sync produce": sync_produce,
    "end to end": end_to_end,
}


def main() -> None:
    what, address, topic, records, size = sys.argv[1:]
    sys.stdout.write(json.dumps(MEASURES[what](address, topic, int(records), int(size))))


if __name__ == "__main__":
    main()
