"""Two numbers beside a partition's segments: how far it is durable, and where it begins.

Other processes on the host read the durable offset before they map the segments. It is written
after the sync it speaks of and never synced itself: after a power cut it may be behind, not ahead.
"""

import contextlib
import os
import struct
from pathlib import Path

from penstock.log.storage.files import OpenFile

DURABLE_FILE = "durable"
START_FILE = "start"
_OFFSET = struct.Struct("<q")

# A partition in memory loses its records with the process, but must not give their offsets to
# others: a consumer would skip those in silence. So it reserves offsets ahead, this many at a time.
RESERVED_OFFSETS = 1_000_000


def read_durable_offset(folder: Path) -> int:
    """The offset after the last durable record of the partition in this folder."""
    try:
        content = (folder / DURABLE_FILE).read_bytes()
    except FileNotFoundError:
        return 0
    return int(_OFFSET.unpack(content)[0]) if len(content) == _OFFSET.size else 0


def read_start_offset(folder: Path) -> int:
    """The first offset that is kept of the partition in this folder."""
    try:
        return int((folder / START_FILE).read_bytes() or b"0")
    except FileNotFoundError:
        return 0


class Published:
    def __init__(self, folder: Path | None, *, in_memory: bool) -> None:
        self._in_memory = in_memory
        self.durable = 0 if folder is None else read_durable_offset(folder)
        self.start = 0 if folder is None else read_start_offset(folder)
        self._file = None if folder is None else OpenFile(folder / DURABLE_FILE)
        self._start_file = None if folder is None else OpenFile(folder / START_FILE)
        if self._start_file is not None and not self._start_file.size():
            self._write_start(0)  # takes its room now: retention must work on a full disk

    def end(self, offset: int) -> None:
        if self._file is None:
            return
        if not self._in_memory:
            # To be behind is safe, so a disk that refuses this does not stop the log.
            with contextlib.suppress(OSError):
                os.pwrite(self._file.fd, _OFFSET.pack(offset), 0)
        elif offset >= self.durable:
            reserved = offset + RESERVED_OFFSETS
            os.pwrite(self._file.fd, _OFFSET.pack(reserved), 0)
            os.fdatasync(self._file.fd)
            self.durable = reserved

    def begin(self, offset: int) -> None:
        """Durably forgets what stands before `offset`."""
        if self._start_file is not None:
            self._write_start(offset)
            os.fdatasync(self._start_file.fd)
        self.start = offset

    def _write_start(self, offset: int) -> None:
        """In place, by one write within a sector."""
        assert self._start_file is not None
        os.pwrite(self._start_file.fd, b"%020d" % offset, 0)
