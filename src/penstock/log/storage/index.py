"""Where batches stand in a segment: one entry for every few kilobytes, by offset and by time.

The index is derived from the segment. It is written when the segment is closed and believed only
if its checksum fits and it speaks of a segment of exactly this size; otherwise it is built again.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from crc32c import crc32c

from penstock.events.batch import BatchHeader
from penstock.log.storage.files import write_atomically

INTERVAL_BYTES = 4096

_MAGIC = b"PSIX\x00\x00\x00\x02"
_FACTS = struct.Struct("<6q")
_HEAD = struct.Struct("<8sII6q")  # magic, the checksums of facts and entries, the facts


class Index:
    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")  # the highest timestamp of all batches before the entry's
        self.max_timestamp = -1
        self.max_timestamp_position = 0

    def note(self, header: BatchHeader, base_offset: int, position: int) -> None:
        """Takes notice of a batch, each in its order."""
        if not self._positions or position - self._positions[-1] >= INTERVAL_BYTES:
            self._offsets.append(base_offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp)
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_position = position

    # Each of these gives the position and the base offset of an indexed batch.

    def before_offset(self, offset: int) -> tuple[int, int] | None:
        """The last one that begins at or before `offset`."""
        return self._entry(bisect_right(self._offsets, offset) - 1)

    def before_time(self, timestamp: int) -> tuple[int, int] | None:
        """The last one before which every record is older than `timestamp`."""
        return self._entry(bisect_left(self._times, timestamp) - 1)

    def before_position(self, position: int) -> tuple[int, int] | None:
        """The last one at or before `position`."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def _entry(self, entry: int) -> tuple[int, int] | None:
        return (self._positions[entry], self._offsets[entry]) if entry >= 0 else None

    def save(self, path: Path, base_offset: int, next_offset: int, size: int) -> None:
        body = self._offsets.tobytes() + self._positions.tobytes() + self._times.tobytes()
        facts = (
            next_offset,
            size,
            self.max_timestamp,
            self.max_timestamp_position,
            base_offset,
            len(self._offsets),
        )
        crcs = crc32c(_FACTS.pack(*facts)), crc32c(body)
        write_atomically(path, _HEAD.pack(_MAGIC, *crcs, *facts) + body, durably=False)


def read_max_timestamp(path: Path, size: int) -> int | None:
    """The highest timestamp of a closed segment, from the head of its index alone."""
    try:
        with path.open("rb") as file:
            facts = _facts(file.read(_HEAD.size), size)
    except OSError:
        return None
    return facts[2] if facts else None


def load_index(path: Path, base_offset: int, size: int) -> tuple[Index, int] | None:
    """The index and the segment's next offset; None when there is none that fits."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    facts, body = _facts(content, size), content[_HEAD.size :]
    if facts is None or crc32c(body) != _HEAD.unpack_from(content)[2]:
        return None
    next_offset, _, max_timestamp, max_position, stated_base, count = facts
    if stated_base != base_offset or len(body) != 24 * count:
        return None
    index = Index()
    index._offsets.frombytes(body[: 8 * count])
    index._positions.frombytes(body[8 * count : 16 * count])
    index._times.frombytes(body[16 * count :])
    index.max_timestamp, index.max_timestamp_position = max_timestamp, max_position
    return index, next_offset


def _facts(content: bytes, size: int) -> list[int] | None:
    """What the head says, if its checksum fits and it speaks of a segment of this size."""
    if len(content) < _HEAD.size:
        return None
    magic, crc, _, *facts = _HEAD.unpack_from(content)
    fits = (magic, crc, facts[1]) == (_MAGIC, crc32c(_FACTS.pack(*facts)), size)
    return facts if fits else None
