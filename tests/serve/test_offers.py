"""Rows that are handed over make the same tables as those that are read from the topics."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.cimpl import murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Log, Record
from penstock.events.formats import format_for
from penstock.events.schema import parse_schema
from penstock.log.writer import Writer
from penstock.serve import offers
from penstock.serve.changelog import Changelog, ViewSource
from penstock.serve.offers import Offer, Offers, Published
from penstock.serve.projector import Projector
from penstock.serve.reading import opened
from penstock.streams.source.keys import encode_keys
from penstock.streams.source.punctuation import punctuation
from tests.serve.scene import Batches

PLAIN = "country string, total double, orders long"
EVERY = (
    "country string, flag boolean, n int, r double, f float, raw binary, day date, "
    "price decimal(9,2), at timestamp, local timestamp_ntz, tags array<string>, "
    "window struct<start: timestamp, n: long>, counts map<string, int>"
)
TIMES = st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001
VALUES = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "n": st.integers(-(2**31), 2**31 - 1),
        "r": st.floats(),
        "f": st.floats(width=32),
        "raw": st.binary(max_size=4),
        "day": st.dates(date(1960, 1, 1), date(2100, 1, 1)),
        "price": st.decimals(-1_000, 1_000, places=2),
        "at": TIMES.map(lambda time: time.replace(tzinfo=UTC)),
        "local": TIMES,
        "tags": st.lists(st.none() | st.text(max_size=3), max_size=2),
        "window": st.fixed_dictionaries({"start": st.none(), "n": st.none() | st.integers(0, 9)}),
        "counts": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
    }
).flatmap(lambda row: st.fixed_dictionaries({k: st.none() | st.just(v) for k, v in row.items()}))


class Engine:
    """Publishes batches of Arrow rows for the views of one group, and may offer them."""

    def __init__(self, log: Log, folder: Path, schema: str = PLAIN, names: str = "a b") -> None:
        self.log, self.folder = log, folder
        self.schema = parse_schema(schema)
        self.names = names.split()
        self.batches = Batches()
        self._writers: dict[str, Writer] = {}
        for name in self.names:
            log.create(name, partitions=2, retention_ms=-1)
            self._writers[name] = log.open_writer(f"shop.{name}")

    def sources(self, **facts: Any) -> list[ViewSource]:
        return [
            ViewSource(
                name,
                log=str(self.folder),
                topic=name,
                schema=self.schema,
                key=("country",),
                batches=self.batches,
                group="g",
                **facts,
            )
            for name in self.names
        ]

    def projector(self, file: str, **facts: Any) -> Projector:
        return Projector(self.folder / file, self.sources(**facts), lambda view: None)

    def publish(
        self, batch: int, changes: dict[str, dict[str, Any]], *, marked: bool = False
    ) -> dict[str, Published]:
        """Rows by view and country, None where one is gone; `marked` with punctuation."""
        self.batches.times[batch] = 1_000_000 + batch
        return {view: self._published(batch, view, rows, marked) for view, rows in changes.items()}

    def _published(self, batch: int, view: str, rows: dict[str, Any], marked: bool) -> Published:
        facts = [{**(row or {}), "country": country} for country, row in rows.items()]
        whole = pa.RecordBatch.from_pylist(facts, schema=self.schema)
        keys, gone = encode_keys(whole, ("country",)), [row is None for row in rows.values()]
        texts = format_for("json", self.schema).encode(whole)
        records: defaultdict[int, list[Record]] = defaultdict(list)
        for key, text, is_gone in zip(keys.to_pylist(), texts.to_pylist(), gone, strict=True):
            value = None if is_gone else text
            records[murmur2(key, 2)].append(Record(key=key, value=value))
        if marked:
            records[0].append(punctuation(f"shop.{view}", batch))
        appended = self._writers[view].append(view, records, batch=batch)
        if not facts:
            return Published(None, appended)
        more = [whole["country"].cast(pa.binary()), pa.array(gone, pa.bool_())]
        names = [*self.schema.names, "_key", "_deleted"]
        return Published(pa.RecordBatch.from_arrays([*whole.columns, *more], names), appended)


def content(path: Path) -> dict[str, list[Any]]:
    """All that is in a file, but the numbers of its tables."""
    found = {}
    with closing(sqlite3.connect(path)) as file:
        tables = file.execute("select name from sqlite_master where type = 'table'").fetchall()
        for (name,) in tables:
            found[name] = file.execute(f'select * from "{name}" order by 1, 2').fetchall()
    return found


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Log.open(tmp_path) as log:
        yield Engine(log, tmp_path)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No rows can be read from topics."""

    def refuse(*given: Any) -> Any:
        raise AssertionError("the topic is read")

    monkeypatch.setattr(Changelog, "rows", refuse)
    return monkeypatch


