"""Sleeping until a file is written to, without looking at it again and again.

    with closing(FileEvents()) as events:
        events.watch([folder / "durable"])
        while not condition():  # looks after it began to watch, so nothing goes unseen
            events.wait(1.0)

Linux tells of writes by inotify, whichever process on the host makes them.
"""

import ctypes
import errno
import os
import select
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock

_MODIFIED, _MOVED_IN, _CREATED, _REMOVED, _MOVED = 0x2, 0x80, 0x100, 0x400, 0x800
_FILE_EVENTS = _MODIFIED | _REMOVED | _MOVED
# Not the writes to files in a folder: those of a segment would wake before its records are durable.
_FOLDER_EVENTS = _MOVED_IN | _CREATED | _REMOVED | _MOVED
_IGNORED = 0x8000  # of an event: what was watched is no more
_EVENT = struct.Struct("iIII")  # which watch, what happened, cookie, length of the name after it
_READ_BYTES = 64 * 1024


class FileEvents:
    """Used by one thread, but for `wake`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ready, self._bell = os.pipe()
        os.set_blocking(self._ready, False)
        os.set_blocking(self._bell, False)
        self._poll = select.poll()
        self._poll.register(self._ready, select.POLLIN)
        self._inotify = _open_inotify()
        if self._inotify is not None:
            self._poll.register(self._inotify, select.POLLIN)
        self._watched: dict[Path, int] = {}
        self._is_closed = False

    def watch(self, paths: Iterable[Path]) -> bool:
        """From now on a write to one of these files wakes, and in a folder what is moved to it or
        made there. Cheap for those that are watched already.

        False when not all can be watched: one is not there, the host has no inotify, or too many
        files are watched on it. Then somebody has to look.
        """
        if self._inotify is None:
            return False
        is_whole = True
        for path in paths:
            if path not in self._watched:
                found = _add_watch(self._inotify, path)
                if found is None:
                    is_whole = False
                else:
                    self._watched[path] = found
        return is_whole

    def wait(self, seconds: float) -> bool:
        """False when nothing has happened for so long, since the end of the last wait."""
        happened = self._poll.poll(max(0.0, seconds) * 1_000)
        for descriptor, _ in happened:
            with suppress(BlockingIOError):
                content = os.read(descriptor, _READ_BYTES)
                if descriptor == self._inotify:
                    self._forget_removed(content)
        return bool(happened)

    def _forget_removed(self, content: bytes) -> None:
        gone, at = set(), 0
        while at < len(content):
            watch, mask, _, name_bytes = _EVENT.unpack_from(content, at)
            at += _EVENT.size + name_bytes
            if mask & _IGNORED:
                gone.add(watch)
        if gone:
            self._watched = {path: each for path, each in self._watched.items() if each not in gone}

    def wake(self) -> None:
        """Ends the present wait, or the next one. Thread-safe, also after `close`."""
        with self._lock, suppress(BlockingIOError):  # the pipe is full of calls already
            if not self._is_closed:
                os.write(self._bell, b"\0")

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for each in (self._ready, self._bell, self._inotify):
                if each is not None:
                    os.close(each)


def _open_inotify() -> int | None:
    """None where there is none, or its user has used up those that there are."""
    if sys.platform != "linux":
        return None
    found: int = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return None if found < 0 else found


def _add_watch(inotify: int, path: Path) -> int | None:
    system = ctypes.CDLL(None, use_errno=True)
    events = _FOLDER_EVENTS if path.is_dir() else _FILE_EVENTS
    found: int = system.inotify_add_watch(inotify, os.fsencode(path), events)
    if found >= 0:
        return found
    number = ctypes.get_errno()
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ENOSPC, errno.EACCES, errno.ENOMEM):
        return None
    raise OSError(number, os.strerror(number), str(path))
