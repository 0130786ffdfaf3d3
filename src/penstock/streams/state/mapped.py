"""Files mapped into memory that grow, and are replaced rather than cut."""

import mmap
import os
from pathlib import Path

import numpy as np

from penstock.errors import StateDamaged, StateError
from penstock.events.compiled import Bytes


class MappedFile:
    """A file's bytes as an array that is shared with every process that maps it.

    An array taken before the file grew stays valid, but is as short as the file was.
    """

    def __init__(self, path: Path, size: int | None = None) -> None:
        """Maps a file, or with a size makes a new one full of zeros in the place of an old one.

        A process that still maps the old one keeps it, whole. Raises OSError when there is no file,
        and StateError when there is no room for a new one.
        """
        self.path = path
        if size is None:
            self._map()
        else:
            path.unlink(missing_ok=True)
            self.grow(size)

    def grow(self, size: int) -> None:
        # The room is taken now: later, a full disk would end the process that writes to its memory.
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError as error:
            raise disk_refused(error, f"{self.path} needs {size} bytes") from error
        finally:
            os.close(handle)
        self._map()

    def _map(self) -> None:
        with self.path.open("r+b") as file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise OSError(f"{self.path} is empty")
            self.bytes: Bytes = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        self._inode = status.st_ino

    def take_over(self, other: "MappedFile") -> None:
        """The other file comes into the place of this one."""
        other.path.replace(self.path)
        self.bytes, self._inode = other.bytes, other._inode

    def is_current(self) -> bool:
        """Whether the file of this name is still the one that is mapped, and as long."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        # As long as it is mapped, no other file can get its inode.
        return status.st_ino == self._inode and status.st_size == len(self.bytes)


def contradicts_itself(arena: Path) -> StateDamaged:
    return StateDamaged(
        f"the arena {arena} contradicts itself",
        hint="run the step again: what is kept on this host is built anew then",
    )


def disk_refused(error: OSError, doing: str) -> StateError:
    return StateError(
        f"the disk refused ({error.strerror or error}): {doing}",
        hint="free some space or mend the disk; the step can then be run again, nothing is lost",
    )
