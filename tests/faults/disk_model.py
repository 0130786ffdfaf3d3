"""A disk that can lose its power: it knows what was synced, and makes up what else survived.

Every call by which the log changes files goes through to the real ones and is recorded. A file has
what it had at its last sync; of what was written since, any sector may have reached the disk. A
folder has the entries of its last sync; of the changes since, the first few may have. Syncs do
nothing else, so that a test can make thousands.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SECTOR = 512


@dataclass
class File:
    synced: bytes = b""
    unsynced: list[tuple[int, bytes] | int] = field(default_factory=list)  # writes, and new sizes

    def survivor(self, luck: random.Random, share: float) -> bytes:
        """What is there after the power cut, `share` being how much of the rest got through."""
        content = bytearray(self.synced)
        for change in self.unsynced:
            if isinstance(change, int):
                if luck.random() < share:
                    _resize(content, change)
                continue
            position, data = change
            while data:
                sector = SECTOR - position % SECTOR
                if luck.random() < share:
                    _resize(content, max(len(content), position))
                    content[position : position + sector] = data[:sector]
                position, data = position + sector, data[sector:]
        return bytes(content)


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


@dataclass
class Folder:
    now: dict[str, "Node"] = field(default_factory=dict)
    synced: dict[str, "Node"] = field(default_factory=dict)
    unsynced: list[dict[str, "Node"]] = field(default_factory=list)  # the entries after each change

    def change(self, name: str, node: "Node | None", leaves: str = "") -> None:
        self.now = {key: each for key, each in self.now.items() if key not in (name, leaves)}
        if node is not None:
            self.now[name] = node
        self.unsynced.append(self.now)

    def survivor(self, luck: random.Random, share: float) -> dict[str, "Node"]:
        through = 0
        while through < len(self.unsynced) and luck.random() < share:
            through += 1
        return [self.synced, *self.unsynced][through]


Node = File | Folder


class Disk:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Records what happens in `root`, an empty folder, until the monkeypatch is undone."""
        self._root = root
        self._top = Folder()
        self._files: dict[int, Node] = {}
        self.after_change: Callable[[], None] = lambda: None
        """Called after every call that changed something, when the power may go."""
        records = {
            name: getattr(self, f"_{name}")
            for name in ("open", "close", "pwritev", "ftruncate", "fsync", "mkdir", "unlink")
        }
        records |= {"write": self._write, "pwrite": self._write, "fdatasync": self._fsync}
        records |= {"rename": self._rename, "replace": self._rename}
        for name, record in records.items():
            self._wrap(monkeypatch, name, record)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str, record: Callable[..., Any]) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if name == "close":  # before another thread can be given the same number
                record(None, *arguments)
                return real(*arguments)
            answer = None if name in ("fsync", "fdatasync") else real(*arguments, **named)
            if record(answer, *arguments):
                self.after_change()
            return answer

        monkeypatch.setattr(os, name, call)

    def cut_power(self, target: Path, luck: random.Random) -> None:
        """Makes what is left in `target`; half of the time, only what was synced."""
        share = luck.choice((0.0, 0.0, luck.random(), 1.0))
        self._restore(self._top, target, luck, share)

    def _restore(self, node: Node, target: Path, luck: random.Random, share: float) -> None:
        if isinstance(node, File):
            target.write_bytes(node.survivor(luck, share))
            return
        target.mkdir()
        for name, each in node.survivor(luck, share).items():
            self._restore(each, target / name, luck, share)

    def _find(self, path: Any) -> tuple[Folder | None, str]:
        """The folder that holds this path, and its name there; no folder outside the root."""
        node: Node = self._top
        try:
            *above, name = Path(path).relative_to(self._root).parts or ("",)
        except (TypeError, ValueError):
            return None, ""
        for each in above:
            assert isinstance(node, Folder)
            node = node.now[each]
        assert isinstance(node, Folder)
        return node, name

    # What the calls do; each says whether it changed anything

    def _open(self, fd: int, path: Any, flags: int, *_: Any) -> bool:
        folder, name = self._find(path)
        if folder is None:
            return False
        node = folder.now.get(name) if name else self._top
        is_new = node is None
        if node is None:
            node = File()
            folder.change(name, node)
        elif flags & os.O_TRUNC and isinstance(node, File):
            node.unsynced.append(0)
        self._files[fd] = node
        return is_new

    def _close(self, _: None, fd: int) -> bool:
        self._files.pop(fd, None)
        return False

    def _write(self, count: int, fd: int, data: Any, position: int | None = None) -> bool:
        node = self._files.get(fd)
        if isinstance(node, File):
            at = os.lseek(fd, 0, os.SEEK_CUR) - count if position is None else position
            node.unsynced.append((at, bytes(data[:count])))
        return node is not None

    def _pwritev(self, count: int, fd: int, pieces: list[Any], position: int) -> bool:
        return self._write(count, fd, b"".join(pieces), position)

    def _ftruncate(self, _: None, fd: int, size: int) -> bool:
        node = self._files.get(fd)
        if isinstance(node, File):
            node.unsynced.append(size)
        return node is not None

    def _fsync(self, _: None, fd: int) -> bool:
        node = self._files.get(fd)
        if isinstance(node, File):
            node.synced = node.survivor(random.Random(0), share=1.0)
        elif node is not None:
            node.synced = node.now
        if node is not None:
            node.unsynced.clear()
        return node is not None

    def _mkdir(self, _: None, path: Any, *__: Any) -> bool:
        folder, name = self._find(path)
        if folder is not None:
            folder.change(name, Folder())
        return folder is not None

    def _unlink(self, _: None, path: Any) -> bool:
        folder, name = self._find(path)
        if folder is not None:
            folder.change(name, None)
        return folder is not None

    def _rename(self, _: None, source: Any, target: Any) -> bool:
        folder, name = self._find(source)
        into, as_name = self._find(target)
        if folder is None or into is None:
            return False
        node = folder.now[name]
        if folder is into:
            folder.change(as_name, node, leaves=name)
        else:
            into.change(as_name, node)
            folder.change(name, None)
        return True
