"""A node without Spark: it writes batches of upserts to a real log, and commits them when told."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.cimpl import murmur2

from penstock import Log, Record
from penstock.events.schema import parse_schema
from penstock.serve.changelog import Spans, ViewSource
from penstock.serve.projector import Goal, Projector
from penstock.serve.reading import opened

SCHEMA = "country string, total double, orders long"
Row = dict[str, Any]


@dataclass
class Batches:
    """What Spark would know of the node's batches."""

    committed: int = -1
    times: dict[int, int] = field(default_factory=dict)
    spans: dict[int, Spans] = field(default_factory=dict)
    ends: dict[int, dict[str, dict[int, int]]] = field(default_factory=dict)

    def committed_ms(self, batch: int) -> int | None:
        return self.times.get(batch)

    def read_by(self, batch: int) -> Spans:
        return self.spans.get(batch, {})

    def wrote(self, batch: int, topic: str, ends: dict[int, int]) -> None:
        before = self.ends[max(self.ends)] if self.ends else {}
        now = self.ends.setdefault(batch, {name: dict(each) for name, each in before.items()})
        now.setdefault(topic, {}).update(ends)

    def ends_at(self, batch: int) -> dict[str, dict[int, int]] | None:
        return self.ends.get(batch)


class Scene:
    def __init__(self, log: Log, folder: Path, *, topic: str = "revenue", partitions: int = 2):
        self.log = log
        self.folder = folder
        self.topic = topic
        self.partitions = partitions
        self.path = folder / "apps" / "shop" / "views.sqlite"
        self.batches: Batches | Any = Batches()
        log.create(topic, partitions=partitions, retention_ms=-1)
        self._writer = log.open_writer(f"shop.{topic}")

    def publish(self, batch: int, rows: Mapping[str, Row | None]) -> dict[int, range | None]:
        """Writes a batch: a row for each country, None where it is gone. Returns the offsets."""
        records: dict[int, list[Record]] = defaultdict(list)
        for country, row in rows.items():
            value = None if row is None else json.dumps({"country": country, **row}).encode()
            key = country.encode()
            records[murmur2(key, self.partitions)].append(Record(key=key, value=value))
        appended = self._writer.append(self.topic, records, batch=batch)
        ends = {n: each.stop for n, each in appended.items() if each is not None}
        if isinstance(self.batches, Batches):  # and not a folder, which is written otherwise
            self.batches.wrote(batch, self.topic, ends)
        return appended

    def commit(self, batch: int, rows: Mapping[str, Row | None] | None = None) -> None:
        """Writes a batch, if there are rows, and lets it count."""
        if rows is not None:
            self.publish(batch, rows)
        self.batches.committed = batch

    def source(self, name: str = "revenue", **facts: Any) -> ViewSource:
        whole: dict[str, Any] = {
            "log": str(self.folder),
            "topic": self.topic,
            "schema": parse_schema(SCHEMA),
            "key": ("country",),
            "batches": self.batches,
        }
        return ViewSource(name, **whole | facts)

    @contextmanager
    def projector(self, **facts: Any) -> Iterator[Projector]:
        with Projector(self.path, [self.source(**facts)], lambda view: None) as projector:
            yield projector

    def project(self, **facts: Any) -> None:
        with self.projector(**facts) as projector:
            projector.catch_up()

    def rows(self, sql: str = "select * from revenue order by country") -> list[tuple[Any, ...]]:
        with opened(self.path) as reader:
            return list(reader.select(sql)[1])


class Moment(NamedTuple):
    """What a reader sees of a view in one transaction."""

    batch: int
    at_ms: int
    totals: dict[str, float]


class Several:
    """Views of one group, each with a topic of its own name."""

    def __init__(self, log: Log, folder: Path, names: str) -> None:
        self.scenes = {name: Scene(log, folder, topic=name) for name in names.split()}
        first = next(iter(self.scenes.values()))
        self.path, self.batches = first.path, first.batches
        for scene in self.scenes.values():
            scene.batches = self.batches

    def publish(self, batch: int, changes: Mapping[str, Mapping[str, Row | None]]) -> None:
        for view, rows in changes.items():
            self.scenes[view].publish(batch, rows)

    def commit(
        self, batch: int, changes: Mapping[str, Mapping[str, Row | None]] | None = None
    ) -> None:
        self.publish(batch, changes or {})
        self.batches.committed = batch

    def sources(self, **facts: Any) -> list[ViewSource]:
        return [scene.source(name, group="g", **facts) for name, scene in self.scenes.items()]

    @contextmanager
    def projector(self, goal: Goal = lambda view: None, **facts: Any) -> Iterator[Projector]:
        with Projector(self.path, self.sources(**facts), goal) as projector:
            yield projector

    def project(self, **facts: Any) -> None:
        with self.projector(**facts) as projector:
            projector.catch_up()

    def seen(self) -> dict[str, Moment]:
        """All views that are shown, read in one transaction."""
        found = {}
        with opened(self.path) as reader:
            for kept in reader.views():
                rows = reader.select(f'select country, total from "{kept.name}"')[1]
                found[kept.name] = Moment(kept.batch, kept.at_ms, dict(rows))
        return found
