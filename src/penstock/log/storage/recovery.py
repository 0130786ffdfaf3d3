"""Opening a partition: nothing to do after a clean close, a check of the tail after a crash.

A closed segment was synced before the next one began, so only the last one can have a torn end.
Beyond the durable offset that was published, the first batch that is not whole ends the log: its
bytes were never acknowledged, and they are cut off. Before it, broken bytes are damage: they are
reported and kept, and the batches behind them stay readable.
"""

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from penstock.errors import CorruptBatch
from penstock.log.storage.index import Index
from penstock.log.storage.producers import Producers
from penstock.log.storage.segment import Segment

PRODUCERS_FILE = "producers.json"


@dataclass
class Recovery:
    segments: list[Segment]
    scanned_bytes: int = 0
    cut_bytes: int = 0
    damage: list[CorruptBatch] = field(default_factory=list)


def open_segments(folder: Path | None, durable_offset: int, producers: Producers) -> Recovery:
    """The partition's segments, the last one ready to be appended to; `producers` is filled in."""
    if folder is None:
        return Recovery([Segment(None, durable_offset)])
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    closed = [Segment(folder, base, after) for base, after in pairwise(bases)]
    last = Segment(folder, bases[-1] if bases else durable_offset)
    recovery = Recovery([*closed, last])
    noted_until = _load_producers(folder, producers)
    if last.size and not last.load_index():
        _check_tail(recovery, last, durable_offset, producers, noted_until)
    return recovery


def _load_producers(folder: Path, producers: Producers) -> int:
    try:
        return producers.load((folder / PRODUCERS_FILE).read_bytes())
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0


def _check_tail(
    recovery: Recovery, last: Segment, durable: int, producers: Producers, noted_until: int
) -> None:
    index, position, offset = Index(), 0, last.base_offset
    recovery.scanned_bytes = last.size
    while position < last.size:
        try:
            for at, header in last.scan(position, offset):
                # The batch behind a damaged one gets an entry, so that it is found without it.
                index.note(header, header.base_offset, at, anchor=at == position)
                position, offset = at + header.size, header.next_offset
                if header.producer_id >= 0 and header.base_offset >= noted_until:
                    producers.note(header, header.base_offset, -1, header.max_timestamp)
        except CorruptBatch as broken:
            if offset >= durable:
                recovery.cut_bytes = last.size - position
                last.truncate(position)
                break
            recovery.damage.append(broken)
            behind = _step_over(last, position, offset, durable)
            if behind is None:
                # No way to find the next batch in this file. It stays as it is for whoever can
                # read it, and the log goes on behind what was acknowledged.
                last.index, last.next_offset = index, durable
                recovery.segments.append(Segment(last.folder, durable))
                return
            position, offset = behind
    last.index, last.next_offset = index, offset
    if not recovery.damage:
        last.trusted_from = 0


def _step_over(
    segment: Segment, position: int, offset: int, durable: int
) -> tuple[int, int] | None:
    """Position and offset behind a damaged batch, if its length leads to a batch or to the end."""
    try:
        walk = segment.walk(position)
        _, damaged = next(walk)
        if position + damaged.size == segment.size:
            return segment.size, durable
        at, header = next(walk)
    except (CorruptBatch, StopIteration):
        return None
    sound = header.magic == 2 and header.base_offset > offset and at + header.size <= segment.size
    return (at, header.base_offset) if sound else None
