"""Views of one group show the same batch, whoever looks and whenever."""

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Log, Record
from penstock.errors import PenstockError, StorageFailed
from penstock.events.schema import parse_schema
from penstock.serve import upserts
from penstock.serve.catalog import Kept
from penstock.serve.projector import Projector
from penstock.serve.store import ViewStore
from penstock.testing import LogServerProcess, wait_until
from tests.serve.scene import Row, Scene, Several


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Several]:
    with Log.open(tmp_path) as log:
        yield Several(log, tmp_path, "a b c")


def totals(batch: int, rows: int = 3) -> dict[str, Row | None]:
    return {f"C{n}": {"total": float(batch)} for n in range(rows)}


def state(batch: int, rows: int = 3) -> dict[str, float]:
    return {f"C{n}": float(batch) for n in range(rows)}


@pytest.fixture
def transactions(several: Several, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The batches that the views show after each transaction, but those of tables that nobody
    writes to any more, as they are built anew."""
    seen: list[dict[str, int]] = []
    apply = ViewStore.apply

    def noting(self: ViewStore, *given: Any, **named: Any) -> list[Kept]:
        moved = apply(self, *given, **named)
        newest: dict[str, Kept] = {}
        for kept in sorted(self.tables(), key=lambda kept: kept.id):
            newest[kept.name] = kept
        seen.append({name: kept.batch for name, kept in newest.items() if kept.is_current})
        return moved

    monkeypatch.setattr(ViewStore, "apply", noting)
    return seen


def test_all_are_at_the_batch_though_only_some_have_changed(several: Several) -> None:
    several.batches.times = {0: 1_000, 1: 2_000, 2: 3_000}
    with several.projector() as projector:
        several.commit(0, {"a": totals(0), "b": totals(0)})
        assert projector.step()
        assert not projector.step()
        assert several.seen() == {
            "a": (0, 1_000, state(0)),
            "b": (0, 1_000, state(0)),
            "c": (0, 1_000, {}),
        }
        several.publish(1, {"a": totals(1)})
        assert not projector.step(), "it is not committed"
        several.commit(1)
        assert projector.step()
        assert [each[:2] for each in several.seen().values()] == [(1, 2_000)] * 3
        several.commit(2)
        assert projector.step(), "also where nothing has changed at all"
        assert {each.batch for each in several.seen().values()} == {2}
    assert several.seen()["a"] == (2, 3_000, state(1))
    several.commit(3, {"c": totals(3)})
    several.project()
    assert {name: each[::2] for name, each in several.seen().items()} == {
        "a": (3, state(1)),
        "b": (3, state(0)),
        "c": (3, state(3)),
    }


def test_a_view_without_a_group_moves_alone(several: Several) -> None:
    other = Scene(several.scenes["a"].log, several.scenes["a"].folder, topic="other")
    sources = [*several.sources(), other.source("other")]
    with Projector(several.path, sources, lambda view: None) as projector:
        several.commit(4, {"a": totals(4)})
        other.commit(1, totals(1))
        projector.catch_up()
    assert {name: each.batch for name, each in several.seen().items()} == {
        "a": 4,
        "b": 4,
        "c": 4,
        "other": 1,
    }


def test_a_reader_beside_never_sees_two_batches(several: Several) -> None:
    changes: list[dict[str, dict[str, Row | None]]] = [
        {name: totals(batch) for at, name in enumerate("abc") if (batch + at) % (at + 1) == 0}
        for batch in range(150)
    ]
    truth: list[dict[str, dict[str, float]]] = []
    for batch, changed in enumerate(changes):
        before = truth[-1] if truth else {name: {} for name in "abc"}
        truth.append(before | {name: state(batch) for name in changed})
    wrong: list[Any] = []
    looks = 0
    stop = threading.Event()

    def read() -> None:
        nonlocal looks
        last = -1
        while not stop.is_set():
            seen = several.seen()
            (batch,) = {each[:2] for each in seen.values()} if len(seen) == 3 else {(-2, 0)}
            found = {name: each.totals for name, each in seen.items()}
            expected = truth[batch[0]] if batch[0] >= 0 else {name: {} for name in "abc"}
            if found != expected or batch[0] < last:
                wrong.append((batch, found))
            last = batch[0]
            looks += 1

    def guarded() -> None:
        try:
            read()
        except ValueError as error:  # there was more than one batch
            wrong.append(error)

    with several.projector() as projector:
        reader = threading.Thread(target=guarded)
        reader.start()
        for batch, changed in enumerate(changes):
            several.commit(batch, changed)
            projector.step()
        stop.set()
        reader.join()
    assert wrong == []
    assert looks > 3


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_crash_leaves_all_or_none(
    several: Several, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    several.commit(0, dict.fromkeys("abc", totals(0)))
    several.project(versions_ms=3_600_000)
    before = several.seen()
    several.commit(1, dict.fromkeys("abc", totals(1)))
    left = iter(range(written))
    upsert = upserts.upsert

    def crashing(*given: Any) -> None:
        if next(left, None) is None:
            raise sqlite3.OperationalError("the disk is gone")
        upsert(*given)

    with several.projector(versions_ms=3_600_000) as projector:
        with monkeypatch.context() as patch:
            patch.setattr("penstock.serve.store.upsert", crashing)
            with pytest.raises(StorageFailed, match="the disk is gone"):
                projector.step()
        assert several.seen() == before
        assert projector.step(), "and goes on when it can"
        assert {name: each[::2] for name, each in several.seen().items()} == dict.fromkeys(
            "abc", (1, state(1))
        )
    with closing(sqlite3.connect(several.path)) as file:
        assert file.execute("select count(*) from a_versions").fetchone() == (6,)


def test_too_much_at_once_is_cut_at_a_common_batch(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of all views count together, and one has far more than the others."""
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 20)
    for batch in range(12):
        several.publish(batch, {"a": totals(batch, 7), "b": totals(batch, 2)})
    several.publish(6, {"c": totals(6, 9)})
    several.commit(11)
    seen = []
    with several.projector() as projector:
        while projector.step():
            views = several.seen()
            (batch,) = {each.batch for each in views.values()}
            assert views["a"].totals == state(batch, 7)
            assert views["b"].totals == state(batch, 2)
            assert views["c"].totals == (state(6, 9) if batch >= 6 else {})
            seen.append(batch)
    # Each transaction ends with the batch that makes it more than 20 records.
    assert seen == [2, 5, 7, 10, 11]


