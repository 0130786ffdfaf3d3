from pathlib import Path

import pytest

from penstock.log.policy import TopicPolicy
from penstock.log.storage.append_times import (
    APPENDED_FILE,
    AppendTimes,
    in_force,
    read_append_times,
    read_in_force,
)
from penstock.log.storage.partition import Partition

from .conftest import HeldExecutor, batch

POLICY = TopicPolicy(segment_bytes=200, durability="os")


def append_at(partition: Partition, now: list[int], *times: int) -> None:
    for at in times:
        now[0] = at
        partition.append(batch(1))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    moment = [0]
    monkeypatch.setattr("penstock.log.storage.partition.now_ms", lambda: moment[0])
    return moment


@pytest.mark.parametrize("in_memory", [False, True])
def test_one_note_a_second(
    tmp_path: Path, held: HeldExecutor, now: list[int], in_memory: bool
) -> None:
    partition = Partition(None if in_memory else tmp_path, "t", 0, POLICY, held)
    append_at(partition, now, 5_000, 5_400, 5_999, 6_000, 6_001, 9_000, 8_500, 7_900)
    noted = [(0, 5_000), (3, 6_000), (5, 9_000), (7, 7_900)]
    assert partition.append_times.pairs() == noted
    if not in_memory:
        assert read_append_times(tmp_path) == noted


def test_a_restart_goes_on(tmp_path: Path, held: HeldExecutor, now: list[int]) -> None:
    partition = Partition(tmp_path, "t", 0, POLICY, held)
    append_at(partition, now, 5_000)
    partition.close()
    append_at(Partition(tmp_path, "t", 0, POLICY, held), now, 5_001)
    assert read_append_times(tmp_path) == [(0, 5_000), (1, 5_001)]


def test_what_a_crash_took_is_cut_off(tmp_path: Path) -> None:
    times = AppendTimes(tmp_path, 0)
    for number in range(5):
        times.note(number * 10, number * 1_000)
    with (tmp_path / APPENDED_FILE).open("ab") as file:
        file.write(b"torn")
    assert len(read_append_times(tmp_path)) == 5
    again = AppendTimes(tmp_path, 30)  # the records from 30 on are gone
    assert read_append_times(tmp_path) == [(0, 0), (10, 1_000), (20, 2_000)]
    again.note(30, 9_000)
    assert read_append_times(tmp_path)[-1] == (30, 9_000)
    with (tmp_path / APPENDED_FILE).open("ab") as file:
        file.write(bytes(64))
    assert len(read_append_times(tmp_path)) == 4


def test_retention_drops_what_is_before_the_start(
    tmp_path: Path, held: HeldExecutor, now: list[int]
) -> None:
    partition = Partition(tmp_path, "t", 0, POLICY, held)
    append_at(partition, now, *range(1_000, 21_000, 1_000))
    partition.forget_before(4)
    assert len(read_append_times(tmp_path)) == 20
    partition.forget_before(15)
    assert read_append_times(tmp_path) == [(n, (n + 1) * 1_000) for n in range(15, 20)]
    append_at(partition, now, 30_000)
    assert read_append_times(tmp_path)[-1] == (20, 30_000)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 10, [(2, 1)]),
        (2, 3, [(2, 1)]),
        (9, 10, [(2, 1)]),
        (9, 11, [(2, 1), (10, 2)]),
        (10, 99, [(10, 2), (20, 3)]),
        (50, 99, [(20, 3)]),
        (0, 2, []),
        (5, 5, []),
    ],
)
def test_in_force(start: int, end: int, found: list[tuple[int, int]]) -> None:
    assert in_force([(2, 1), (10, 2), (20, 3)], start, end) == found
    assert in_force([], start, end) == []


@pytest.mark.parametrize("count", [0, 1, 2, 5, 3_000])
@pytest.mark.parametrize("torn", [b"", b"torn", bytes(64)])
def test_few_notes_are_read_where_few_hold(tmp_path: Path, count: int, torn: bytes) -> None:
    assert read_in_force(tmp_path, 0, 10) == []
    times = AppendTimes(tmp_path, 0)
    for number in range(count):
        times.note(5 + number * 10, number * 1_000)
    with (tmp_path / APPENDED_FILE).open("ab") as file:
        file.write(torn if count > 1 else b"")
    last = 5 + 10 * count
    for start, end in [(0, 1), (0, last), (14, 16), (15, 15), (20, 10), (last - 12, last + 99)]:
        expected = in_force(read_append_times(tmp_path), start, end)
        assert read_in_force(tmp_path, start, end) == expected
        assert times.in_force(start, end) == expected