KEYS = st.sampled_from(["NL", "NO", "é", "SE", ""])


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from("ab"),
                st.dictionaries(KEYS, st.none() | VALUES, max_size=3),
            ),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
    versions=st.none() | st.just(3_600_000_000_000),
)
def test_offered_and_read_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Any], versions: int | None
) -> None:
    """Whatever the batches are, and which of them are offered."""
    folder = tmp_path_factory.mktemp("offered")
    with Log.open(folder) as log:
        engine = Engine(log, folder, EVERY)
        with (
            engine.projector("offered", versions_ms=versions) as offered,
            engine.projector("read", versions_ms=versions) as read,
        ):
            for batch, (changes, marked, is_offered) in enumerate(batches):
                published = engine.publish(batch, changes, marked=marked)
                if is_offered:
                    offered.offer("g", batch, published)
                engine.batches.committed = batch
                offered.catch_up()
                read.catch_up()
                assert content(folder / "offered") == content(folder / "read")


def test_what_is_offered_is_not_read(engine: Engine, unread: pytest.MonkeyPatch) -> None:
    with engine.projector("views") as projector:
        for batch in range(3):
            rows = {"NL": {"total": float(batch)}, "NO": None if batch else {"orders": 1}}
            projector.offer("g", batch, engine.publish(batch, {"a": rows}))
        assert not projector.step(), "it is not committed"
        engine.batches.committed = 2
        assert [projector.step() for _ in range(4)] == [True, True, True, False]
    with opened(engine.folder / "views") as reader:
        assert [kept.batch for kept in reader.views()] == [2, 2]
        assert list(reader.select("select * from a")[1]) == [("NL", 2.0, None)]


def test_an_offer_that_does_not_follow_is_left_out(engine: Engine) -> None:
    """As a batch before it was not offered, or somebody has written by hand."""
    with engine.projector("views") as projector:
        engine.publish(0, {"a": {"NL": {"orders": 0}}})
        projector.offer("g", 1, engine.publish(1, {"a": {"NO": {"orders": 1}}}))
        engine.batches.committed = 1
        projector.catch_up()
        by_hand = [Record(key=b"X%d" % n, value=b'{"country":"X%d"}' % n) for n in range(4)]
        engine.log.append("a", by_hand)  # to both partitions
        projector.offer("g", 2, engine.publish(2, {"a": {"SE": {"orders": 2}}}))
        engine.batches.committed = 2
        projector.catch_up()
        again = engine.publish(2, {"a": {"SE": {"orders": 3}}})
        assert again["a"].offsets == {murmur2(b"SE", 2): None}
        projector.offer("g", 3, again)  # nobody knows where these are
        engine.batches.committed = 3
        projector.catch_up()
    with opened(engine.folder / "views") as reader:
        rows = dict(reader.select("select country, orders from a")[1])
    assert rows == {"NL": 0, "NO": 1, "SE": 2, "X0": None, "X1": None, "X2": None, "X3": None}


def test_rows_of_other_columns_are_told_once_and_read(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with engine.projector("views") as projector:
        for batch in range(2):
            published = engine.publish(batch, {"a": {"NL": {"orders": batch}}, "b": {"NO": {}}})
            rows = published["a"].rows
            assert rows is not None
            narrow = rows.set_column(2, "orders", rows["orders"].cast(pa.int32()))
            published["a"] = Published(narrow, published["a"].offsets)
            projector.offer("g", batch, published)
            engine.batches.committed = batch
            projector.catch_up()
    assert caplog.text.count("view a: rows of other columns were offered") == 1
    with opened(engine.folder / "views") as reader:
        assert list(reader.select("select orders from a")[1]) == [(1,)]


def test_a_view_that_is_built_anew_is_read(engine: Engine) -> None:
    with engine.projector("views") as projector:
        projector.offer("g", 0, engine.publish(0, {"a": {"NL": {"orders": 0}}, "b": {"NL": {}}}))
        engine.batches.committed = 0
        projector.catch_up()
    sources = engine.sources()
    sources[1] = engine.sources(generation=2)[1]
    goal: dict[str, Any] = {}
    with Projector(engine.folder / "views", sources, goal.get) as projector:
        changes = {"a": {"NO": {"orders": 1}}, "b": {"NO": {"orders": 1}}}
        projector.offer("g", 1, engine.publish(1, changes))
        engine.batches.committed = 1
        projector.catch_up()
    with opened(engine.folder / "views") as reader:
        assert [(kept.name, kept.batch) for kept in reader.views()] == [("a", 1), ("b", 1)]
        assert list(reader.select("select country from b order by 1")[1]) == [("NL",), ("NO",)]


def test_offers_for_a_group_that_is_not_there(engine: Engine) -> None:
    with engine.projector("views") as projector:
        projector.offer("h", 0, engine.publish(0, {"a": {"NL": {}}}))


def test_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "_MAX_ROWS", 5)

    def offer(batch: int, rows: int) -> Offer:
        return Offer(batch, {"a": Published(pa.RecordBatch.from_pydict({"n": [0] * rows}), {})})

    held = Offers()
    for batch, rows in ((0, 2), (1, 2), (2, 2), (3, 1)):  # the third would be too much
        held.add(offer(batch, rows))
    assert [getattr(held.take(batch), "size", None) for batch in range(4)] == [2, 2, None, 1]
    held.add(offer(4, 5))
    held.add(offer(4, 4))  # the batch was run again
    found = held.take(4)
    assert found is not None
    assert found.size == 4
    held.add(offer(5, 5))
    assert held.take(6) is None
    held.add(offer(7, 5))
    assert held.take(7) is not None, "what was passed over is not held"
