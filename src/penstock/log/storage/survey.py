"""Going through a segment from batch to batch, past what is damaged."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import CorruptBatch
from penstock.events.batch import HEADER_BYTES, BatchHeader, read_header

if TYPE_CHECKING:
    from penstock.log.storage.segment import Segment

# A batch is looked for this far behind one that does not lead to it.
SEARCH_BYTES = 16 * 1024 * 1024
# The leader epoch and the format of every batch in a log, and where they stand in it.
_MARK = b"\0\0\0\0\x02"
_MARK_AT = 12
_READ_BYTES = 16 * 1024
_SURVEY_BYTES = 4 * 1024 * 1024


def survey(
    segment: "Segment", position: int, offset: int, end: int, at_once: int = _SURVEY_BYTES
) -> Iterator[tuple[int, BatchHeader | CorruptBatch]]:
    """The batches from `position` on, every byte checked, and the damage in between.

    `offset` is due at `position`, and `end` after the last batch. Nothing is given behind damage
    that no sound batch is found behind.
    """
    while position < segment.size:
        try:
            for at, header in segment.scan(position, offset, at_once):
                position, offset = at + header.size, header.next_offset
                yield at, header
            return
        except CorruptBatch as broken:
            damage = broken
        yield position, damage
        behind = step_over(segment, position, offset, end)
        if behind is None:
            return
        position, offset = behind


def step_over(segment: "Segment", position: int, offset: int, end: int) -> tuple[int, int] | None:
    """Position and offset of the next sound batch behind the damaged one at `position`.

    The damaged batch's own length is tried first. It may be what is damaged, so the bytes behind
    are searched next.
    """
    data = os.pread(segment.file.fd, min(SEARCH_BYTES, segment.size - position), position)
    if len(data) < HEADER_BYTES:
        return None
    damaged = read_header(data)
    after = offset + damaged.last_offset_delta + 1
    found = _sound(segment, position + max(damaged.size, HEADER_BYTES), offset, after, end)
    mark = _MARK_AT
    while found is None and (mark := data.find(_MARK, mark + 1)) >= 0:
        found = _sound(segment, position + mark - _MARK_AT, offset, after, end)
    return found


def _sound(
    segment: "Segment", position: int, offset: int, after: int, end: int
) -> tuple[int, int] | None:
    """Position and offset of the batch at `position`, if it is sound and its offset vouched for.

    The checksum does not cover the offset. So either the batch before it or the one behind it
    must fit, or it must be the last one and lead to the end.
    """
    head = os.pread(segment.file.fd, HEADER_BYTES, position)
    if len(head) < HEADER_BYTES or (base := read_header(head).base_offset) <= offset:
        return None
    batches = segment.scan(position, base, _READ_BYTES)
    try:
        at, header = next(batches)
        if base == after:
            return position, base
        if at + header.size == segment.size:
            return (position, base) if header.next_offset == end else None
        next(batches)
    except CorruptBatch:
        return None
    return position, base
