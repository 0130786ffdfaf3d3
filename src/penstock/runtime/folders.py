"""What an app keeps under its data folder, and whether a node's code still fits it.

<data>/apps/<app>/lock            held by the process that runs the app
<data>/apps/<app>/status.json     what `penstock status` shows
<data>/apps/<app>/views.sqlite    the tables of its views
<data>/apps/<app>/<node>/current  the generation that is in use
<data>/apps/<app>/<node>/1/       checkpoint and state of a generation, node.json, and the plan
                                  of a view by SQL, plan.txt
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ForeignCheckpoint, NodeChanged

VIEWS_FILE = "views.sqlite"
_NONE = -1  # before the first batch


def app_folder(data: Path, app: str) -> Path:
    return data / "apps" / app


def apps_in(data: Path) -> list[str]:
    """Those that have run here, by name."""
    return sorted(each.name for each in (data / "apps").glob("*/") if each.is_dir())


@dataclass(frozen=True)
class NodeFolder:
    """The folder of one node; on a cluster it lies where all its machines reach it."""

    app: str
    node: str
    path: Path

    @property
    def generation(self) -> int:
        try:
            return int((self.path / "current").read_text())
        except FileNotFoundError:
            return 1

    def advance(self) -> None:
        """Begins a new generation beside the one there is."""
        self.path.mkdir(parents=True, exist_ok=True)
        fresh = self.path / "current.tmp"
        fresh.write_text(str(self.generation + 1))
        fresh.replace(self.path / "current")

    def clear(self) -> None:
        """Forgets the present generation."""
        if self.home.exists():
            shutil.rmtree(self.home)

    @property
    def home(self) -> Path:
        return self.path / str(self.generation)

    @property
    def checkpoint(self) -> str:
        """Absolute: what a host keeps warm is found by it, whichever folder a process is in."""
        return str((self.home / "checkpoint").absolute())

    @property
    def planned(self) -> int:
        """The last batch that Spark has planned, -1 before the first."""
        return last_batch(Path(self.checkpoint) / "offsets")

    @property
    def committed(self) -> int:
        return last_batch(Path(self.checkpoint) / "commits")

    @property
    def state(self) -> str:
        """The address of what its operators keep."""
        return f"{self.checkpoint}/state"

    def committed_ms(self, batch: int) -> int | None:
        """When a batch was committed; None when Spark has forgotten it."""
        try:
            return (Path(self.checkpoint) / "commits" / str(batch)).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def read_by(self, batch: int) -> dict[str, dict[int, tuple[int, int]]]:
        """By topic and partition, the first offset that a batch has read and the one after the
        last; empty when Spark has forgotten it."""
        facts = self.facts()
        try:
            lines = (Path(self.checkpoint) / "offsets" / str(batch)).read_text().splitlines()[2:]
        except FileNotFoundError:
            return {}
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for offset in map(json.loads, lines):
            topic = (facts or {}).get("sources", {}).get(offset["source"])
            if topic is None:
                continue
            spans = found.setdefault(topic, {})
            for number, at in offset["partitions"].items():
                begin, end = at["at"], at["next"]
                # A topic may be read twice, as what is kept of it and what is rejected.
                before = spans.get(int(number), (begin, end))
                spans[int(number)] = (min(begin, before[0]), min(end, before[1]))
        return found

    def sweep(self) -> None:
        """Removes what a crash left of a first batch that never began.

        Spark writes the offsets of a batch under another name first, and refuses to begin where
        it finds that.
        """
        offsets = Path(self.checkpoint) / "offsets"
        if offsets.is_dir() and not any(offsets.glob("[0-9]*")):
            for left in offsets.iterdir():
                left.unlink()

    def versioned(self, topic: str) -> str:
        """The topic that this generation writes."""
        return topic if self.generation == 1 else f"{topic}-v{self.generation}"

    def facts(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.home / "node.json").read_text())
        except FileNotFoundError:
            return None
        return found

    def settle(self, facts: dict[str, Any]) -> None:
        """Writes down what the node is at its first start; later, refuses what does not fit that.

        Raises NodeChanged with what changed, and ForeignCheckpoint.
        """
        facts = {"app": self.app, "node": self.node, **json.loads(json.dumps(facts))}
        before = self.facts()
        if before is None:
            if Path(self.checkpoint).is_dir() and any(Path(self.checkpoint).iterdir()):
                raise ForeignCheckpoint(
                    f"{self.checkpoint} holds a checkpoint, and not of a node of this app",
                    hint=f"move it away, or start with --reset {self.node}",
                )
            self.home.mkdir(parents=True, exist_ok=True)
            self._write(facts)
            return
        if (before["app"], before["node"]) != (self.app, self.node):
            raise ForeignCheckpoint(
                f"{self.home} belongs to node {before['node']!r} of app {before['app']!r}",
                hint="give this app another name or another data folder",
            )
        changes = list(_differences(before, facts))
        if changes:
            raise NodeChanged(
                f"node {self.node!r} is not what it was when it began: {'; '.join(changes[:3])}",
                hint=f"--rebuild {self.node} builds it anew from the beginning of its inputs, "
                f"beside the old one; --reset {self.node} forgets the old one first",
            )

    @property
    def plan(self) -> Path:
        """Where the plan of a view by SQL is noted: a line for each operator, which ends with the
        names that its state has, in brackets."""
        return self.home / "plan.txt"

    def rescaled(self, buckets: int) -> None:
        """Writes down that the state is in another number of buckets now."""
        self._write((self.facts() or {}) | {"buckets": buckets})

    def _write(self, facts: dict[str, Any]) -> None:
        fresh = self.home / "node.json.tmp"
        fresh.write_text(json.dumps(facts, indent=1))
        fresh.replace(self.home / "node.json")


def last_batch(folder: Path) -> int:
    """The highest number in a log of Spark's, -1 if there is none."""
    names = folder.iterdir() if folder.is_dir() else ()
    return max((int(each.name) for each in names if each.name.isdigit()), default=_NONE)


def _differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before.keys() | now.keys():
            inner = f"{path}.{name}" if path else str(name)
            if name not in before:
                yield f"{inner} is new"
            elif name not in now:
                yield f"{inner} is gone"
            else:
                yield from _differences(before[name], now[name], inner)
    elif before != now:
        yield f"{path} was {json.dumps(before)} and is {json.dumps(now)}"
