"""Batches as a producer sent them, with what the log adds: offsets, its epoch, append times."""

from collections.abc import Sequence

from penstock.events.batch import HEADER_BYTES, BatchHeader, Buffer, stamp, with_append_time
from penstock.log.storage.segment import LEADER_EPOCH


def stamped(
    data: memoryview, headers: Sequence[BatchHeader], offset: int, append_time: int
) -> list[Buffer]:
    """The pieces that are written one after the other, so that the records are not copied.

    The first batch gets `offset`. An append time of -1 leaves the times of the records.
    """
    pieces: list[Buffer] = []
    at = 0
    for header in headers:
        pieces.append(stamp(offset, header.length, LEADER_EPOCH))
        if append_time < 0:
            pieces.append(data[at + 16 : at + header.size])
        else:
            pieces.append(with_append_time(data, header, at, append_time))
            pieces.append(data[at + HEADER_BYTES : at + header.size])
        offset += header.last_offset_delta + 1
        at += header.size
    return pieces
