"""A node without Spark: it writes batches of upserts to a real log, and commits them when told."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import murmur2

from penstock import Log, Record
from penstock.events.schema import parse_schema
from penstock.serve.changelog import Spans, ViewSource
from penstock.serve.projector import Projector
from penstock.serve.reading import opened

SCHEMA = "country string, total double, orders long"
Row = dict[str, Any]


@dataclass
class Batches:
    """What Spark would know of the node's batches."""

    committed: int = -1
    times: dict[int, int] = field(default_factory=dict)
    spans: dict[int, Spans] = field(default_factory=dict)

    def committed_ms(self, batch: int) -> int | None:
        return self.times.get(batch)

    def read_by(self, batch: int) -> Spans:
        return self.spans.get(batch, {})


class Scene:
    def __init__(self, log: Log, folder: Path, *, topic: str = "revenue", partitions: int = 2):
        self.log = log
        self.folder = folder
        self.topic = topic
        self.partitions = partitions
        self.path = folder / "apps" / "shop" / "views.sqlite"
        self.batches = Batches()
        log.create(topic, partitions=partitions, retention_ms=-1)
        self._writer = log.open_writer(f"shop.{topic}")

    def publish(self, batch: int, rows: Mapping[str, Row | None]) -> None:
        """Writes a batch: a row for each country, None where it is gone."""
        records: dict[int, list[Record]] = defaultdict(list)
        for country, row in rows.items():
            value = None if row is None else json.dumps({"country": country, **row}).encode()
            key = country.encode()
            records[murmur2(key, self.partitions)].append(Record(key=key, value=value))
        self._writer.append(self.topic, records, batch=batch)

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
