"""Many small files of state, made durable by one: the journal of a task.

    <address>/@journal/3f0c9c1d5f5e4a0f9d0e6f7a8b9c0d1e

A disk takes about as long to sync a file of a hundred bytes as one of a hundred thousand. So what a
task writes in small files is not synced, but copied into one journal that is. Until the files
themselves have reached the disk, a journal stays; after a power cut they are written anew from it.
"""

import ctypes
import os
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

from crc32c import crc32c

from penstock.streams.state.files import damaged
from penstock.streams.state.places import LocalPlace, local_path

_FOLDER = "@journal"
_SMALL = 64 * 1024  # bytes; writing more than that twice takes longer than to sync it

_FRAME = struct.Struct("<Iq")
_CRC = struct.Struct("<I")
_DELETED = -1


class Journal:
    """Of one task; what it does not take has to be synced by itself."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._start = len(str(home)) + 1  # of the rest of a path
        self._files: dict[str, bytes | None] = {}  # by path below home, None for those deleted

    @classmethod
    def at(cls, address: str) -> Self | None:
        """None when what is at this address is not on a disk of this host."""
        home = local_path(address)
        return None if home is None else cls(home)

    def takes(self, path: str, file: BinaryIO) -> bool:
        """Whether it keeps what this file has, which was written and not synced."""
        size = file.tell()
        if size > _SMALL:
            return False
        self._files[path[self._start :]] = os.pread(file.fileno(), size, 0)
        return True

    def deleted(self, path: str) -> None:
        """An older journal may have the file."""
        self._files[path[self._start :]] = None

    def write(self) -> None:
        """Makes all of it durable."""

        def fill(file: BinaryIO) -> None:
            crc = 0
            for path, content in self._files.items():
                where = path.encode()
                size = _DELETED if content is None else len(content)
                for part in (_FRAME.pack(len(where), size), where, content or b""):
                    file.write(part)
                    crc = crc32c(part, crc)
            file.write(_CRC.pack(crc))

        if self._files:
            LocalPlace(self._home / _FOLDER).write(uuid.uuid4().hex, fill, self._home)


def restore(address: str) -> int:
    """Writes the files that journals have, which may not have reached the disk, and returns how
    many; before anybody reads or deletes state. Raises StateDamaged."""
    home = local_path(address)
    count = 0
    for journal in _journals(home):
        assert home is not None
        for path, content in _read(journal):
            count += 1
            place = LocalPlace((home / path).parent)
            if content is None:
                place.delete([path.name])
            elif not _has(home / path, content):
                place.write(path.name, lambda file, content=content: file.write(content), home)  # type: ignore[misc]
    settle(address)
    for unfinished in (home / _FOLDER).glob("*.*") if home else ():
        unfinished.unlink()
    return count


def settle(address: str) -> None:
    """Has all files reach the disk, so that the journals are needed no more."""
    home = local_path(address)
    if not (journals := _journals(home)):
        return
    assert home is not None
    handle = os.open(home, os.O_RDONLY)
    try:
        # One call for all files; syncing each would take as long as if there were no journals.
        if ctypes.CDLL(None, use_errno=True).syncfs(handle):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(home))
    finally:
        os.close(handle)
    for journal in journals:
        journal.unlink(missing_ok=True)


def _journals(home: Path | None) -> list[Path]:
    """In the order in which they were written: a batch that is run again writes files again."""
    folder = home / _FOLDER if home else None
    if folder is None or not folder.is_dir():
        return []
    finished = (each for each in folder.iterdir() if not each.suffix)
    return sorted(finished, key=lambda each: each.stat().st_mtime_ns)


def _read(journal: Path) -> Iterator[tuple[Path, bytes | None]]:
    content = journal.read_bytes()
    end = len(content) - _CRC.size
    if end < 0 or _CRC.unpack_from(content, end)[0] != crc32c(content[:end]):
        raise damaged(str(journal), "its checksum does not match")
    at = 0
    while at < end:
        length, size = _FRAME.unpack_from(content, at)
        at += _FRAME.size
        path = Path(content[at : at + length].decode())
        at += length
        yield path, None if size == _DELETED else content[at : at + size]
        at += max(size, 0)


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False
