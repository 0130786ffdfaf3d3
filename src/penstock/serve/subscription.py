"""The changes of a view as they come, each with an id from which a reader can go on later."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock import clock
from penstock.errors import InvalidInput
from penstock.events.schema import parse_schema
from penstock.serve.catalog import Kept
from penstock.serve.columns import sql_values
from penstock.serve.reading import opened
from penstock.streams.source.progress import Progress
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import SourceTopic, made_again, open_topic

_AT_ONCE = 10_000  # records of a partition between two looks at whether anybody still listens
_ID = re.compile(r"(\d{1,18}):((?:\d{1,9}=\d{1,18}(?:,\d{1,9}=\d{1,18})*)?)")


@dataclass(frozen=True)
class Event:
    """`kind` is upsert, with the row; delete, with the columns of its key; or rebuilt: the view was
    built anew, and what was read of it before is to be read again."""

    id: str
    kind: str
    data: str

    def encode(self) -> bytes:
        return f"id: {self.id}\nevent: {self.kind}\ndata: {self.data}\n\n".encode()


class _Source(NamedTuple):
    """What the changes of a table, by its id, are read with."""

    table: int
    topic: SourceTopic
    reader: RowReader


class Subscription:
    """Follows what the view's table has, so that no change is told before it can be read.

    Belongs to one thread at a time. The topic stays open between two polls, as over the wire that
    is a client with connections of its own; `close` ends it.
    """

    def __init__(
        self, path: Path, log: str, view: str, *, after: str = "", from_start: bool = False
    ) -> None:
        """After the event of that id; otherwise from now on, or from the view's beginning. Raises
        UnknownName, InvalidInput."""
        self._path = path
        self._log = log
        self._view = view
        self._source: _Source | None = None
        kept = self._kept()
        self._table = kept.id
        self._offsets = {} if from_start else dict(kept.offsets)
        if after:
            found = _ID.fullmatch(after)
            if found is None:
                raise InvalidInput(f"{after!r} is no id of an event", hint="give one that came")
            self._table = int(found[1])
            pairs = (each.split("=") for each in found[2].split(",") if each)
            self._offsets = {int(number): int(offset) for number, offset in pairs}

    def _kept(self) -> Kept:
        with opened(self._path) as reader:
            return reader.find(self._view)

    def poll(self) -> Iterator[Event]:
        """The changes that came since; more may be left for the next call."""
        kept = self._kept()
        if kept.id != self._table:
            self._table, self._offsets = kept.id, dict(kept.offsets)
            yield Event(self._id(), "rebuilt", json.dumps({"view": kept.name}))
        if all(self._offsets.get(n, 0) >= end for n, end in kept.offsets.items()):
            return
        topic, reader = self._opened(kept)
        try:
            for number, end in kept.offsets.items():
                begin = max(self._offsets.get(number, 0), topic.bounds(number).start)
                until = min(end, begin + _AT_ONCE)
                wanted = Range(number, until, Progress(begin), clock.now_ms())
                for rows in reader.read(topic, wanted):
                    columns = [sql_values(rows[each.name], each.form) for each in kept.columns]
                    offsets, deleted = rows["_offset"].to_pylist(), rows["_deleted"].to_pylist()
                    for place, values in enumerate(zip(*columns, strict=True)):
                        self._offsets[number] = offsets[place] + 1
                        yield self._event(kept, values, is_gone=deleted[place])
                self._offsets[number] = max(until, begin)
        except Exception:
            self.close()  # the next poll connects anew
            raise

    def _opened(self, kept: Kept) -> tuple[SourceTopic, RowReader]:
        """Raises DataLost when the topic is no longer the one that the table was made of."""
        if self._source is not None and self._source.table != kept.id:
            self.close()
        if self._source is None:
            spec = SourceSpec(
                log=self._log,
                topic=kept.topic,
                schema=parse_schema(kept.schema),
                key=kept.key,
                metadata=("offset",),
            )
            topic = open_topic(self._log, kept.topic, kept.identity)
            self._source = _Source(kept.id, topic, RowReader(spec))
        elif str(self._source.topic.id) != kept.identity:
            self.close()
            raise made_again(kept.topic)
        return self._source.topic, self._source.reader

    def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.topic.close()

    def _event(self, kept: Kept, values: tuple[object, ...], *, is_gone: bool) -> Event:
        row = kept.as_json(values)
        if is_gone:
            row = {name: row[name] for name in row if name in kept.key}
        return Event(self._id(), "delete" if is_gone else "upsert", json.dumps(row))

    def _id(self) -> str:
        at = ",".join(f"{number}={offset}" for number, offset in sorted(self._offsets.items()))
        return f"{self._table}:{at}"
