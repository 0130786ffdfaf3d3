"""The last offset of every key in a partition, for those who append on that condition.

Nothing is done until somebody asks. From then on the index follows the log: it reads what was
appended since it was last asked, whoever appended it. It is kept in memory, about 150 bytes a key,
and a snapshot of it in a file, so that after a restart only what came later is read again.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from penstock.errors import CorruptBatch
from penstock.events.batch import CODEC_MASK, CONTROL, HEADER_BYTES, BatchHeader, read_varint
from penstock.events.compression import decompress
from penstock.log.storage.files import sync_folder, write_atomically
from penstock.log.storage.segment import Segment

KEYS_FILE = "keys"
# A snapshot is due when the share of records noted since the last one, in all keys, is above this.
SNAPSHOT_SHARE = 0.25

_MAGIC = b"PSKY\x00\x00\x00\x01"
_HEAD = Struct("<8sIqq")  # magic, checksum of what follows the head, next offset, number of keys
_ENTRY = Struct("<qi")  # offset, length of the key, which follows


class KeyIndex:
    """May be used from several threads."""

    def __init__(self, folder: Path | None, end: int) -> None:
        """`end` is where the log ends: a snapshot that knows more is of records a crash took."""
        self._path = folder and folder / KEYS_FILE
        self._lock = threading.Lock()
        self._last: dict[bytes, int] | None = None
        self._next = 0
        self._noted = 0  # records since the snapshot
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
                head = file.read(_HEAD.size)
                if len(head) < _HEAD.size or _HEAD.unpack(head)[2] > end:
                    self._path.unlink()
                    sync_folder(self._path.parent)  # or it might come back, and be believed then

    def last(self, key: bytes, start: int) -> int:
        """The key's last offset so far as it has followed; -1 if it has none from `start` on."""
        assert self._last is not None
        found = self._last.get(key, -1)
        return found if found >= start else -1

    def follow(self, segments: Sequence[Segment], until: int) -> None:
        """Takes in what stands before `until`. Raises CorruptBatch when that cannot be read."""
        with self._lock:
            if self._last is None:
                self._last = self._load()
            last = self._last
            for segment in segments:
                if segment.next_offset <= self._next:
                    continue
                for header, data in _batches(segment, self._next, until):
                    for delta, key in _keys(data, header):
                        last[key] = header.base_offset + delta
                    self._noted += header.records
                    self._next = header.next_offset
            self._next = max(self._next, until)

    def _load(self) -> dict[bytes, int]:
        try:
            content = self._path.read_bytes() if self._path else b""
        except FileNotFoundError:
            content = b""
        if len(content) < _HEAD.size:
            return {}
        magic, crc, after, count = _HEAD.unpack_from(content)
        if magic != _MAGIC or crc32c(memoryview(content)[12:]) != crc:
            return {}
        found: dict[bytes, int] = {}
        at = _HEAD.size
        for _ in range(count):
            offset, size = _ENTRY.unpack_from(content, at)
            at += _ENTRY.size + size
            found[content[at - size : at]] = offset
        self._next = after
        return found

    def save(self, start: int) -> None:
        """Writes a snapshot if one is due; keys without a record from `start` on are let go."""
        with self._lock:
            due = self._last is not None and self._noted > SNAPSHOT_SHARE * len(self._last)
            if self._path is None or self._last is None or not due:
                return
            self._last = kept = {key: at for key, at in self._last.items() if at >= start}
            after, self._noted = self._next, 0
            items = list(kept.items())
        body = b"".join([_ENTRY.pack(at, len(key)) + key for key, at in items])
        facts = _HEAD.pack(_MAGIC, 0, after, len(items))[12:]
        crc = crc32c(body, crc32c(facts))
        content = _HEAD.pack(_MAGIC, crc, after, len(items)) + body
        write_atomically(self._path, content, durably=False)


def _batches(segment: Segment, offset: int, until: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches from `offset` to before `until`, checked where this process has not done so."""
    position, base = segment.index.before_offset(offset) or (0, segment.base_offset)
    if position >= segment.trusted_from:
        walk = segment.walk(position, segment.size)
    else:
        walk = segment.scan(position, base)
    for at, header in walk:
        if header.base_offset >= until:
            return
        if header.last_offset >= offset and not header.attributes & CONTROL:
            yield header, os.pread(segment.file.fd, header.size, at)


def _keys(data: bytes, header: BatchHeader) -> Iterator[tuple[int, bytes]]:
    """The key of each record that has one, and the difference of its offset to the batch's."""
    body: bytes | memoryview = memoryview(data)[HEADER_BYTES:]
    if header.attributes & CODEC_MASK:
        body = decompress(header.attributes & CODEC_MASK, body)
    position, size = 0, len(body)
    for _ in range(header.records):
        length, position = read_varint(body, position, size)
        end = position + length
        if length < 0 or end > size:
            raise CorruptBatch("a record reaches beyond its batch")
        _, at = read_varint(body, position + 1, end)  # the timestamp
        delta, at = read_varint(body, at, end)
        length, at = read_varint(body, at, end)
        if length >= 0:
            if length > end - at:
                raise CorruptBatch("a field reaches beyond its record")
            yield delta, bytes(body[at : at + length])
        position = end
