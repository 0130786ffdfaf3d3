"""Files as the log needs them: replaced as a whole, and closed when the last reader goes."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from penstock.errors import DiskFull, StorageFailed

FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT)


class OpenFile:
    """A file descriptor that closes with its last reference.

    A fetch under way, or a sync on another thread, may outlive the segment that retention deletes;
    an explicit close would hand its descriptor number to somebody else's file.
    """

    __slots__ = ("fd", "path")

    def __init__(self, path: Path | None) -> None:
        """Opens or makes the file; no path means a file in memory."""
        self.path = path
        if path is not None:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        elif hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("penstock")
        else:
            self.fd, name = tempfile.mkstemp()
            Path(name).unlink()

    def fileno(self) -> int:
        return self.fd

    @property
    def name(self) -> str:
        return str(self.path) if self.path else "(memory)"

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.fd)


def storage_error(error: OSError, doing: str, *, for_good: bool = False) -> StorageFailed:
    """The error for people: what the log was doing, what the system said, what to do.

    `for_good` is for what does not go on by itself, even if it was only room that lacked.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and not for_good:
        return DiskFull(
            f"the disk is full: {doing}",
            hint="free some space, or delete records or topics; writing goes on by itself then",
        )
    if error.errno in FORBIDDEN:
        return StorageFailed(
            f"{error.strerror}: {doing}", hint="choose a folder that this user may write to"
        )
    return StorageFailed(
        f"the disk failed ({error.strerror}): {doing}",
        hint="nothing acknowledged is lost; mend the disk, then restart the log, which checks it",
    )


def make_folder(folder: Path) -> None:
    """Makes the folder, and those above it that are missing, to stay when the power goes."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes, *, durably: bool = True) -> None:
    """The file has the old content or the new one, whenever the process ends.

    Durably, whenever the power goes as well. What is derived and checked when it is read can do
    without, and without waiting for the disk.
    """
    fresh = path.with_name(path.name + ".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
        if durably:
            os.fsync(handle)
    except OSError:
        fresh.unlink(missing_ok=True)  # on a full disk every byte counts
        raise
    finally:
        os.close(handle)
    fresh.replace(path)
    if durably:
        sync_folder(path.parent)