def test_a_batch_that_is_too_much_by_itself_is_applied_whole(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 5)
    several.commit(0, {"a": totals(0, 30), "b": totals(0, 30)})
    with several.projector() as projector:
        assert projector.step()
        assert not projector.step()
    assert {each[::2] == (0, state(0, 30)) for each in several.seen().values()} == {True, False}


def test_rebuilt_beside_and_switched_to_where_the_others_are(
    several: Several, transactions: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    several.commit(0, dict.fromkeys("abc", totals(0)))
    several.project()
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 10)
    transactions.clear()
    old = several.scenes["b"]
    new = several.scenes["b"] = Scene(old.log, old.folder, topic="b-v2")
    new.batches = several.batches
    for batch in range(1, 9):
        several.publish(batch, {"a": totals(batch), "b": totals(-batch)})
    several.commit(8)
    goal: dict[str, Mapping[int, int]] = {}
    sources = several.sources()
    sources[1] = new.source("b", group="g", generation=2)
    with Projector(several.path, sources, goal.get) as projector:
        projector.catch_up()
        shown = several.seen()
        assert shown["b"][::2] == (0, state(0)), "the old one, which nobody writes to any more"
        assert (shown["a"].batch, shown["c"].batch) == (8, 8)

        several.commit(9, {"c": totals(9), "b": totals(-9)})
        goal["b"] = {n: new.log.bounds("b-v2", n).end for n in range(2)}
        for batch in range(10, 20):  # more than it can catch up with at once, and unseen yet
            several.publish(batch, {"b": totals(-batch)})
        several.commit(19)
        while projector.step():
            pass
        assert {each.batch for each in several.seen().values()} == {19}
        assert len({each.at_ms for each in several.seen().values()}) == 1
        assert several.seen()["b"].totals == state(-19) == {f"C{n}": -19.0 for n in range(3)}

        several.commit(20, {"b": totals(-20)})
        assert projector.step()
        assert not projector.step()
        assert {each.batch for each in several.seen().values()} == {20}
        assert several.seen()["b"].totals == state(-20)
    assert len(transactions) > 8
    assert {len(set(shown.values())) for shown in transactions} == {1}, "always one batch"
    assert [sorted(shown) for shown in transactions].count(["a", "b", "c"]) >= 2


