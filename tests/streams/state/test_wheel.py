"""Rows that are due, against all rows looked at one by one."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, StateDamaged
from penstock.streams.state import BucketState, StateSchema, arena, wheel_loops
from penstock.streams.state.wheel_loops import FIRST_ROW
from tests.streams.state.hosts import Host

SCHEMA = StateSchema(
    pa.schema({"id": pa.int64()}),
    pa.schema({"name": pa.string(), "flag": pa.int8(), "more": pa.int8(), "due": pa.int64()}),
    due="due",
)
LOWEST, HIGHEST = -(2**63), 2**63 - 1
HOUR = 3_600_000_000
NOW = 1_700_000_000_000_000


def ids(values: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64())})


def dues(values: Any) -> pa.RecordBatch:
    return pa.record_batch({"due": pa.array(values, pa.int64())})


def due_ids(state: BucketState, clock: int) -> list[int]:
    found = state.take(state.due(clock)).column("id").to_pylist()
    return sorted(found)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, SCHEMA)


@pytest.fixture
def state(host: Host) -> Iterator[BucketState]:
    with host.open(-1) as opened:
        yield opened


# Close together and far apart, and where digits turn over.
times = st.one_of(
    st.integers(LOWEST, HIGHEST),
    st.integers(-200, 200),
    st.integers(NOW - HOUR, NOW + HOUR),
    st.builds(lambda bit, more: 2**bit + more, st.integers(0, 62), st.integers(-2, 2)),
    st.builds(lambda bit, more: -(2**bit) + more, st.integers(0, 62), st.integers(-2, 2)),
    st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST]),
)
keys = st.integers(0, 30)
events = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(keys, st.none() | times), max_size=10)),
    st.tuples(st.just("put"), st.lists(st.tuples(keys, st.none() | times), max_size=10)),
    st.tuples(st.just("remove"), st.lists(keys, max_size=4)),
    st.tuples(st.just("due"), times),
    st.tuples(st.just("due"), times),
    st.tuples(st.just("finish"), st.none()),
)


@settings(max_examples=150)
@given(happenings=st.lists(events, max_size=20))
@example([("put", [(1, 5), (1, 5), (2, HIGHEST)]), ("due", 4), ("due", 5), ("finish", None)])
@example([("put", [(1, 5), (1, 500), (1, 5)]), ("put", [(1, 70)]), ("due", 69), ("due", 70)])
@example([("due", HIGHEST), ("put", [(1, 5), (2, 3)]), ("due", 4), ("due", LOWEST)])
@example([("put", [(1, LOWEST), (2, 0)]), ("due", LOWEST), ("due", -1), ("due", 0)])
def test_due_are_those_whose_time_has_come(happenings: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, Host(Path(folder), SCHEMA).open(-1) as state:
        expected: dict[int, int | None] = {}
        for what, detail in happenings:
            if what == "put":
                rows = state.find_or_add(ids([key for key, _ in detail]))
                state.put(rows, dues([due for _, due in detail]))
                expected.update(detail)
            elif what == "remove":
                state.remove(rows := state.find(ids([k for k in detail if k in expected])))
                assert (rows >= 0).all()
                for key in detail:
                    expected.pop(key, None)
            elif what == "due":
                assert due_ids(state, detail) == sorted(
                    key for key, due in expected.items() if due is not None and due <= detail
                )
            else:  # a kernel that does with every row that is due what it has to do
                for clock in (NOW, HIGHEST):
                    rows = state.due(clock)
                    gone = set(due_ids(state, clock))
                    state.put(rows[::2], dues([None] * len(rows[::2])))
                    state.remove(rows[1::2])
                    for key in gone:
                        expected.pop(key)
                    assert len(state.due(clock)) == 0


def test_many_rows_in_some_steps(host: Host) -> None:
    """More than there is room for at first, and than are given at a time."""
    random = np.random.default_rng(11)
    count = 20 * arena._LEAST_ROWS
    due: dict[int, int] = {}
    for version in range(6):
        clock = NOW + version * HOUR
        with host.open(version - 1) as state:
            chosen = random.permutation(count)[: count // 2]
            at = clock + random.integers(-HOUR, 4 * HOUR, len(chosen))
            state.put(state.find_or_add(ids(chosen)), dues(at))
            due.update(zip(chosen.tolist(), at.tolist(), strict=True))
            gone = sorted(key for key, at in due.items() if at <= clock)
            assert due_ids(state, clock) == gone
            state.remove(state.due(clock))
            for key in gone:
                del due[key]
            assert len(state) == len(due)
            state.commit(version, clock)
    for other in (host, Host(host.warm.parent, SCHEMA, name="b")):
        with other.open(5) as state:
            for clock in (NOW + 6 * HOUR, NOW + 7 * HOUR, NOW + 2 * HOUR, HIGHEST):
                assert due_ids(state, clock) == sorted(k for k, at in due.items() if at <= clock)


@pytest.mark.parametrize("now", [NOW, -NOW])
def test_rows_that_are_not_due_are_not_looked_at(state: BucketState, now: int) -> None:
    """What they hold is made nonsense, which would not go unnoticed."""
    state.due(now)
    far = state.find_or_add(ids(range(100_000)))
    state.put(far, dues(now + HOUR + np.arange(100_000) * 1000))
    near = state.find_or_add(ids(range(-10, 0)))
    state.put(near, dues([now + i * 1000 for i in range(10)]))
    _nodes(state)[FIRST_ROW + far] = 0xFFFFFFFF

    assert due_ids(state, now + 4500) == list(range(-10, -5))
    assert due_ids(state, now + 10_000) == list(range(-10, 0))
    with pytest.raises(StateDamaged):
        state.due(now + 2 * HOUR)


def test_a_step_without_anything_due(state: BucketState) -> None:
    assert state.due(LOWEST).tolist() == state.due(5).tolist() == state.due(HIGHEST).tolist() == []
    assert state.due(5).dtype == np.int64


def test_a_row_that_comes_back_is_not_due(state: BucketState) -> None:
    row = state.find_or_add(ids([1]))
    state.put(row, dues([5]))
    state.remove(row)
    assert due_ids(state, 10) == []
    state.find_or_add(ids([1]))
    assert due_ids(state, 10) == []


def test_other_values_leave_the_due_as_it_is(state: BucketState) -> None:
    rows = state.find_or_add(ids([1, 2]))
    state.put(rows, dues([5, None]))
    state.put(rows, pa.record_batch({"flag": pa.array([1, 2], pa.int8())}))
    assert due_ids(state, 10) == [1]
    everything = pa.RecordBatch.from_pylist([{"due": None}, {"due": 7}], schema=SCHEMA.values)
    state.put(rows, everything)
    assert due_ids(state, 10) == [2]


@pytest.mark.parametrize("way", [BucketState.fixed, BucketState.valid])
def test_when_a_row_is_due_cannot_be_changed_in_place(
    state: BucketState, way: Callable[[BucketState, str], Any]
) -> None:
    with pytest.raises(InvalidInput, match="in place") as raised:
        way(state, "due")
    assert "put" in raised.value.hint
    way(state, "flag")


def test_state_without_a_due(tmp_path: Path) -> None:
    plain = StateSchema(SCHEMA.keys, SCHEMA.values)
    host = Host(tmp_path, plain)
    with host.open(-1) as state:
        with pytest.raises(InvalidInput, match="due") as raised:
            state.due(5)
        assert "StateSchema" in raised.value.hint
        state.fixed("due")[state.find_or_add(ids([1]))] = 5

    assert not (host.arena / "wheel").exists()


def _cycle(nodes: np.ndarray[Any, Any], random: np.random.Generator) -> None:
    """Two rows that name each other, in the list that is walked."""
    a, b = FIRST_ROW + random.integers(0, 40, 2)
    nodes[a, 1], nodes[b, 1] = b, a
    nodes[:FIRST_ROW, 1] = a


def _nonsense(nodes: np.ndarray[Any, Any], random: np.random.Generator) -> None:
    nodes[:] = random.integers(0, 2**32, nodes.shape)


def _mixed(nodes: np.ndarray[Any, Any], random: np.random.Generator) -> None:
    """Numbers of nodes that there are, in no order."""
    nodes[:] = random.integers(0, FIRST_ROW + 40, nodes.shape)


def _zeros(nodes: np.ndarray[Any, Any], random: np.random.Generator) -> None:
    nodes[:FIRST_ROW] = 0


@pytest.mark.parametrize("harm", [_cycle, _nonsense, _mixed, _zeros])
@pytest.mark.parametrize("seed", range(8))
def test_a_wheel_full_of_nonsense_ends_the_step_and_is_built_again(
    host: Host, harm: Callable[[Any, np.random.Generator], None], seed: int
) -> None:
    with host.open(-1) as state:
        state.put(state.find_or_add(ids(range(40))), dues(NOW + np.arange(40) * HOUR // 7))
        state.commit(0, NOW)
    host.restart_process()
    words = np.memmap(host.arena / "wheel", np.uint32, "r+")
    harm(words.reshape(-1, 2), np.random.default_rng(seed))

    def step(state: BucketState) -> None:
        for clock in (NOW + HOUR, NOW + 3 * HOUR, NOW + 9 * HOUR):
            rows = state.due(clock)
            state.put(rows, dues(np.arange(len(rows)) * HOUR))
            found = state.find(ids([seed]))
            state.remove(found[found >= 0])
        for row in state.find(ids(range(20, 40))):
            state.put(np.array([row]), dues([7]))

    may_pass = contextlib.suppress(StateDamaged)
    with may_pass if harm is _mixed else pytest.raises(StateDamaged), host.open(0) as state:
        step(state)
    with host.open(0) as state:
        assert due_ids(state, NOW + HOUR) == list(range(8))


def _nodes(state: BucketState) -> np.ndarray[Any, Any]:
    assert state._arena.wheel is not None
    return state._arena.wheel._nodes.reshape(-1, 2)


def test_a_list_without_end_that_is_to_be_split(state: BucketState) -> None:
    state.due(NOW)
    due = (NOW | (2**36 - 1)) + 2
    first, second = state.find_or_add(ids([1, 2]))
    state.put(np.array([first, second]), dues([due, due]))
    _nodes(state)[FIRST_ROW + second, 1] = FIRST_ROW + first

    with pytest.raises(StateDamaged):
        state.due(due - 1)


@pytest.mark.parametrize("clock", [1, 10])
def test_a_list_without_end_of_what_is_due(state: BucketState, clock: int) -> None:
    a, b, c, d = FIRST_ROW + state.find_or_add(ids([1, 2, 3, 4]))
    state.put(state.find(ids([1, 2, 3, 4])), dues([5] * 4))
    assert due_ids(state, 10) == [1, 2, 3, 4]
    _nodes(state)[b, 1], _nodes(state)[c, 0] = a, d

    with pytest.raises(StateDamaged):
        state.due(clock)


@pytest.mark.parametrize("other", [SCHEMA, StateSchema(SCHEMA.keys, SCHEMA.values)], ids=["", "no"])
def test_an_arena_that_is_packed_anew_keeps_its_place_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: StateSchema
) -> None:
    monkeypatch.setattr(arena, "_SPARE_ROWS", 10)
    host = Host(tmp_path, other)
    with host.open(-1) as state:
        state.put(state.find_or_add(ids(range(5000))), dues(NOW + np.arange(5000)))
        if other.due is not None:
            state.due(NOW)
        state.commit(0)
    with host.open(0) as state:
        state.remove(state.find(ids(range(10, 5000))))
        state.commit(1)
        wheel = state._arena.wheel
        assert (wheel is None) == (other.due is None)
        if wheel is not None:
            assert wheel.position == NOW
    if other.due is not None:
        assert (host.arena / "wheel").stat().st_size < 20_000
        with host.open(1) as state:
            assert due_ids(state, NOW + 4) == [0, 1, 2, 3, 4]


def test_each_kernel_is_compiled_once(tmp_path: Path) -> None:
    test_many_rows_in_some_steps(Host(tmp_path, SCHEMA))
    kernels = [each for each in vars(wheel_loops).values() if hasattr(each, "signatures")]

    assert max(len(each.signatures) for each in kernels) == 1
