"""Opening a partition: nothing to do after a clean close, a check of the tail after a crash.

The tail are the segments that may not have been synced: the last one, and those before it that go
beyond the durable offset that was published and have no index, which is written after their sync.
Beyond the durable offset, the first batch that is not whole ends the log: its bytes were never
acknowledged, and they are cut off with all that stands behind them; so are the batches of an append
whose last batch is not there. Before the durable offset, broken bytes are
damage: they are reported and kept, and the batches behind them stay readable.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from penstock.clock import now_ms
from penstock.errors import CorruptBatch
from penstock.events.batch import APPEND_TIME, BatchHeader
from penstock.log.storage.claims import Appends
from penstock.log.storage.index import Index
from penstock.log.storage.producers import Producers
from penstock.log.storage.segment import Segment
from penstock.log.storage.survey import survey

PRODUCERS_FILE = "producers.json"


class Figures(NamedTuple):
    """What a recovery did, without the files, which retention must be able to let go."""

    scanned_bytes: int
    cut_bytes: int
    damage: list[CorruptBatch]


@dataclass
class Recovery:
    """`checked` are the segments of the tail, which are not known to be synced."""

    segments: list[Segment]
    checked: list[Segment] = field(default_factory=list)
    scanned_bytes: int = 0
    cut_bytes: int = 0
    damage: list[CorruptBatch] = field(default_factory=list)

    @property
    def figures(self) -> Figures:
        return Figures(self.scanned_bytes, self.cut_bytes, self.damage)


def open_segments(folder: Path | None, durable_offset: int, producers: Producers) -> Recovery:
    """The partition's segments, the last one ready to be appended to; `producers` is filled in."""
    if folder is None:
        return Recovery([Segment(None, durable_offset)])
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    closed = [Segment(folder, base, after) for base, after in pairwise(bases)]
    last = Segment(folder, bases[-1] if bases else durable_offset)
    recovery = Recovery([*closed, last])
    clean = last.load_index()
    if not clean:
        _check_tail(recovery, durable_offset)
        last = recovery.segments[-1]
    _note_producers(recovery.segments, producers, _load_producers(folder, producers))
    if not clean and last.next_offset < durable_offset:
        # The file stays as it is for whoever can read more of it; the log goes on behind what was
        # acknowledged.
        last.next_offset = durable_offset
        recovery.segments.append(Segment(folder, durable_offset))
    return recovery


def _check_tail(recovery: Recovery, durable: int) -> None:
    segments = recovery.segments
    for number, segment in enumerate(segments, 1):
        closed = number < len(segments)
        due = segment.next_offset if closed else durable
        if closed and (due <= durable or _has_whole_index(segment)):
            continue
        end, torn = _check(recovery, segment, durable, due)
        if torn or (closed and durable <= end < due):
            recovery.cut_bytes += sum(each.size for each in segments[number:])
            for each in segments[number:]:
                each.remove()
            recovery.segments = segments[:number]
        if recovery.segments[-1] is segment:
            segment.next_offset = end
            break


def _has_whole_index(closed: Segment) -> bool:
    """Not one from a clean close, when the segment was shorter and was still appended to after."""
    due = closed.next_offset
    fits = closed.load_index() and closed.next_offset == due
    closed.next_offset = due
    return fits


def _check(recovery: Recovery, segment: Segment, durable: int, due: int) -> tuple[int, bool]:
    """Where the segment's batches end, and whether there was a torn one, which is cut off."""
    index, offset, damage, torn = Index(), segment.base_offset, None, False
    appends = Appends()
    recovery.checked.append(segment)
    recovery.scanned_bytes += segment.size
    damaged = len(recovery.damage)
    for position, found in survey(segment, 0, offset, due):
        if not isinstance(found, CorruptBatch):
            for at, whole in appends.see(position, found):
                index.note(whole, whole.base_offset, at)
            offset, damage = found.next_offset, None
        elif offset >= durable:
            recovery.cut_bytes += segment.size - position
            segment.truncate(position)
            torn = True
            break
        else:
            damage = found
            recovery.damage.append(found)
    if damage is None and offset < min(due, durable):
        what = f"offsets {offset} to {min(due, durable) - 1} are missing"
        recovery.damage.append(segment.corrupt(segment.size, what))
    if unfinished := appends.cut_at(durable):
        position, first = unfinished
        recovery.cut_bytes += segment.size - position
        segment.truncate(position)
        offset, torn = first.base_offset, True
    else:
        for at, whole in appends.release():
            index.note(whole, whole.base_offset, at)
    segment.index = index
    if len(recovery.damage) == damaged:
        segment.trusted_from = 0
    return offset, torn


def _load_producers(folder: Path, producers: Producers) -> int:
    try:
        return producers.load((folder / PRODUCERS_FILE).read_bytes())
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0


def _note_producers(segments: list[Segment], producers: Producers, noted_until: int) -> None:
    """Brings what is known of the producers, as of an offset, in line with what is on disk."""
    now = now_ms()
    for segment in segments:
        if segment.next_offset <= noted_until:
            continue
        for header in _sound(segment, noted_until):
            if header.producer_id >= 0 and header.base_offset >= noted_until:
                append_time = header.max_timestamp if header.attributes & APPEND_TIME else -1
                producers.note(header, header.base_offset, append_time, now)
    producers.forget_from(segments[-1].next_offset)


def _sound(segment: Segment, offset: int) -> Iterator[BatchHeader]:
    """The batches from about `offset` on, without the damaged ones."""
    position, base = segment.index.before_offset(offset) or (0, segment.base_offset)
    if segment.trusted_from == 0:
        return (header for _, header in segment.walk(position, segment.size))
    found = survey(segment, position, base, segment.next_offset)
    return (header for _, header in found if isinstance(header, BatchHeader))