def test_a_form_that_has_changed_is_switched_to_where_the_others_are(
    several: Several, transactions: list[dict[str, int]]
) -> None:
    several.commit(0, {name: {"NL": {"total": 0.0, "orders": 1}} for name in "abc"})
    several.project()
    transactions.clear()
    several.commit(1, {"a": {"NL": {"total": 1.0, "orders": 1}}})
    sources = several.sources()
    sources[1] = several.scenes["b"].source(
        "b", group="g", schema=parse_schema("country string, total double")
    )
    with Projector(several.path, sources, lambda view: None) as projector:
        projector.catch_up()
    assert {name: each[::2] for name, each in several.seen().items()} == {
        "a": (1, {"NL": 1.0}),
        "b": (1, {"NL": 0.0}),
        "c": (1, {"NL": 0.0}),
    }
    assert {len(set(shown.values())) for shown in transactions} == {1}


def test_a_new_view_is_shown_when_it_is_where_the_others_are(
    several: Several, transactions: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 5)
    late = several.scenes.pop("c")
    for batch in range(6):
        late.publish(batch, totals(batch))
        several.commit(batch, {"a": totals(batch)})
    several.project()
    assert sorted(several.seen()) == ["a", "b"]
    several.scenes["c"] = late
    with several.projector() as projector:
        assert sorted(several.seen()) == ["a", "b"]
        assert projector.step()
        assert sorted(several.seen()) == ["a", "b"], "it has not caught up"
    several.project()  # a crash in between changes nothing
    assert several.seen()["c"][::2] == (5, state(5))
    assert {len(set(shown.values())) for shown in transactions} == {1}


def test_a_new_view_joins_the_others_though_more_is_committed(
    several: Several, transactions: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = several.scenes.pop("c")
    several.commit(0, {"a": totals(0)})
    several.project()
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 5)
    transactions.clear()
    for batch in range(8):
        late.publish(batch, totals(batch, 1))
        several.commit(batch, {"a": totals(batch)})
    several.scenes["c"] = late
    with several.projector() as projector:
        projector.step()
        assert {name: each[::2] for name, each in several.seen().items()} == {
            "a": (2, state(2)),
            "b": (2, {}),
            "c": (2, state(2, 1)),
        }
        projector.catch_up()
    assert transactions[-1] == {"a": 7, "b": 7, "c": 7}
    assert {len(set(shown.values())) for shown in transactions} == {1}


