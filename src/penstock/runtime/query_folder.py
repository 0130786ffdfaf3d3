"""What a query keeps of its batches: a plan before a batch runs, and a commit when it is published.

<data>/apps/<app>/@queries/<query>/query.json   its number of buckets
<data>/apps/<app>/@queries/<query>/begin.json   where it began to read each source
<data>/apps/<app>/@queries/<query>/offsets/7    what batch 7 reads
<data>/apps/<app>/@queries/<query>/commits/7    what it left
<data>/apps/<app>/@state/<operator>/            what operators keep, whichever query they are in

All of it is durable when it is written, as what operators keep and what the log holds is. After any
crash, a batch that was planned and not committed is run again by its plan.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import ForeignCheckpoint
from penstock.log.storage.files import make_folder, write_atomically
from penstock.streams.source.offsets import SourceOffset

QUERIES, STATE = "@queries", "@state"
BESIDE = "@beside"  # how queries are called whose nodes have yet to catch up with the main one
KEPT_BATCHES = 100
NONE = -1  # before the first batch

Spans = dict[str, dict[int, tuple[int, int]]]


@dataclass
class PlannedBatch:
    """`offsets` has a part for each source, by name, `topics` the topics those are of, and `clocks`
    the clock of each before this batch. `versions` says where each bucket of an operator begins,
    and `promises` what the topics of nodes are told of their clock."""

    batch: int
    planned_ms: int
    offsets: dict[str, SourceOffset]
    topics: dict[str, str]
    clocks: dict[str, int | None]
    versions: dict[str, list[int]]
    promises: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        offsets = {name: each.as_json() for name, each in self.offsets.items()}
        return {**self.__dict__, "offsets": offsets}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "PlannedBatch":
        offsets = {n: SourceOffset.from_json(each) for n, each in content["offsets"].items()}
        return cls(**{**content, "offsets": offsets})

    @property
    def spans(self) -> Spans:
        """By topic and partition, the first offset that the batch reads and the one after the
        last; of a topic that is read twice, what both readers have."""
        found: Spans = {}
        for name, offset in self.offsets.items():
            spans = found.setdefault(self.topics[name], {})
            for number, end in offset.next.items():
                begin = offset.progress[number].at
                before = spans.get(number, (begin, end))
                spans[number] = (min(begin, before[0]), min(end, before[1]))
        return found


@dataclass
class CommittedBatch:
    """`offsets` are where each source is at the end of the batch, with the progress there; `ends`
    are the next offsets of the topics that it writes, `marks` how many records of those are
    punctuation, and `counts` what operators counted so far, by bucket. `nodes` are those that the
    query has, with their generations; `rejected` counts by node and reason the rows of which a
    value could not be computed."""

    batch: int = NONE
    offsets: dict[str, SourceOffset] = field(default_factory=dict)
    versions: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    counts: dict[str, list[list[int]]] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        offsets = {name: each.as_json() for name, each in self.offsets.items()}
        return {**self.__dict__, "offsets": offsets}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "CommittedBatch":
        offsets = {n: SourceOffset.from_json(each) for n, each in content["offsets"].items()}
        ends = {topic: _by_number(parts) for topic, parts in content["ends"].items()}
        return cls(**{**content, "offsets": offsets, "ends": ends})


@dataclass(frozen=True)
class QueryFolder:
    """On a cluster it lies where all its machines reach it."""

    app: Path
    name: str

    @property
    def path(self) -> Path:
        return self.app / QUERIES / self.name

    @property
    def planned(self) -> int:
        """The last batch that was planned, -1 before the first."""
        # Nodes that came from another query have a commit to begin with, and no plan.
        return max(last_batch(self.path / "offsets"), self.committed)

    @property
    def committed(self) -> int:
        return last_batch(self.path / "commits")

    def plan(self, batch: int) -> PlannedBatch | None:
        """None for one that is not kept any more."""
        content = self._read(f"offsets/{batch}")
        return None if content is None else PlannedBatch.from_json(content)

    def commit(self, batch: int) -> CommittedBatch | None:
        content = self._read(f"commits/{batch}")
        return None if content is None else CommittedBatch.from_json(content)

    def write_plan(self, planned: PlannedBatch) -> None:
        self._write(f"offsets/{planned.batch}", planned.as_json())

    def write_commit(self, committed: CommittedBatch) -> None:
        """Also forgets batches that are long over."""
        self._write(f"commits/{committed.batch}", committed.as_json())
        for name in ("offsets", "commits"):
            (self.path / name / str(committed.batch - KEPT_BATCHES)).unlink(missing_ok=True)

    def committed_ms(self, batch: int) -> int | None:
        """When a batch was committed; None for one that is not kept any more."""
        try:
            return (self.path / "commits" / str(batch)).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def read_by(self, batch: int) -> Spans:
        """By topic and partition, what a batch has read, topics that the query writes itself among
        them: what it writes is read in the same batch."""
        planned, committed = self.plan(batch), self.commit(batch)
        if planned is None:
            return {}
        written = committed.ends if committed else {}
        own = {t: {n: (0, end) for n, end in ends.items()} for t, ends in written.items()}
        return own | planned.spans

    def ends_at(self, batch: int) -> dict[str, dict[int, int]] | None:
        """By topic, where a batch ended in what the query writes; None for one that is not kept."""
        committed = self.commit(batch)
        return None if committed is None else committed.ends

    @property
    def buckets(self) -> int | None:
        """None before it first started."""
        content = self._read("query.json")
        return None if content is None else int(content["buckets"])

    @property
    def nodes(self) -> dict[str, int]:
        """Those that run in it, with their generations."""
        committed = self.commit(self.committed)
        if committed is not None:
            return committed.nodes
        found: dict[str, int] = (self._read("query.json") or {}).get("nodes", {})
        return found

    def settle(self, buckets: int, nodes: Mapping[str, int]) -> None:
        self._write("query.json", {"buckets": buckets, "nodes": dict(nodes)})

    @property
    def unprimed(self) -> list[str]:
        """The sources whose table has to be read before anything else: the topic of a node that was
        in the same query before."""
        found: list[str] = (self._read("prime.json") or {}).get("sources", [])
        return found

    def prime(self, sources: Sequence[str]) -> None:
        self._write("prime.json", {"sources": list(sources)})

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def rescale(self, committed: CommittedBatch, buckets: int) -> None:
        """Notes that the state is in another number of buckets."""
        self.write_commit(committed)
        self.settle(buckets, committed.nodes)

    @property
    def drawing(self) -> dict[str, Any] | None:
        """What the query was made of when it last started."""
        return self._read("graph.json")

    def draw(self, drawing: Mapping[str, Any]) -> None:
        self._write("graph.json", dict(drawing))

    def begins(self) -> dict[str, Any]:
        """The offsets that sources began with."""
        return self._read("begin.json") or {}

    def write_begins(self, begins: Mapping[str, Any]) -> None:
        self._write("begin.json", dict(begins))

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except ValueError as damaged:
            raise ForeignCheckpoint(
                f"{self.path / name} is damaged: {damaged}",
                hint="restore it from a copy, or start the nodes of the query with --reset",
            ) from damaged
        return found

    def _write(self, name: str, content: dict[str, Any]) -> None:
        path = self.path / name
        if not path.parent.is_dir():
            make_folder(path.parent)
        write_atomically(path, json.dumps(content).encode())


def last_batch(folder: Path) -> int:
    """The highest number among the files of a folder, -1 if there is none."""
    names = folder.iterdir() if folder.is_dir() else ()
    return max((int(each.name) for each in names if each.name.isdigit()), default=NONE)


def _by_number(parts: Mapping[str, int]) -> dict[int, int]:
    return {int(number): value for number, value in parts.items()}
