"""A view is the fold of its topic, whatever happened in between."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Log, Record
from penstock.errors import PenstockError, StorageFailed, UnknownName
from penstock.events.schema import parse_schema
from penstock.serve.projector import Projector
from penstock.serve.reading import opened
from penstock.testing import LogServerProcess, wait_until
from tests.serve.scene import Row, Scene

NL: Row = {"total": 2.5, "orders": 1}


def test_upserts_and_tombstones(scene: Scene) -> None:
    scene.commit(0, {"NL": NL, "NO": {"total": 1.0, "orders": 3}})
    scene.project()
    assert scene.rows() == [("NL", 2.5, 1), ("NO", 1.0, 3)]

    scene.commit(1, {"NL": {"total": 9.0, "orders": 2}, "NO": None, "SE": NL})
    scene.project()
    assert scene.rows() == [("NL", 9.0, 2), ("SE", 2.5, 1)]


def test_of_one_key_in_one_batch_the_last_record_counts(scene: Scene) -> None:
    rows = [b'{"country":"NL","total":%d.0}' % n for n in range(3)]
    dealt: list[list[bytes | None]] = [[rows[1], rows[2]], [rows[0], None]]
    for batch, values in enumerate(dealt):
        records = [Record(key=b"NL", value=value) for value in values]
        scene._writer.append("revenue", {0: records}, batch=batch)
        scene.commit(batch)
        scene.project()
        assert scene.rows("select total from revenue") == ([(2.0,)] if batch == 0 else [])


def test_half_of_a_batch_is_never_seen(scene: Scene) -> None:
    countries = {f"C{n}": NL for n in range(20)}  # which lie in both partitions
    scene.commit(0, countries)
    scene.publish(1, dict.fromkeys(countries))
    scene.project()
    assert len(scene.rows()) == 20
    scene.commit(1)
    scene.project()
    assert scene.rows() == []


def test_a_batch_is_whole_where_one_partition_is_far_ahead(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is applied at once is bounded, and still cut between batches."""
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 10)
    for batch in range(8):
        scene.publish(batch, {f"C{n}": {"total": batch, "orders": n} for n in range(7)})
    scene.commit(7)
    seen: list[float] = []
    with scene.projector() as projector:
        while projector.step():
            totals = {total for _, total, _ in scene.rows()}
            assert len(totals) == 1, "rows of two batches"
            seen += totals
    assert seen[-1] == 7.0
    assert 1 < len(seen) < 8


def test_records_that_somebody_put_there_by_hand(scene: Scene) -> None:
    scene.commit(0, {"NL": NL})
    by_hand = {"country": "SE", "total": 4.0, "orders": 4}
    scene.log.append("revenue", [Record(value=json.dumps(by_hand).encode()), Record(value=b"{")])
    scene.commit(1, {"NO": NL})
    with scene.projector() as projector:
        projector.catch_up()
    assert scene.rows() == [("NL", 2.5, 1), ("NO", 2.5, 1), ("SE", 4.0, 4)]


def test_every_type(scene: Scene) -> None:
    schema = parse_schema(
        "country string, flag boolean, n int, r double, raw binary, day date, price decimal(9,2), "
        "at timestamp, local timestamp_ntz, tags array<string>, window struct<start: timestamp>"
    )
    row = {
        "flag": True,
        "n": -7,
        "r": 0.5,
        "raw": "AAE=",
        "day": "2026-01-31",
        "price": "12.50",
        "at": "2026-01-31T10:00:00.5+01:00",
        "local": "2026-01-31T10:00:00",
        "tags": ["a", 'b"c'],
        "window": {"start": "2026-01-31T10:00:00Z"},
    }
    scene.commit(0, {"NL": row, "NO": {}})
    scene.project(schema=schema)
    full, empty = scene.rows()
    assert full[1:] == (
        *(1, -7, 0.5, b"\x00\x01", "2026-01-31", "12.50"),
        *("2026-01-31T09:00:00.500000Z", "2026-01-31T10:00:00.000000"),
        *('["a","b\\"c"]', '{"start":"2026-01-31T10:00:00Z"}'),
    )
    assert empty == ("NO", *([None] * 10))


def test_another_schema_is_built_beside(scene: Scene) -> None:
    scene.commit(0, {"NL": {**NL, "note": "x"}})
    scene.project()
    with scene.projector(schema=parse_schema("country string, note string")) as projector:
        assert scene.rows() == [("NL", 2.5, 1)]
        projector.catch_up()
        assert scene.rows() == [("NL", "x")]
    with opened(scene.path) as reader:
        assert [kept.is_current for kept in reader.views()] == [True]


