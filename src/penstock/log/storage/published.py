"""Two numbers beside a partition's segments: how far it is durable, and where it begins.

Other processes on the host read the durable offset before they map the segments. It is written
after the sync it speaks of and never synced itself: after a power cut it may be behind, not ahead.
"""

import contextlib
import os
import struct
from pathlib import Path

from penstock.log.storage.files import OpenFile, write_atomically

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


class Published:
    def __init__(self, folder: Path | None, *, in_memory: bool) -> None:
        self._folder = folder
        self._in_memory = in_memory
        self.durable = 0 if folder is None else read_durable_offset(folder)
        self.start = self._read_start()
        self._file = None if folder is None else OpenFile(folder / DURABLE_FILE)

    def _read_start(self) -> int:
        path = self._folder and self._folder / START_FILE
        return int(path.read_text()) if path and path.exists() else 0

    def end(self, offset: int) -> None:
        if self._file is None:
            return
        if not self._in_memory:
            # To be behind is safe, so a disk that refuses this does not stop the log.
            with contextlib.suppress(OSError):
                os.pwrite(self._file.fd, _OFFSET.pack(offset), 0)
        elif offset >= self.durable:
            self.durable = offset + RESERVED_OFFSETS
            os.pwrite(self._file.fd, _OFFSET.pack(self.durable), 0)
            os.fdatasync(self._file.fd)

    def begin(self, offset: int) -> None:
        """Durably forgets what stands before `offset`."""
        self.start = offset
        if self._folder is not None:
            write_atomically(self._folder / START_FILE, str(offset).encode())
