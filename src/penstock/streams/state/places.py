"""Folders of files that appear as a whole: on this machine's disk, or at any address of fsspec."""

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from penstock.log.storage.files import make_folder, sync_folder
from penstock.streams.state.mapped import disk_refused

if TYPE_CHECKING:
    from penstock.streams.state.journal import Journal

_UNFINISHED = ".unfinished"


class Place(Protocol):
    """A folder. What is read and is not there raises FileNotFoundError."""

    def names(self) -> list[str]:
        """The files; none when there is no folder."""

    def sizes(self) -> dict[str, int]:
        """The same with their sizes, which takes longer to tell."""

    def read(self, name: str) -> pa.Buffer: ...

    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file, fewer when it has fewer."""

    def write(
        self,
        name: str,
        fill: Callable[[BinaryIO], object],
        scratch: Path,
        journal: "Journal | None" = None,
    ) -> None:
        """Has a local file filled and makes it the file of this name.

        `scratch` is a folder of this machine for what has to be sent elsewhere. The file is durable
        when this returns, or when the journal is if that is given.
        """

    def delete(self, names: list[str], journal: "Journal | None" = None) -> None: ...


def place_at(address: str, *parts: str) -> Place:
    """The folder below an address: a path, or anything with a scheme that fsspec knows."""
    if (home := local_path(address)) is not None:
        return LocalPlace(home.joinpath(*parts))
    files, root = fsspec.core.url_to_fs(address)
    return FarPlace(files, "/".join([root.rstrip("/"), *parts]))


def local_path(address: str) -> Path | None:
    """Where an address leads on this machine's disk, None if it leads elsewhere."""
    if address.startswith("/") and "::" not in address:  # fsspec takes longer to find out
        return Path(address)
    files, root = fsspec.core.url_to_fs(address)
    return Path(root) if isinstance(files, LocalFileSystem) else None


class LocalPlace:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                return [entry.name for entry in entries]
        except FileNotFoundError:
            return []

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
        handle = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = os.fstat(handle).st_size
            return os.pread(handle, size, max(0, end - size))
        finally:
            os.close(handle)

    def write(
        self,
        name: str,
        fill: Callable[[BinaryIO], object],
        scratch: Path,
        journal: "Journal | None" = None,
    ) -> None:
        path = f"{self._folder}/{name}"
        unfinished = Path(f"{path}.{uuid.uuid4().hex}{_UNFINISHED}")
        try:
            with self._new(unfinished) as file:
                try:
                    fill(file)
                    file.flush()
                    is_kept = journal is not None and journal.takes(path, file)
                    if not is_kept:
                        os.fsync(file.fileno())
                    unfinished.replace(path)
                except BaseException:
                    unfinished.unlink(missing_ok=True)  # on a full disk every byte counts
                    raise
            if not is_kept:
                sync_folder(self._folder)
        except OSError as error:
            raise disk_refused(error, f"writing {self._folder / name}") from error

    def _new(self, path: Path) -> BinaryIO:
        try:
            return path.open("x+b")
        except FileNotFoundError:
            make_folder(self._folder)
            return path.open("x+b")

    def delete(self, names: list[str], journal: "Journal | None" = None) -> None:
        there = [each for name in names if (each := self._folder / name).exists()]
        for each in there:
            each.unlink(missing_ok=True)
            if journal is not None:
                journal.deleted(str(each))
        if there and journal is None:
            sync_folder(self._folder)


class FarPlace:
    """Files are sent in one piece, which object stores show when it is complete; where a store does
    not, a torn file is told by its checksum, and written again by the step that is run again."""

    def __init__(self, files: fsspec.AbstractFileSystem, folder: str) -> None:
        self._files = files
        self._folder = folder

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def names(self) -> list[str]:
        return list(self.sizes())

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

    def write(
        self,
        name: str,
        fill: Callable[[BinaryIO], object],
        scratch: Path,
        journal: "Journal | None" = None,
    ) -> None:
        unfinished = scratch / f"{name}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            with unfinished.open("xb") as file:
                fill(file)
            self._files.makedirs(self._folder, exist_ok=True)
            self._files.put_file(str(unfinished), self._path(name))
        finally:
            unfinished.unlink(missing_ok=True)

    def delete(self, names: list[str], journal: "Journal | None" = None) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))
