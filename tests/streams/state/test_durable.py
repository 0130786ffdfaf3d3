import contextlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InvalidInput, StateDamaged, StateMismatch, StateMissing
from penstock.streams.state import StateSchema, bucket, clean, durable, look_up, state_info
from penstock.streams.state.durable import BucketFiles, Warm, Weights
from penstock.streams.state.files import TRAILER_BYTES
from tests.streams.state.hosts import Host

SCHEMA = StateSchema(pa.schema({"id": pa.int64()}), pa.schema({"n": pa.int64()}))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, SCHEMA)


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases are worth it however little there is."""
    monkeypatch.setattr(durable, "_LEAST_WEIGHT", 0)
    monkeypatch.setattr(durable, "_FILE_WEIGHT", 0)


def step(host: Host, version: int, ids: range, after: int | None = None) -> None:
    with host.open(version - 1 if after is None else after) as state:
        found = state.find_or_add(pa.record_batch({"id": np.asarray(ids)}))
        state.put(found, pa.record_batch({"n": np.full(len(ids), version)}))
        state.commit(version)


def bases(host: Host, until: int) -> list[int]:
    return [version for version in range(until) if host.file(version, "base").exists()]


@pytest.mark.usefixtures("light")
def test_what_is_written_is_a_constant_factor_of_what_changed(host: Host) -> None:
    step(host, 0, range(5000))
    for version in range(1, 101):
        step(host, version, range(version * 40, version * 40 + 100))
    deltas = sum(host.file(version).stat().st_size for version in range(101))
    written = sum(host.file(version, "base").stat().st_size for version in bases(host, 101))

    assert bases(host, 101)
    assert written < 1.2 * deltas
    host.lose_arena()
    files = BucketFiles(host.address, "sum", 0, 1)
    route = files.route(100, None)
    assert route.base == bases(host, 101)[-1]
    read = [host.file(version).stat().st_size for version in route.deltas]
    assert sum(read) <= host.file(route.base, "base").stat().st_size
    assert len(host.contents(100)) == 5000


def test_little_state_has_few_files_to_read(host: Host) -> None:
    for version in range(80):
        step(host, version, range(version, version + 3))

    assert len(bases(host, 80)) == 1


@pytest.mark.usefixtures("light")
def test_clean_keeps_every_version_that_is_asked_for(host: Host) -> None:
    for version in range(30):
        step(host, version, range(version, version + 50))
    contents = [host.contents(version) for version in range(30)]
    gone = clean(host.address, "sum", 1, keep_from=25)

    assert gone
    assert not any(Path(path).exists() for path in gone)
    kept = BucketFiles(host.address, "sum", 0, 1).kept()
    assert kept[0] <= 25
    assert kept[-1] == 29
    for version in kept:
        host.lose_arena()
        assert host.contents(version) == contents[version]
    host.lose_arena()
    with pytest.raises(StateMissing):
        host.open(kept[0] - 1)
    assert clean(host.address, "sum", 1, keep_from=25) == []


def test_clean_takes_away_what_a_killed_process_left(host: Host) -> None:
    step(host, 0, range(3))
    step(host, 1, range(3))
    old, new = (
        host.file(version).with_name(f"{host.file(version).name}.abc.unfinished")
        for version in (0, 1)
    )
    for path in (old, new):
        path.write_bytes(b"half")

    assert clean(host.address, "sum", 1, keep_from=1) == [str(old)]
    assert new.exists()
    assert len(host.contents(1)) == 3


def test_clean_of_nothing(tmp_path: Path) -> None:
    assert clean(tmp_path / "nowhere", "sum", 4, keep_from=10) == []


def _flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("kind", ["delta", "base"])
def test_every_flipped_or_lost_byte_is_noticed(host: Host, kind: str) -> None:
    for version in range(4):
        step(host, version, range(5))
    version = bases(host, 4)[-1]
    if kind == "delta" and version < 3:
        version = 3
    path = host.file(version, kind)
    whole, expected = path.read_bytes(), host.contents(version)
    positions = np.random.default_rng(3).integers(0, len(whole), 25).tolist()
    harmed = [_flip(whole, at) for at in (*positions, len(whole) - 1, 0)]
    harmed += [whole[:at] for at in (0, 1, len(whole) // 2, len(whole) - 1)]
    harmed += [whole + b"\0"]
    for content in harmed:
        path.write_bytes(content)
        host.lose_arena()
        host.restart_process()
        if kind == "base" and content[:-TRAILER_BYTES] == whole[:-TRAILER_BYTES]:
            with contextlib.suppress(StateDamaged):  # or it counts as one of another history
                assert host.contents(version) == expected
        else:
            with pytest.raises((StateDamaged, StateMismatch, StateMissing)):
                host.open(version)
    path.write_bytes(whole)
    assert host.contents(version) == expected


def test_a_damaged_file_is_named(host: Host) -> None:
    step(host, 0, range(5))
    path = host.file(0)
    path.write_bytes(_flip(path.read_bytes(), 300))
    host.lose_arena()

    with pytest.raises(StateDamaged, match=f"{path} is damaged: its checksum") as raised:
        host.open(0)
    assert raised.value.hint


def test_a_delta_in_the_wrong_place_is_noticed(host: Host) -> None:
    for version in range(4):
        step(host, version, range(version, version + 2))
    host.file(2).write_bytes(host.file(1).read_bytes())
    host.lose_arena()

    for version in (2, 3):
        with pytest.raises(StateDamaged, match="holds version 1"):
            host.open(version)


def test_a_delta_of_another_history_is_noticed(host: Host, tmp_path: Path) -> None:
    elsewhere = Host(tmp_path / "else", SCHEMA)
    for version in range(3):
        step(host, version, range(2))
        step(elsewhere, version, range(version + 3))
    host.file(1).write_bytes(elsewhere.file(1).read_bytes())
    host.lose_arena()

    with pytest.raises(StateMismatch, match="version 2 of the state does not follow"):
        host.open(2)


def test_a_gap_is_noticed(host: Host) -> None:
    for version in range(4):
        step(host, version, range(2))
    host.file(1).unlink()
    host.lose_arena()

    with pytest.raises(StateMissing, match=r"version 2 .* does not follow version 0") as raised:
        host.open(3)
    assert str(host.file(0).parent) in raised.value.message
    assert "restore" in raised.value.hint


WITH_GAPS = [2, 5, 9, 30, 31, 77]


def take_steps(host: Host, versions: list[int]) -> None:
    for before, version in pairwise([-1, *versions]):
        step(host, version, range(version, version + 3), after=before)


@pytest.mark.parametrize("lost", WITH_GAPS)
@pytest.mark.parametrize("has_arena", [False, True], ids=["", "arena behind"])
def test_a_lost_delta_is_noticed_wherever_it_lies(host: Host, lost: int, has_arena: bool) -> None:
    """But where an arena has what it held."""
    take_steps(host, WITH_GAPS)
    expected = host.contents(77)
    host.lose_arena()
    if has_arena:
        assert len(host.contents(9)) == 9
    host.file(lost).unlink()

    if has_arena and lost <= 9:
        assert host.contents(77) == expected
    else:
        with pytest.raises(StateMissing, match="of the state cannot be read"):
            host.open(77)


def test_a_lost_delta_is_not_missed_before_a_base(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_steps(host, WITH_GAPS[:3])
    monkeypatch.setattr(durable, "_LEAST_WEIGHT", 0)
    step(host, 30, range(3), after=9)
    assert host.file(30, "base").exists()
    monkeypatch.undo()
    for before, version in pairwise(WITH_GAPS[3:]):
        step(host, version, range(3), after=before)
    expected = [host.contents(version) for version in WITH_GAPS[3:]]
    host.file(5).unlink()

    for version, contents in zip(WITH_GAPS[3:], expected, strict=True):
        host.lose_arena()
        assert host.contents(version) == contents
    with pytest.raises(StateMissing, match=r"version 9 .* does not follow version 2"):
        host.open(9)
    host.file(2).unlink()
    with pytest.raises(StateMissing, match=r"version 9 .* it is not the first"):
        host.open(9)


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("given_up", [5, 7])
def test_what_a_batch_left_that_was_given_up_is_passed_over(host: Host, given_up: int) -> None:
    """Its file may come even later than that of the next step, of a task that nobody waits for."""
    take_steps(host, [1, 2, 3, 4])
    late = Host(host.durable.parent, SCHEMA, name="b")
    step(host, 9, range(2), after=4)
    step(late, given_up, range(100, 900), after=4)
    assert host.file(given_up, "base").exists()
    step(host, 12, range(20, 22), after=9)
    expected = host.contents(12)

    assert len(expected) == 9
    assert clean(host.address, "sum", 1, keep_from=11)
    for each in (host, late):
        each.lose_arena()
        assert each.contents(12) == expected
        assert len(each.contents(9)) == 7


def test_a_first_step_passes_over_what_was_given_up(host: Host) -> None:
    step(host, 3, range(50), after=-1)
    step(host, 8, range(2), after=-1)
    step(host, 9, range(3), after=8)
    assert len(host.contents(9)) == 3

    host.lose_arena()
    assert len(host.contents(9)) == 3


def test_the_last_version_may_be_given_up_and_nothing_goes_that_is_before_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_LEAST_WEIGHT", 0)
    take_steps(host, [0, 2, 4])
    assert host.file(4, "base").exists()
    clean(host.address, "sum", 1, keep_from=50)

    assert host.file(2).exists()
    step(host, 60, range(2), after=2)
    host.lose_arena()
    assert len(host.contents(60)) == 5


def test_a_host_that_is_a_little_behind_a_large_base_does_not_read_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_FILE_WEIGHT", 0)
    late = Host(host.durable.parent, SCHEMA, name="b")
    step(host, 0, range(5000), after=-1)
    step(host, 3, range(2), after=0)
    late.contents(3)
    monkeypatch.setattr(durable, "_LEAST_WEIGHT", 0)
    step(host, 5, range(4900), after=3)
    step(host, 7, range(4900), after=5)
    (base,) = bases(host, 8)
    monkeypatch.setattr(durable, "_LEAST_WEIGHT", 2**40)
    step(host, 20, range(3), after=7)
    files = BucketFiles(host.address, "sum", 0, 1)
    weights = Weights(*late.weights())
    identities = {each: files.trailer(each).identity for each in (0, 3, 5, 7)}

    assert base in (5, 7)
    behind = 0, 5 if base == 7 else 3
    far, near = (files.route(20, Warm(at, identities[at], weights)) for at in behind)
    assert (far.base, far.from_arena) == (base, False)
    assert (near.base, near.from_arena) == (None, True)
    assert near.weights == far.weights
    assert late.contents(20) == host.contents(20)


def test_a_delta_of_another_history_is_noticed_after_a_gap(host: Host) -> None:
    take_steps(host, [0, 4])
    step(host, 0, range(9), after=-1)  # from the beginning, in the same folder

    with pytest.raises(StateMissing, match=r"version 4 .* does not follow version 0"):
        host.open(4)


def test_a_whole_version_of_another_history_is_noticed_after_a_gap(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "WHOLE_ROWS", 3)
    step(host, 0, range(3))
    step(host, 4, range(3), after=0)
    assert host.written(4)[0] == "base"
    host.lose_arena()
    assert len(host.contents(4)) == 3
    step(host, 0, range(5, 7))

    with pytest.raises(StateMissing, match=r"version 4 .* does not follow version 0"):
        host.open(4)


def test_deltas_after_a_whole_version_of_another_history(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "WHOLE_ROWS", 3)
    step(host, 0, range(3))
    step(host, 4, range(3), after=0)
    step(host, 6, range(1), after=4)
    step(host, 4, range(1, 4), after=0)
    assert [host.written(version)[0] for version in (0, 4, 6)] == ["delta", "delta", "delta"]
    step(host, 0, range(1, 4))
    step(host, 4, range(1, 4), after=0)
    assert host.written(4)[0] == "base"

    with pytest.raises(StateMissing, match=r"version 6 .* does not follow version 4"):
        host.open(6)


@pytest.mark.usefixtures("light")
def test_clean_keeps_the_version_that_was_the_newest_one_then(host: Host) -> None:
    versions = list(range(0, 90, 3))
    for before, version in pairwise([-1, *versions]):
        step(host, version, range(version, version + 50), after=before)
    contents = {version: host.contents(version) for version in versions}
    files = BucketFiles(host.address, "sum", 0, 1)
    assert files.kept() == tuple(versions)
    for keep_from in (1, 40, 74, 85, 86, 1000):
        clean(host.address, "sum", 1, keep_from)
        kept = files.kept()
        assert kept[0] <= keep_from
        assert kept[-1] == 87
        assert files.at(keep_from) == min(keep_from // 3 * 3, 87)
        for version in kept:
            host.lose_arena()
            assert host.contents(version) == contents[version]
    assert kept[0] > 40


@pytest.mark.usefixtures("light")
def test_gaps_change_nothing_about_bases(host: Host, tmp_path: Path) -> None:
    """What they weigh is noted in the arena, and found out anew from the files."""
    elsewhere = Host(tmp_path / "else", SCHEMA)
    for number in range(40):
        step(host, number, range(number, number + 50))
        elsewhere.lose_arena()
        before = number * 7 - 7 if number else -1
        step(elsewhere, number * 7, range(number, number + 50), after=before)

    assert [each * 7 for each in bases(host, 40)] == bases(elsewhere, 280)


def test_files_are_arrow_streams(host: Host) -> None:
    step(host, 0, range(3))

    with pa.memory_map(str(host.file(0))) as file:
        table = pa.ipc.open_stream(file).read_all()
    assert sorted(table.column("id").to_pylist()) == [0, 1, 2]
    assert table.column("(removed)").to_pylist() == [False] * 3


@pytest.mark.parametrize("operator", ["", "a/b", "..", ".hidden", "x" * 101])
def test_names_that_are_no_folder(tmp_path: Path, operator: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name an operator"):
        BucketFiles(str(tmp_path), operator, 0, 1)


@pytest.mark.parametrize(("bucket", "buckets"), [(-1, 2), (2, 2), (0, 0)])
def test_buckets_that_are_not(tmp_path: Path, bucket: int, buckets: int) -> None:
    with pytest.raises(InvalidInput, match="no bucket"):
        BucketFiles(str(tmp_path), "sum", bucket, buckets)


def test_a_version_that_changed_more_than_is_left_is_written_whole(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "WHOLE_ROWS", 2)
    step(host, 0, range(2))
    for version in range(1, 4):  # nothing is left but what came last
        with host.open(version - 1) as state:
            ids = np.arange(2 * version, 2 * version + 2)
            gone = state.find(pa.record_batch({"id": ids - 2}))
            found = state.find_or_add(pa.record_batch({"id": ids}))
            state.put(found, pa.record_batch({"n": ids}))
            state.remove(gone)
            state.commit(version)
    step(host, 4, range(1))
    host.lose_arena()
    host.restart_process()

    assert [host.written(each)[0] for each in range(5)] == ["delta", *["base"] * 3, "delta"]
    assert [len(host.contents(version)) for version in (4, 3, 2, 1, 0)] == [3, 2, 2, 2, 2]
    assert look_up(host.address, "sum", 1, {"id": 7}, version=3) == {"id": 7, "n": 7}
    assert look_up(host.address, "sum", 1, {"id": 5}, version=3) is None
    (info,) = state_info(host.address, "sum", 1)
    assert (info.rows, info.versions) == (3, (0, 1, 2, 3, 4))
    clean(host.address, "sum", 1, 2)
    assert not host.file(1, "base").exists()
    assert len(host.contents(2)) == 2
    (info,) = state_info(host.address, "sum", 1)
    assert info.versions == (2, 3, 4)


def test_a_whole_version_takes_the_place_of_a_delta_of_another_history(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(host, 0, range(2))
    step(host, 1, range(4))
    monkeypatch.setattr(bucket, "WHOLE_ROWS", 1)
    step(host, 1, range(2))

    host.lose_arena()
    host.restart_process()
    assert host.written(1)[0] == "base"
    assert len(host.contents(1)) == 2


def test_a_whole_version_of_another_history_is_noticed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "WHOLE_ROWS", 3)
    step(host, 0, range(3))
    step(host, 1, range(3))  # whole
    step(host, 0, range(5, 7))  # from the beginning, in the same folder

    with pytest.raises(StateMismatch, match="version 1 of the state does not follow"):
        host.contents(1)


def test_rows_that_come_and_go_in_a_step_are_not_counted_as_changed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "WHOLE_ROWS", 1)
    step(host, 0, range(3))
    with host.open(0) as state:
        state.remove(state.find_or_add(pa.record_batch({"id": np.arange(10, 20)})))
        state.commit(1)

    assert host.written(1)[0] == "delta"
    assert host.file(1).stat().st_size < host.file(0).stat().st_size
