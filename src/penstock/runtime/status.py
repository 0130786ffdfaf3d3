"""What can be told of a running app: a file beside its nodes, written when something changes.

That is once a second at most, and every few seconds when nothing does: who reads it knows by that
whether the app is alive.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from penstock import clock

# A node is building until it has once seen all that there was in its inputs.
State = Literal["starting", "building", "running", "waiting", "failed", "stopped"]
# A silent app has a process that has stopped telling; of one that is gone there is not even that.
Life = Literal["running", "silent", "gone", "stopped"]
STATUS_FILE = "status.json"
_STALE_MS = 10_000


@dataclass
class InputStatus:
    """One input of a node: `next` and `end` by partition, and what became of its rows.

    `clocks` has each partition's own clock in microseconds, null where it has none yet, `moved_ms`
    is when anything was last read of it, and `source` the options that its rows are read with.
    """

    name: str
    topic: str
    clock: int | None = None
    timed: bool = False
    next: dict[str, int] = field(default_factory=dict)
    end: dict[str, int] = field(default_factory=dict)
    clocks: dict[str, int | None] = field(default_factory=dict)
    idle_after: int | None = None
    marks: int = 0
    read: int = 0
    kept: int = 0
    stragglers: int = 0  # of those kept: they came after the clock, and correct
    rejected: dict[str, int] = field(default_factory=dict)
    rejected_share: float | None = None  # of the rows read lately; None when they were few
    rejected_alarm: float | None = None  # the share that is too much
    moved_ms: int | None = None
    source: dict[str, str] = field(default_factory=dict)

    @property
    def alarm(self) -> str:
        """What is to be told when too many rows are rejected, "" otherwise."""
        share, most = self.rejected_share, self.rejected_alarm
        if share is None or most is None or share <= most:
            return ""
        return (
            f"{percent(share)} of the rows of {self.name} read lately were rejected, more than "
            f"{percent(most)}"
        )

    @property
    def lag(self) -> int:
        return sum(end - self.next.get(number, 0) for number, end in self.end.items())


@dataclass
class NodeStatus:
    name: str
    state: State = "starting"
    since_ms: int = 0  # when that state began
    generation: int = 1
    batch: int = -1
    batch_ms: int = 0
    rows_per_second: float = 0.0
    late: int = 0  # rows that were kept, and came after the windows they belong to were let go
    dropped: int = 0  # rows that were left out, as duplicates are
    corrected: int = 0  # results that were taken back after they had been given out for good
    uncomputable: dict[str, int] = field(default_factory=dict)  # rows, by what went wrong with them
    inputs: list[InputStatus] = field(default_factory=list)
    restarts: int = 0
    retry_at: int | None = None  # milliseconds since 1970
    error: str = ""
    output: str = ""
    query: str = ""  # that it runs in, with others
    built: int = 0  # rows that its query has read of its inputs, while it is building
    to_build: int = 0  # and the rows that there are

    def turn(self, state: State) -> None:
        if state != self.state or not self.since_ms:
            self.since_ms = clock.now_ms()
        self.state = state

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.inputs)

    @property
    def progress(self) -> int:
        """Of one that is building, in percent; 100 is never told, as it is over then."""
        return min(99, 100 * self.built // self.to_build) if self.to_build else 0

    @property
    def read(self) -> int:
        return sum(each.read for each in self.inputs)

    @property
    def kept(self) -> int:
        return sum(each.kept for each in self.inputs)

    @property
    def rejected(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for each in self.inputs:
            total.update(each.rejected)
        if self.late:
            total["after its window"] = self.late
        total.update(self.uncomputable)
        return total

    @property
    def clock(self) -> int | None:
        """The least of the inputs that have a clock, in microseconds."""
        clocks = [each.clock for each in self.inputs if each.timed]
        if not clocks or None in clocks:
            return None
        return min(clock for clock in clocks if clock is not None)


@dataclass
class AppStatus:
    app: str
    pid: int
    started_ms: int
    written_ms: int
    nodes: list[NodeStatus] = field(default_factory=list)
    stopping: bool = False
    stopped: bool = False
    error: str = ""  # why it stopped, when nobody asked it to
    file: str = ""  # the one that makes the app, if it was started by that
    address: str = ""  # where its views are served over HTTP
    views_error: str = ""  # why its views are not brought up to date
    spark_died: str = ""  # how Spark's Java ended when it last did by itself
    spark_died_ms: int = 0

    def life(self) -> Life:
        if self.stopped:
            return "stopped"
        if not _is_there(self.pid):
            return "gone"
        starts = all(node.state == "starting" for node in self.nodes)  # which takes long
        is_fresh = clock.now_ms() - self.written_ms < _STALE_MS
        return "running" if is_fresh or starts else "silent"

    @property
    def failing(self) -> list[NodeStatus]:
        """Those that failed, also while they are tried again and have not got any further."""
        return [node for node in self.nodes if node.state == "failed" or node.error]

    @property
    def alarms(self) -> list[tuple[NodeStatus, InputStatus]]:
        """The inputs of which too many rows are rejected, in nodes that go on."""
        states = "building", "running", "waiting"
        going = [node for node in self.nodes if node.state in states]
        return [(node, each) for node in going for each in node.inputs if each.alarm]

    def facts(self) -> str:
        """All that it tells, but for when; in JSON, to be compared."""
        return _json(vars(self) | {"written_ms": None})

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"{STATUS_FILE}.tmp"
        fresh.write_text(_json(vars(self)))
        fresh.replace(folder / STATUS_FILE)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None for an app that has never run."""
        try:
            content: dict[str, Any] = json.loads((folder / STATUS_FILE).read_text())
        except FileNotFoundError:
            return None
        nodes = [
            NodeStatus(**node | {"inputs": [InputStatus(**each) for each in node["inputs"]]})
            for node in content["nodes"]
        ]
        return cls(**content | {"nodes": nodes})


def _json(content: dict[str, Any]) -> str:
    # dataclasses.asdict copies all of it first, which takes ten times as long.
    return json.dumps(content, default=vars)


def percent(share: float) -> str:
    """5 %, 5.04 %, 100 %"""
    return f"{100 * share:.3g} %"


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        pass
    return True
