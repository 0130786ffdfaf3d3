"""ListOffsets and DeleteRecords: where a partition begins and ends, and a new beginning."""

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import OffsetOutOfRange, PenstockError
from penstock.log.server.broker import error_code
from penstock.log.server.call import Call, api
from penstock.log.storage.partition import Partition
from penstock.log.storage.times import Timed, first_at, latest

HIGH_WATERMARK = -1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
# Times that are not times, and the version of the request since which they may be asked for.
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NEVER = 2**15


@api(2, "list_offsets", 1, 9)
def list_offsets(call: Call) -> Any:
    return call.response(
        topics=tuple(
            call.entity(
                "ListOffsetsTopicResponse",
                name=topic.name,
                partitions=tuple(_position(call, topic.name, asked) for asked in topic.partitions),
            )
            for topic in call.request.topics
        )
    )


def _position(call: Call, topic: str, asked: Any) -> Any:
    error, found = 0, Timed(-1, -1)
    try:
        partition = call.broker.topics.get(topic).partition(asked.partition_index)
        if asked.timestamp >= 0 or call.version >= SINCE.get(asked.timestamp, NEVER):
            found = _look_up(partition, asked.timestamp) or found
        else:
            error = ErrorCode.unsupported_version
    except PenstockError as refusal:
        error = error_code(refusal)
    return call.entity(
        "ListOffsetsPartitionResponse",
        partition_index=asked.partition_index,
        error_code=ErrorCode(error),
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=0 if found.offset >= 0 else -1,
    )


def _look_up(partition: Partition, timestamp: int) -> Timed | None:
    if timestamp == LATEST:
        return Timed(partition.end_offset, -1)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Timed(partition.start_offset, -1)
    if timestamp == MAX_TIMESTAMP:
        return latest(partition)
    if timestamp == LATEST_TIERED:
        return None  # nothing lies in another store
    return first_at(partition, timestamp)


@api(21, "delete_records", 0, 2)
def delete_records(call: Call) -> Any:
    return call.response(
        topics=tuple(
            call.entity(
                "DeleteRecordsTopicResult",
                name=topic.name,
                partitions=tuple(_trim(call, topic.name, asked) for asked in topic.partitions),
            )
            for topic in call.request.topics
        )
    )


def _trim(call: Call, topic: str, asked: Any) -> Any:
    error, start = 0, -1
    try:
        partition = call.broker.topics.get(topic).partition(asked.partition_index)
        offset = partition.end_offset if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.end_offset:
            raise OffsetOutOfRange(
                f"{offset} is beyond the end",
                start=partition.start_offset,
                end=partition.end_offset,
            )
        partition.forget_before(offset)
        start = partition.start_offset
    except PenstockError as refusal:
        error = error_code(refusal)
    return call.entity(
        "DeleteRecordsPartitionResult",
        partition_index=asked.partition_index,
        low_watermark=start,
        error_code=ErrorCode(error),
    )
