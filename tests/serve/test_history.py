"""A view with versions as it was, against the states that were kept beside."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Log, Position, Record, clock
from penstock.errors import InvalidInput
from penstock.serve.reading import ViewReader, opened
from penstock.streams.source.punctuation import punctuation
from tests.serve.scene import Scene

DAY = 86_400_000
Changes = list[dict[str, int | None]]
State = list[tuple[str, int]]

batches_of_changes = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(0, 3), max_size=4),
    min_size=1,
    max_size=8,
)


def written(scene: Scene, batches: Changes, begin_ms: int) -> list[State]:
    """Writes the batches, one a second, and returns the states after each of them."""
    truth: dict[str, int] = {}
    states = []
    for batch, changes in enumerate(batches):
        scene.batches.times[batch] = begin_ms + 1_000 * batch
        scene.batches.spans[batch] = {"orders": {0: (10 * batch, 10 * batch + 10)}}
        scene.commit(batch, {k: None if n is None else {"orders": n} for k, n in changes.items()})
        truth = {k: n for k, n in {**truth, **changes}.items() if n is not None}
        states.append(sorted(truth.items()))
    return states


def state(reader: ViewReader, batch: int) -> State:
    rows = reader.select("select country, orders from revenue", as_of={"revenue": batch})[1]
    return sorted((country, orders) for country, orders in rows)


@settings(max_examples=30, deadline=None)
@given(batches=batches_of_changes, stops=st.sets(st.integers(0, 7)), data=st.data())
def test_any_state_and_any_difference(
    tmp_path_factory: pytest.TempPathFactory,
    batches: Changes,
    stops: set[int],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("past")
    begin = clock.now_ms() - 100_000
    with Log.open(folder) as log:
        scene = Scene(log, folder)
        states = written(scene, batches, begin)
        for stop in sorted(stops):  # cut into as many transactions
            scene.batches.committed = min(stop, len(batches) - 1)
            scene.project(versions_ms=DAY)
        scene.commit(len(batches) - 1)
        scene.project(versions_ms=DAY)
        if not any(batches):
            return
        with opened(scene.path) as reader:
            kept = reader.find("revenue")
            for batch, truth in enumerate(states):
                found = reader.batch_at(kept, begin + 1_000 * batch)
                assert state(reader, found) == truth
                found = reader.batch_at(kept, Position("orders", 0, 10 * batch + 5))
                assert state(reader, found) == truth
            one = data.draw(st.integers(-1, len(states) - 1))
            other = data.draw(st.integers(one, len(states) - 1))
            before, after = (dict(states[n]) if n >= 0 else {} for n in (one, other))
            told = {}
            for difference in reader.differences(kept, one, other):
                row = difference.before or difference.after
                assert row is not None
                told[row[0]] = tuple(each and each[2] for each in difference)
            keys = before.keys() | after.keys()
            both = {key: (before.get(key), after.get(key)) for key in keys}
            assert told == {key: each for key, each in both.items() if each[0] != each[1]}


@pytest.fixture
def three(scene: Scene) -> tuple[Scene, int]:
    """Three batches, a second apart, the first of them ten seconds ago."""
    begin = clock.now_ms() - 10_000
    written(scene, [{"a": 1, "b": 1}, {"a": 2}, {"b": None}], begin)
    return scene, begin


def test_what_was_valid_when(three: tuple[Scene, int]) -> None:
    scene, begin = three
    scene.project(versions_ms=DAY)
    seconds = [clock.instant_text(begin + 1_000 * n) for n in range(3)]
    assert scene.rows(
        "select country, orders, valid_from, valid_to from revenue_versions order by 1, 3"
    ) == [
        ("a", 1, seconds[0], seconds[1]),
        ("a", 2, seconds[1], None),
        ("b", 1, seconds[0], seconds[2]),
    ]


def test_pages_of_the_past(three: tuple[Scene, int]) -> None:
    scene, begin = three
    scene.project(versions_ms=DAY)
    with opened(scene.path) as reader:
        kept = reader.find("revenue")
        batch = reader.batch_at(kept, begin + 1_500)
        first = reader.page(kept, limit=1, batch=batch)
        rest = reader.page(kept, limit=1, batch=batch, after=first.next)
        assert [row[0] for row in (*first.rows, *rest.rows)] == ["a", "b"]
        assert rest.next is None
        assert reader.row(kept, b"a", batch=0) == ("a", None, 1)
        assert reader.row(kept, b"b", batch=2) is None


def test_old_versions_go(scene: Scene) -> None:
    begin = clock.now_ms() - 3_600_000
    written(scene, [{"a": 1}, {"a": 2}, {"a": 3}], begin)
    scene.batches.times[2] = clock.now_ms()
    scene.project(versions_ms=1_800_000)
    with opened(scene.path) as reader:
        kept = reader.find("revenue")
        assert kept.history_ms == begin + 1_000
        assert state(reader, reader.batch_at(kept, begin + 1_000)) == [("a", 2)]
        with pytest.raises(InvalidInput, match="no longer knows") as refused:
            reader.batch_at(kept, begin)
        assert clock.instant_text(begin + 1_000) in str(refused.value)
        with pytest.raises(InvalidInput, match="no longer knows"):
            reader.batch_at(kept, Position("orders", 0, 5))
    assert scene.rows("select orders from revenue_versions") == [(2,), (3,)]


def test_versions_that_are_turned_on_later_are_those_of_the_topic(
    three: tuple[Scene, int],
) -> None:
    scene, begin = three
    scene.project()
    with opened(scene.path) as reader, pytest.raises(InvalidInput, match="keeps no versions"):
        reader.batch_at(reader.find("revenue"), begin)
    scene.project(versions_ms=DAY)
    with opened(scene.path) as reader:
        assert state(reader, reader.batch_at(reader.find("revenue"), begin)) == [("a", 1), ("b", 1)]
    scene.project(versions_ms=2 * DAY)
    with opened(scene.path) as reader:
        assert reader.find("revenue").versions_ms == 2 * DAY


@pytest.mark.parametrize(
    ("position", "truth"),
    [
        (("revenue", 0, 0), [("a", 1)]),
        (("revenue", 0, 1), [("a", 2)]),
        (("orders", 0, 9), [("a", 1)]),
        (("orders", 0, 10), [("a", 1)]),  # read by a batch that changed nothing
        (("orders", 0, 25), [("a", 2)]),
        (("orders", 0, 35), [("a", 2)]),  # the same, after all others
    ],
)
def test_positions(scene: Scene, position: tuple[str, int, int], truth: Any) -> None:
    scene.partitions = 1
    written(scene, [{"a": 1}, {}, {"a": 2}, {}], clock.now_ms())
    scene.project(versions_ms=DAY)
    with opened(scene.path) as reader:
        kept = reader.find("revenue")
        assert state(reader, reader.batch_at(kept, Position(*position))) == truth
        with pytest.raises(InvalidInput, match="position of: revenue, orders"):
            reader.batch_at(kept, Position("payments", 0, 0))


def test_batches_that_only_tell_the_clock_are_not_noted(scene: Scene) -> None:
    """Nor do their places belong to the batch that follows."""
    for batch, content in enumerate(["a", None, "b"]):
        said = punctuation("shop.revenue", batch)
        rows = (
            []
            if content is None
            else [Record(key=b"a", value=b'{"country":"%b"}' % content.encode())]
        )
        scene._writer.append("revenue", {0: [*rows, said]}, batch=batch)
    scene.commit(2)
    scene.project(versions_ms=DAY)
    assert scene.rows('select batch from "@batches"') == [(0,), (2,)]
    with opened(scene.path) as reader:
        kept = reader.find("revenue")
        found = [reader.batch_at(kept, Position("revenue", 0, offset)) for offset in range(5)]
        assert found == [0, 0, 0, 2, 2]