def test_another_generation_is_shown_when_it_is_whole(scene: Scene) -> None:
    scene.commit(0, {"NL": NL, "NO": NL})
    scene.project()
    new = Scene(scene.log, scene.folder, topic="revenue-v2")
    goal: dict[str, Any] = {}
    with Projector(
        scene.path, [new.source(generation=2)], lambda view: goal.get(view)
    ) as projector:
        new.commit(0, {"NL": {"total": 7.0, "orders": 7}})
        projector.catch_up()
        assert len(scene.rows()) == 2, "the old one is shown"
        goal["revenue"] = {0: 9, 1: 9}
        projector.catch_up()
        assert len(scene.rows()) == 2
        goal["revenue"] = {n: scene.log.bounds("revenue-v2", n).end for n in range(2)}
        projector.catch_up()
        assert scene.rows() == [("NL", 7.0, 7)]
    tables = sqlite3.connect(scene.path)
    found = tables.execute(
        "select count(*) from sqlite_master where type = 'table' and name like 'revenue@%'"
    )
    assert found.fetchone() == (1,)
    tables.close()


def test_a_rebuild_goes_on_where_it_was_cut_short(scene: Scene) -> None:
    scene.commit(0, {"NL": NL})
    scene.project()
    new = Scene(scene.log, scene.folder, topic="revenue-v2")
    new.commit(0, {"NO": NL})
    goals: list[dict[int, int] | None] = [None, {0: 0, 1: 0}]
    for goal, shown in zip(goals, ("NL", "NO"), strict=True):
        with Projector(
            scene.path, [new.source(generation=2)], dict.fromkeys(["revenue"], goal).get
        ) as projector:
            projector.catch_up()
        assert scene.rows("select country from revenue") == [(shown,)]


def test_a_topic_that_was_made_again(scene: Scene) -> None:
    scene.commit(0, {"NL": NL})
    scene.project()
    scene.log.delete("revenue")
    again = Scene(scene.log, scene.folder)
    again.commit(0, {"NO": NL})
    again.project()
    assert scene.rows() == [("NO", 2.5, 1)]


def test_views_that_are_no_longer_declared_go(scene: Scene) -> None:
    scene.commit(0, {"NL": NL})
    scene.project()
    scene.project(name="income")
    with pytest.raises(UnknownName, match="there is no view 'revenue'"):
        scene.rows()
    assert scene.rows("select country from income") == [("NL",)]


def test_a_file_of_another_release_is_made_anew(scene: Scene) -> None:
    scene.commit(0, {"NL": NL})
    scene.project()
    with closing(sqlite3.connect(scene.path)) as old:
        old.execute("PRAGMA user_version = 1")
        old.execute('DROP TABLE "@views"')
        old.commit()
    scene.project()
    assert scene.rows() == [("NL", 2.5, 1)]


def test_readers_beside_the_writer(scene: Scene) -> None:
    """Each of two sees whole batches alone, and never goes back."""
    wrong: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        last = -1.0
        while not stop.is_set():
            with opened(scene.path) as reader:
                totals = {t for (t,) in reader.select("select total from revenue")[1]}
            if len(totals) > 1 or (totals and min(totals) < last):
                wrong.append(totals)
            last = max(totals, default=last)

    scene.commit(0, {f"C{n}": {"total": 0.0} for n in range(30)})
    scene.project()
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    with scene.projector() as projector:
        projector.start()
        for batch in range(1, 40):
            scene.commit(batch, {f"C{n}": {"total": float(batch)} for n in range(30)})
            projector.wake()
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert {total for _, total, _ in scene.rows()} == {39.0}


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.serve.scene import Batches, Scene
import tests.serve.scene as s
scene = Scene.__new__(Scene)
scene.folder, scene.topic = Path({folder!r}), "revenue"
scene.path = scene.folder / "apps" / "shop" / "views.sqlite"
scene.batches = Batches(committed={committed})
import penstock.serve.changelog as c
c._AT_ONCE = 20
with scene.projector() as projector:
    print("ready", flush=True)
    while True:
        projector.step()
        print("step", flush=True)