def test_a_view_that_is_ahead_waits_for_the_others(
    several: Several, transactions: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the only one of its group, and not whole yet, when another was declared."""
    late = {name: several.scenes.pop(name) for name in "ac"}
    several.commit(0, {"b": totals(0)})
    several.project()
    new = several.scenes["b"] = Scene(late["a"].log, late["a"].folder, topic="b-v2")
    new.batches = several.batches
    for batch in range(8):
        late["a"].publish(batch, totals(batch))
        several.commit(batch, {"b": totals(-batch)})
    several.project(generation=2)
    assert several.seen()["b"][::2] == (0, state(0))
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 5)
    transactions.clear()
    sources = [late["a"].source("a", group="g"), new.source("b", group="g", generation=2)]
    with Projector(several.path, sources, lambda view: {}) as projector:
        projector.catch_up()
    assert {name: each[::2] for name, each in several.seen().items()} == {
        "a": (7, state(7)),
        "b": (7, state(-7)),
    }
    assert [shown["a"] for shown in transactions] == [1, 3, 5, 7, 7]
    assert [shown.get("b") for shown in transactions] == [None, None, None, None, 7]


def test_nothing_is_forgotten_while_nobody_knows_what_is_committed(several: Several) -> None:
    several.commit(5, {"a": totals(5)})
    several.project()
    before = several.seen()
    several.batches.committed = -1
    several.project()
    several.batches.committed = 3
    several.project()
    assert several.seen() == before


def test_all_new_views_are_shown_at_once(several: Several) -> None:
    with several.projector():
        assert several.seen() == dict.fromkeys("abc", (-1, 0, {}))


def test_views_whose_batches_were_their_own_before(
    several: Several, transactions: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is behind catches up with the others first, and then they go on together."""
    for batch in range(6):
        several.publish(batch, {"a": totals(batch), "b": totals(batch)})
    for name, until in (("a", 5), ("b", 2), ("c", 9)):
        several.batches.committed = until
        sources = [scene.source(each) for each, scene in several.scenes.items()]
        with Projector(several.path, sources, lambda view: None) as projector:
            for group in projector._groups.values():
                if group._views[0].kept.name == name:
                    group.step()
    assert {name: each.batch for name, each in several.seen().items()} == {"a": 5, "b": 2, "c": 9}
    several.commit(6)
    transactions.clear()
    monkeypatch.setattr("penstock.serve.changelog._AT_ONCE", 2)
    several.project()
    assert min(shown["a"] for shown in transactions) >= 5, "nobody goes back"
    assert {name: each[::2] for name, each in several.seen().items()} == {
        "a": (6, state(5)),
        "b": (6, state(5)),
        "c": (6, {}),
    }


def test_a_topic_that_is_gone_holds_its_group(several: Several) -> None:
    alone = Scene(several.scenes["a"].log, several.scenes["a"].folder, topic="alone")
    sources = [*several.sources(), alone.source("alone")]
    several.commit(0, {"a": totals(0)})
    with Projector(several.path, sources, lambda view: None) as projector:
        projector.catch_up()
        alone.log.delete("b")
        several.commit(1, {"a": totals(1)})
        alone.commit(0, totals(0))
        with pytest.raises(PenstockError, match="'b'"):
            projector.catch_up()
    seen = several.seen()
    assert {seen[name].batch for name in "abc"} == {0}
    assert seen["alone"].totals == state(0), "others go on"


def test_over_the_wire_they_move_together_too(tmp_path: Path) -> None:
    """Records do not say there which batch wrote them; the commits of the query do."""
    with LogServerProcess(tmp_path / "log") as server, Log.connect(server.address) as log:
        several = Several(log, tmp_path, "a b")
        with several.projector(log=server.address) as projector:
            several.commit(0, {"a": totals(0)})
            several.publish(1, {"a": totals(1)})  # and b's half of the batch is yet to come
            projector.catch_up()
            assert {each.batch for each in several.seen().values()} == {0}
            assert several.seen()["a"].totals == state(0)
            several.commit(1, {"b": totals(1)})
            projector.catch_up()
    seen = several.seen()
    assert {each.batch for each in seen.values()} == {1}
    assert seen["a"].totals == state(1)


def test_records_by_hand_change_no_batch(several: Several) -> None:
    several.commit(0, {"a": totals(0)})
    with several.projector() as projector:
        projector.catch_up()
        several.scenes["b"].log.append("b", [Record(key=b"X", value=b'{"country":"X","total":1}')])
        assert projector.step()
        assert {each.batch for each in several.seen().values()} == {0}
        assert several.seen()["b"].totals == {"X": 1.0}


def test_it_is_woken_and_does_not_look_by_itself(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.serve.projector._LOOK_EVERY", 3_600.0)
    steps = 0
    with several.projector() as projector:
        step = projector.step

        def counted() -> bool:
            nonlocal steps
            steps += 1
            return step()

        monkeypatch.setattr(projector, "step", counted)
        several.commit(0, {"a": totals(0)})
        projector.start()
        wait_until(lambda: several.seen()["a"].batch == 0, within=30, what="the first look")
        for batch in range(1, 20):
            several.commit(batch, {"a": totals(batch)})
            projector.wake()
            wait_until(
                lambda batch=batch: several.seen()["a"].batch == batch,  # type: ignore[misc]
                within=30,
                what="what was committed",
            )
    assert steps <= 20 + 2, "one for each batch, and those at the end"


def test_what_nobody_has_told_is_found_a_while_later(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.serve.projector._LOOK_EVERY", 0.01)
    with several.projector() as projector:
        projector.start()
        several.commit(0, {"a": totals(0)})
        wait_until(lambda: several.seen()["a"].batch == 0, within=30, what="a look")
