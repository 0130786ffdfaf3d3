"""Folders of files that appear as a whole: on this machine's disk, or at any address of fsspec."""

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from penstock.streams.state.mapped import disk_refused

_UNFINISHED = ".unfinished"


class Place(Protocol):
    """A folder. What is read and is not there raises FileNotFoundError."""

    def sizes(self) -> dict[str, int]:
        """The files and their sizes; none when there is no folder."""

    def read(self, name: str) -> pa.Buffer: ...

    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file, fewer when it has fewer."""

    def write(self, name: str, fill: Callable[[Path], None], scratch: Path) -> None:
        """Has a local file filled and makes it the file of this name.

        `scratch` is a folder of this machine for what has to be sent elsewhere. The file is durable
        when this returns.
        """

    def delete(self, names: list[str]) -> None: ...


def place_at(address: str, *parts: str) -> Place:
    """The folder below an address: a path, or anything with a scheme that fsspec knows."""
    files, root = fsspec.core.url_to_fs(address)
    path = "/".join([root.rstrip("/"), *parts])
    return LocalPlace(Path(path)) if isinstance(files, LocalFileSystem) else FarPlace(files, path)


class LocalPlace:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sizes(self) -> dict[str, int]:
        found = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # renamed or deleted meanwhile
                    found[entry.name] = entry.stat().st_size
        return found

    def read(self, name: str) -> pa.Buffer:
        path = self._folder / name
        if path.stat().st_size == 0:
            return pa.py_buffer(b"")
        return pa.memory_map(str(path)).read_buffer()

    def tail(self, name: str, size: int) -> bytes:
        with (self._folder / name).open("rb", buffering=0) as file:
            end = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), size, max(0, end - size))

    def write(self, name: str, fill: Callable[[Path], None], scratch: Path) -> None:
        unfinished = self._folder / f"{name}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                fill(unfinished)
                _sync(unfinished)
                unfinished.replace(self._folder / name)
            except BaseException:
                unfinished.unlink(missing_ok=True)  # on a full disk every byte counts
                raise
            _sync(self._folder)
        except OSError as error:
            raise disk_refused(error, f"writing {self._folder / name}") from error

    def delete(self, names: list[str]) -> None:
        there = [each for name in names if (each := self._folder / name).exists()]
        for each in there:
            each.unlink(missing_ok=True)
        if there:
            _sync(self._folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FarPlace:
    """Files are sent in one piece, which object stores show when it is complete; where a store does
    not, a torn file is told by its checksum, and written again by the step that is run again."""

    def __init__(self, files: fsspec.AbstractFileSystem, folder: str) -> None:
        self._files = files
        self._folder = folder

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def sizes(self) -> dict[str, int]:
        self._files.invalidate_cache(self._folder)
        try:
            found = self._files.ls(self._folder, detail=True)
        except FileNotFoundError:
            return {}
        return {entry["name"].rpartition("/")[2]: entry["size"] or 0 for entry in found}

    def read(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self._files.cat_file(self._path(name)))

    def tail(self, name: str, size: int) -> bytes:
        content: bytes = self._files.cat_file(self._path(name), start=-size)
        return content

    def write(self, name: str, fill: Callable[[Path], None], scratch: Path) -> None:
        unfinished = scratch / f"{name}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            fill(unfinished)
            self._files.makedirs(self._folder, exist_ok=True)
            self._files.put_file(str(unfinished), self._path(name))
        finally:
            unfinished.unlink(missing_ok=True)

    def delete(self, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))