"""


def test_killed_in_the_middle(scene: Scene) -> None:
    """Whenever the process is killed, what is in the file is the fold up to the offsets in it."""
    deal = random.Random(7)
    truth: dict[str, float] = {}
    batches = 60
    states = []
    for batch in range(batches):
        rows: dict[str, Row | None] = {}
        for _ in range(10):
            country = f"C{deal.randrange(40)}"
            gone = deal.random() < 0.3
            rows[country] = None if gone else {"total": deal.random()}
        scene.publish(batch, rows)
        truth |= {c: r["total"] for c, r in rows.items() if r is not None}
        truth = {c: t for c, t in truth.items() if rows.get(c, {}) is not None}
        states.append(sorted(truth.items()))
    scene.commit(batches - 1)
    program = KILLED.format(
        root=str(Path(__file__).parents[2]), folder=str(scene.folder), committed=batches - 1
    )
    for steps in (1, 3, 2, 4):
        child = subprocess.Popen(
            (sys.executable, "-c", program), stdout=subprocess.PIPE, env=os.environ.copy()
        )
        assert child.stdout is not None
        for _ in range(steps):
            assert child.stdout.readline()
        child.kill()
        child.wait()
        child.stdout.close()
        with opened(scene.path) as reader:
            kept = reader.find("revenue")
            rows_now = sorted((c, t) for c, t, _ in reader.select("select * from revenue")[1])
        assert rows_now == (states[kept.batch] if kept.batch >= 0 else [])
    scene.project()
    assert sorted((c, t) for c, t, _ in scene.rows()) == states[-1]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batches=st.lists(
        st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9), max_size=5),
        max_size=8,
    ),
    stops=st.sets(st.integers(0, 7)),
)
def test_the_fold_of_any_topic(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[dict[str, int | None]],
    stops: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("fold")
    with Log.open(folder) as log:
        scene = Scene(log, folder)
        truth: dict[str, int] = {}
        for batch, changes in enumerate(batches):
            scene.commit(
                batch, {k: None if n is None else {"orders": n} for k, n in changes.items()}
            )
            truth = {k: n for k, n in {**truth, **changes}.items() if n is not None}
            if batch in stops:
                scene.project()
                assert dict(scene.rows("select country, orders from revenue")) == truth
        scene.project()
        assert dict(scene.rows("select country, orders from revenue")) == truth


def test_a_log_at_an_address(tmp_path: Path) -> None:
    """Where records do not tell of batches, the commits of the query do."""
    with LogServerProcess(tmp_path / "log") as server, Log.connect(server.address) as log:
        scene = Scene(log, tmp_path)
        source = {"log": server.address, "versions_ms": 60_000}
        for number in range(3):
            scene.commit(number, {"NL": {"orders": number}, "NO": NL})
            with scene.projector(**source) as projector:
                projector.catch_up()
        scene.publish(3, {"NO": {"orders": 7}})  # and is not committed
        scene.project(**source)
        assert scene.rows("select country, orders from revenue order by 1") == [
            ("NL", 2),
            ("NO", 1),
        ]
        versions = "select orders, valid_to is null from revenue_versions where country = 'NL'"
        assert scene.rows(versions) == [(0, 0), (1, 0), (2, 1)]


def test_what_is_wrong_with_one_view_does_not_stop_the_others(scene: Scene) -> None:
    other = Scene(scene.log, scene.folder, topic="other")
    sources = [scene.source(), other.source("other")]
    with Projector(scene.path, sources, lambda view: None) as projector:
        scene.log.delete("revenue")
        other.commit(0, {"NL": NL})
        with pytest.raises(PenstockError):
            projector.catch_up()
    assert scene.rows("select country from other") == [("NL",)]


@pytest.mark.parametrize("error", [StorageFailed("the disk is full"), ValueError("unforeseen")])
def test_what_keeps_it_from_going_on_is_told_and_tried_again(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    monkeypatch.setattr("penstock.serve.projector._TRY_AGAIN", 0.01)
    scene.commit(0, {"NL": NL})
    failures = iter([error, error])
    with scene.projector() as projector:
        step = projector.step

        def fails() -> bool:
            for each in failures:
                raise each
            return step()

        monkeypatch.setattr(projector, "step", fails)
        projector.start()
        wait_until(lambda: bool(scene.rows()), within=30, what="the row")
        wait_until(lambda: not projector.error, within=30, what="that all is well again")
    assert caplog.text.count("the views are not brought up to date") == 1


def test_a_file_that_cannot_be_written(scene: Scene) -> None:
    scene.path.parent.mkdir(parents=True)
    scene.path.write_bytes(b"this is no database, but long enough to look like something" * 20)
    with pytest.raises(StorageFailed, match="cannot be written"):
        scene.project()
