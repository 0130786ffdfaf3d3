"""Offsets of a source, which carry its clock: they are durable before a batch runs, so that one
which is run again sees the same.

    {"source": "orders", "topic": "<uuid>", "planned": 1794736980000, "clock": 1794736970000000,
     "partitions": {"0": {"next": 42, "at": 30, "high": ..., "rejected": {"late": 1}, ...}}}

`next` is where the batch ends, and the rest is the progress at `at`, where it begins: the clock of
a batch is what the batches before it have seen. A source without event time has no clock. When
progress alone moves the clock, a batch of no rows follows.

In an app, offsets and progress are in the plans and commits of its queries. In a streaming query of
Spark's own, Spark keeps the offsets, and each range leaves its progress in a file, which the
planning of the next batch picks up.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self
from uuid import uuid4

import fsspec

from penstock.errors import ForeignCheckpoint
from penstock.streams.source.event_time import Rule
from penstock.streams.source.progress import Progress

_FILE = re.compile(r"(\d+)-(\d+)\.json.*")


@dataclass(slots=True)
class SourceOffset:
    source: str
    topic: str
    planned: int
    clock: int | None
    next: dict[int, int]
    progress: dict[int, Progress]
    timed: bool

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "topic": self.topic,
            "planned": self.planned,
            **({"clock": self.clock} if self.timed else {}),
            "partitions": {
                str(number): {"next": self.next[number], **progress.as_json()}
                for number, progress in sorted(self.progress.items())
            },
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        partitions = content["partitions"].items()
        return cls(
            content["source"],
            content["topic"],
            content["planned"],
            content.get("clock"),
            {int(number): entry["next"] for number, entry in partitions},
            {int(number): Progress.from_json(entry) for number, entry in partitions},
            "clock" in content,
        )

    @property
    def is_settled(self) -> bool:
        """Whether the progress is that of the end."""
        return all(self.next[number] == each.at for number, each in self.progress.items())


def clock_of(
    progress: dict[int, Progress], rule: Rule, idle: frozenset[int], before: int | None
) -> int | None:
    """The least of the partitions that are not idle; it never goes back.

    When all are, none holds the others back, and it is the highest: as if they had fallen silent
    one after the other, that one last.
    """
    clocks = {number: each.clock(rule) for number, each in progress.items()}
    awake = [clock for number, clock in clocks.items() if number not in idle]
    if None in awake:
        return before
    known = [clock for clock in awake if clock is not None]
    silent = [clock for clock in clocks.values() if clock is not None]
    reached = [min(known)] if known else [max(silent)] if silent else []
    return max([*reached, *([] if before is None else [before])], default=None)


class Totals(NamedTuple):
    read: int
    kept: int
    stragglers: int
    rejected: Counter[str]


def totals(progress: Mapping[int, Progress]) -> Totals:
    """What became of the rows of all partitions."""
    rejected: Counter[str] = Counter()
    for each in progress.values():
        rejected.update(each.rejected)
    read, kept, stragglers = (
        sum(getattr(each, name) for each in progress.values()) for name in Totals._fields[:3]
    )
    return Totals(read, kept, stragglers, rejected)


def clock_of_batch(checkpoint: str, batch: int) -> int | None:
    """The clock of a query in a batch: the least of its sources that have one, or None.

    It is read from what Spark wrote before the batch began. A source without a clock, such as one
    that is not ours, has the query's watermark for it, if there is one.
    """
    about, offsets = _planned(checkpoint, batch)
    clocks: list[int | None] = []
    for offset in offsets:
        if offset is not None and "clock" in offset:
            clocks.append(offset["clock"])
        elif watermark := about.get("batchWatermarkMs"):
            clocks.append(watermark * 1_000)
    return least_clock(clocks)


def least_clock(clocks: Sequence[int | None]) -> int | None:
    """None without clocks, and as long as one of them is not known."""
    if not clocks or None in clocks:
        return None
    return min(clock for clock in clocks if clock is not None)


def time_of_batch(checkpoint: str, batch: int) -> int:
    """The wall time at which a batch was planned, in microseconds; that of a batch which is run
    again is the same."""
    planned: int = _planned(checkpoint, batch)[0]["batchTimestampMs"]
    return planned * 1_000


def has_idle_source(checkpoint: str, batch: int) -> bool:
    """Whether a source of the query had nothing new in this batch, as far as Spark remembers it."""
    try:
        now = _planned(checkpoint, batch)[1]
        before = _planned(checkpoint, batch - 1)[1] if batch else [_unread(each) for each in now]
    except FileNotFoundError:
        return True
    return any(each is None or each == earlier for each, earlier in zip(now, before, strict=True))


def _unread(offset: dict[str, Any] | None) -> dict[str, Any] | None:
    """The offset itself, if nothing was read up to it."""
    parts = offset["partitions"].values() if offset else ()
    return offset if all(each["next"] == each["at"] for each in parts) else None


def _planned(checkpoint: str, batch: int) -> tuple[dict[str, Any], list[dict[str, Any] | None]]:
    """What Spark noted of a batch, and the offset of each source; None of one that is not ours."""
    files, path = fsspec.core.url_to_fs(checkpoint)
    lines = files.cat_file(f"{path.rstrip('/')}/offsets/{batch}").decode().splitlines()
    offsets: list[dict[str, Any] | None] = []
    for line in lines[2:]:
        try:
            content = json.loads(line)
        except ValueError:
            content = None
        is_ours = isinstance(content, dict) and {"source", "partitions"} <= content.keys()
        offsets.append(content if is_ours else None)
    return json.loads(lines[1]), offsets


class KeptProgress(Protocol):
    """Where the planning of a batch finds what the ranges of the batches before have left."""

    def read_first(self) -> dict[str, Any] | None:
        """The offset that the source began with, None before it did."""

    def write_first(self, offset: dict[str, Any]) -> None: ...

    def read(self, partition: int, end: int) -> Progress:
        """Raises ForeignCheckpoint when nothing was left there."""

    def forget_before(self, begins: Mapping[int, int]) -> None:
        """What lies before these offsets is not asked for again."""


class ProgressFiles:
    """Where ranges leave their progress: a file for each partition and end, on any file system.

    What stands in it is a function of the log, so a task that runs twice writes the same.
    """

    def __init__(self, checkpoint: str, source: str) -> None:
        self._files, path = fsspec.core.url_to_fs(checkpoint)
        self._folder = f"{path.rstrip('/')}/progress/{source}"

    def _path(self, partition: int, end: int) -> str:
        return f"{self._folder}/{partition}-{end}.json"

    def write(self, partition: int, progress: Progress) -> None:
        self._files.makedirs(self._folder, exist_ok=True)
        path = self._path(partition, progress.at)
        fresh = f"{path}.{uuid4().hex}.tmp"  # another attempt may write at the same time
        self._files.pipe_file(fresh, json.dumps(progress.as_json()).encode())
        self._files.mv(fresh, path)

    def write_first(self, offset: dict[str, Any]) -> None:
        self._files.makedirs(self._folder, exist_ok=True)
        fresh = f"{self._folder}/first.json.tmp"
        self._files.pipe_file(fresh, json.dumps(offset).encode())
        self._files.mv(fresh, f"{self._folder}/first.json")

    def read_first(self) -> dict[str, Any] | None:
        """The offset that the source began with, None before it did."""
        try:
            found: dict[str, Any] = json.loads(self._files.cat_file(f"{self._folder}/first.json"))
        except FileNotFoundError:
            return None
        return found

    def read(self, partition: int, end: int) -> Progress:
        try:
            return Progress.from_json(json.loads(self._files.cat_file(self._path(partition, end))))
        except (FileNotFoundError, ValueError):
            raise ForeignCheckpoint(
                f"{self._path(partition, end)} is missing or damaged: the checkpoint is not whole",
                hint="was its folder copied in part? start the node with --reset",
            ) from None

    def forget_before(self, ends: Mapping[int, int]) -> None:
        """Removes the progress of each of these partitions at offsets before its end."""
        self._files.invalidate_cache()  # others write here too
        try:
            paths = self._files.ls(self._folder, detail=False)
        except FileNotFoundError:
            return
        for path in paths:
            found = _FILE.fullmatch(path.rpartition("/")[2])
            if found and int(found[2]) < ends.get(int(found[1]), 0):
                with contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(path)
