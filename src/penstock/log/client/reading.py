"""Reading one partition over the wire, from an offset to the end as it stands."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.errors import LogUnreachable, OffsetOutOfRange
from penstock.events.record import Record
from penstock.log.client.connection import meaning, meaningful, receive, record_of, settings
from penstock.log.contract import Bounds

_ROUND = 1.0  # seconds; messages end a round at once


def out_of_range(topic: str, partition: int, offset: int, bounds: Bounds) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"offset {offset} is not in {topic}/{partition}",
        start=bounds.start,
        end=bounds.end,
        hint=f"it holds offsets {bounds.start} to {bounds.end}, the last one not included",
    )


def read_partition(
    address: str, topic: str, partition: int, offset: int, limit: int | None, time_limit: float
) -> Iterator[Record]:
    """As Log.read, for a partition that is known to exist."""
    consumer = Consumer(
        settings(
            address,
            group_id="penstock-reader",  # asked for by the client, and never joined
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            fetch_wait_max_ms=100,
            fetch_queue_backoff_ms=5,
        )
    )
    try:
        place = TopicPartition(topic, partition, offset)
        bounds = _bounds(consumer, place, time_limit)
        if not bounds.start <= offset <= bounds.end:
            raise out_of_range(topic, partition, offset, bounds)
        if offset == bounds.end or limit == 0:
            return
        consumer.assign([place])
        yield from _read_to(consumer, place, bounds.end, limit, time_limit)
    finally:
        consumer.close()


def _read_to(
    consumer: Consumer, place: TopicPartition, end: int, limit: int | None, time_limit: float
) -> Iterator[Record]:
    what = f"{place.topic}/{place.partition} cannot be read"
    position, left, silence = place.offset, limit, 0.0
    while position < end and left != 0:
        messages = receive(consumer, _ROUND)
        silence = 0.0 if messages else silence + _ROUND
        if silence > time_limit:
            raise LogUnreachable(
                f"{what}: nothing came for {time_limit:g} s", hint="is the log still running?"
            )
        for message in messages:
            error, at = message.error(), message.offset() or 0
            if error is None:
                if at >= end or left == 0:
                    return
                yield record_of(message)
                position, left = at + 1, None if left is None else left - 1
            elif error.code() == KafkaError._PARTITION_EOF:
                position = at  # beyond the last record there may be offsets without one
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                bounds = _bounds(consumer, place, time_limit)
                raise out_of_range(place.topic, place.partition, position, bounds)
            else:
                raise meaning(error, what)


def _bounds(consumer: Consumer, place: TopicPartition, time_limit: float) -> Bounds:
    with meaningful(f"no offsets of {place.topic}/{place.partition}"):
        return Bounds(*consumer.get_watermark_offsets(place, timeout=time_limit))
