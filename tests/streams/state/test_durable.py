import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InvalidInput, StateDamaged, StateMismatch, StateMissing
from penstock.streams.state import StateSchema, bucket, clean, durable, look_up, state_info
from penstock.streams.state.durable import BucketFiles
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


def step(host: Host, version: int, ids: range) -> None:
    with host.open(version - 1) as state:
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

    with pytest.raises(StateDamaged, match="holds version 1"):
        host.open(3)


def test_a_delta_of_another_history_is_noticed(host: Host, tmp_path: Path) -> None:
    elsewhere = Host(tmp_path / "else", SCHEMA)
    for version in range(3):
        step(host, version, range(2))
        step(elsewhere, version, range(version + 3))
    host.file(1).write_bytes(elsewhere.file(1).read_bytes())
    host.lose_arena()

    with pytest.raises(StateMismatch, match="version 1 of the state does not follow"):
        host.open(2)


def test_a_gap_is_noticed(host: Host) -> None:
    for version in range(4):
        step(host, version, range(2))
    host.file(1).unlink()
    host.lose_arena()

    with pytest.raises(StateMissing, match=r"version 1 .* is not there"):
        host.open(3)


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
    assert (info.rows, info.versions) == (3, range(5))
    clean(host.address, "sum", 1, 2)
    assert not host.file(1, "base").exists()
    assert len(host.contents(2)) == 2
    (info,) = state_info(host.address, "sum", 1)
    assert info.versions == range(2, 5)


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
