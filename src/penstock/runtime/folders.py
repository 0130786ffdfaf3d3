"""What an app keeps under its data folder, and whether a node's code still fits it.

<data>/apps/<app>/lock            held by the process that runs the app
<data>/apps/<app>/status.json     what `penstock status` shows
<data>/apps/<app>/views.sqlite    the tables of its views
<data>/apps/<app>/renewed.json    the generations that nodes are about to begin, all or none
<data>/apps/<app>/@asked/         what `penstock rebuild` asks the app (asking.py)
<data>/apps/<app>/<node>/current  the generation that is in use
<data>/apps/<app>/<node>/1/       of a generation: what the node is, node.json, and the plan of a
                                  view by SQL, plan.txt
<data>/apps/<app>/@queries/       the batches of its queries (query_folder.py)
<data>/apps/<app>/@state/         what its operators keep
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ForeignCheckpoint, NodeChanged
from penstock.log.storage.files import make_folder, write_atomically
from penstock.runtime.query_folder import NONE, STATE, QueryFolder, Spans

VIEWS_FILE = "views.sqlite"
_RENEWED = "renewed.json"


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

    def begin(self, generation: int) -> None:
        """Goes on with this generation, beside those there are."""
        make_folder(self.path)
        write_atomically(self.path / "current", str(generation).encode())

    def clear(self) -> None:
        """Forgets the present generation."""
        if self.home.exists():
            shutil.rmtree(self.home)

    @property
    def cohort(self) -> str:
        """Sets the state of nodes apart that began at another time, and so from another place."""
        return str((self.facts() or {}).get("cohort", ""))

    @property
    def home(self) -> Path:
        return self.path / str(self.generation)

    @property
    def query(self) -> QueryFolder:
        """That of the query which the node runs in; of none before it first started."""
        return QueryFolder(self.path.parent, (self.facts() or {}).get("query", "none"))

    @property
    def has_begun(self) -> bool:
        """Whether a batch of its query was committed with it."""
        query = self.query
        return query.committed != NONE and query.nodes.get(self.node) == self.generation

    @property
    def committed(self) -> int:
        """The last batch of its query that is done, -1 before the first."""
        return self.query.committed

    def committed_ms(self, batch: int) -> int | None:
        """When a batch was committed; None for one that is not kept any more."""
        return self.query.committed_ms(batch)

    def read_by(self, batch: int) -> Spans:
        """By topic and partition, what its query has read in a batch."""
        return self.query.read_by(batch)

    def ends_at(self, batch: int) -> dict[str, dict[int, int]] | None:
        """By topic, where a batch of its query ended in what that writes."""
        return self.query.ends_at(batch)

    @property
    def state(self) -> str:
        """The address of what operators keep. Absolute: what a host keeps warm is found by it."""
        return str((self.path.parent / STATE).absolute())

    @property
    def operators(self) -> dict[str, str]:
        """What the node's operators are called in their order, and their state in `state`."""
        return dict((self.facts() or {}).get("states", {}))

    @property
    def buckets(self) -> int:
        return self.query.buckets or 1

    def versioned(self, topic: str) -> str:
        """The topic that this generation writes."""
        return topic if self.generation == 1 else f"{topic}-v{self.generation}"

    def facts(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.home / "node.json").read_text())
        except FileNotFoundError:
            return None
        return found

    @property
    def is_whole(self) -> bool:
        """Whether it has once seen all that there was in its inputs."""
        return bool((self.facts() or {}).get("whole"))

    def changes(self, facts: dict[str, Any]) -> list[str]:
        """What of a node that has begun is not as it was, and would have to be."""
        before, now = self.facts() or {}, json.loads(json.dumps(facts))
        return list(_differences(_compared(before), _compared(now)))

    def settle(self, facts: dict[str, Any]) -> None:
        """Writes down what the node is at its first start; later, refuses what does not fit that.

        Raises NodeChanged with what changed, and ForeignCheckpoint.
        """
        facts = {"app": self.app, "node": self.node, **json.loads(json.dumps(facts))}
        before = self.facts()
        if before is None:
            if (self.home / "checkpoint").is_dir():
                raise ForeignCheckpoint(
                    f"{self.home} is of a version of penstock that ran every node by itself",
                    hint=f"--reset {self.node} begins anew; its inputs are kept",
                )
            self.home.mkdir(parents=True, exist_ok=True)
            self._write(facts)
            return
        if (before["app"], before["node"]) != (self.app, self.node):
            raise ForeignCheckpoint(
                f"{self.home} belongs to node {before['node']!r} of app {before['app']!r}",
                hint="give this app another name or another data folder",
            )
        if changes := self.changes(facts):
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

    def note(self, **facts: Any) -> None:
        """Writes down what may change: the query that it runs in, the names of its state."""
        before = self.facts() or {}
        if before | facts != before:
            self._write(before | facts)

    def _write(self, facts: dict[str, Any]) -> None:
        fresh = self.home / "node.json.tmp"
        fresh.write_text(json.dumps(facts, indent=1))
        fresh.replace(self.home / "node.json")


def begin_generations(home: Path, app: str, generations: Mapping[str, int]) -> None:
    """Has nodes go on with these generations, all of them after any crash or none: one that reads
    another would not fit the one that the other is in no more."""
    write_atomically(home / _RENEWED, json.dumps(dict(generations)).encode())
    finish_generations(home, app)


def finish_generations(home: Path, app: str) -> None:
    """Does what a crash has interrupted."""
    try:
        generations: dict[str, int] = json.loads((home / _RENEWED).read_text())
    except FileNotFoundError:
        return
    for name, generation in generations.items():
        NodeFolder(app, name, home / name).begin(generation)
    (home / _RENEWED).unlink()


def _compared(facts: dict[str, Any]) -> dict[str, Any]:
    """What has to stay as it is, of all that is noted of a node."""
    return {name: facts[name] for name in ("sources", "operators", "key", "sql") if name in facts}


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
