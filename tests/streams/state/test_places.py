import os
import uuid
from pathlib import Path
from typing import BinaryIO

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import StateDamaged, StateError, StateMissing
from penstock.streams.state import StateSchema, clean, durable, look_up, rescale, state_info
from penstock.streams.state.places import FarPlace, LocalPlace, place_at
from tests.streams.state.hosts import Host

SCHEMA = StateSchema(pa.schema({"id": pa.int64()}), pa.schema({"n": pa.int64()}))


@pytest.fixture
def address() -> str:
    return f"memory://{uuid.uuid4().hex}/state"


def step(host: Host, version: int) -> None:
    with host.open(version - 1) as state:
        found = state.find_or_add(pa.record_batch({"id": np.arange(version, version + 20)}))
        state.put(found, pa.record_batch({"n": np.full(20, version)}))
        state.commit(version)


def expected(version: int) -> dict[str, str]:
    return {f"[{key}]": f"[{min(key, version)}]" for key in range(version + 20)}


def test_state_in_an_object_store(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_LEAST_WEIGHT", 0)
    here, there = (Host(tmp_path, SCHEMA, name=name, address=address) for name in ("a", "b"))
    for version in range(12):
        step(here if version % 3 else there, version)
        assert there.contents(version) == expected(version)
    assert clean(address, "sum", 1, keep_from=11)
    assert here.contents(11) == expected(11)
    here.lose_arena()
    assert here.contents(11) == expected(11)

    assert look_up(address, "sum", 1, {"id": 30}) == {"id": 30, "n": 11}
    assert rescale(address, operator="sum", from_buckets=1, to_buckets=3, version=11) == 31
    assert sum(each.rows for each in state_info(address, "sum", 3)) == 31
    assert not list(tmp_path.rglob("*.unfinished"))


def test_a_file_of_an_object_store_that_is_gone_or_damaged(tmp_path: Path, address: str) -> None:
    host = Host(tmp_path, SCHEMA, address=address)
    step(host, 0)
    step(host, 1)
    files, root = fsspec.core.url_to_fs(address)
    path = f"{root}/sum/1/0/{0:020d}.delta"
    content = files.cat_file(path)
    files.pipe_file(path, content[:300] + b"?" + content[301:])
    host.lose_arena()
    with pytest.raises(StateDamaged, match="checksum"):
        host.open(1)
    files.rm_file(path)
    with pytest.raises(StateMissing):
        host.open(1)


@pytest.mark.parametrize("far", [False, True], ids=["local", "far"])
def test_a_file_that_could_not_be_filled_is_not_there(
    tmp_path: Path, address: str, far: bool
) -> None:
    place = place_at(address if far else str(tmp_path / "state"), "sub")
    assert isinstance(place, FarPlace if far else LocalPlace)

    def fill(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises((StateError, OSError), match="No space left"):
        place.write("name", fill, tmp_path)
    assert place.sizes() == {}
    assert not list(tmp_path.rglob("*.unfinished"))


def test_a_file_appears_as_a_whole(tmp_path: Path) -> None:
    place = place_at(str(tmp_path), "sub")
    place.write("name", lambda file: _write(file, b"old"), tmp_path)

    def fill(file: BinaryIO) -> None:
        _write(file, b"new content")
        assert place.read("name").to_pybytes() == b"old"

    place.write("name", fill, tmp_path)
    assert place.read("name").to_pybytes() == b"new content"
    assert place.tail("name", 7) == b"content"
    assert place.tail("name", 100) == b"new content"
    assert place.sizes() == {"name": 11}
    assert place.names() == ["name"]
    assert place_at(str(tmp_path), "nowhere").names() == []


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "relative"])
def test_addresses_of_this_machine(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    address = tmp_path.name if form == "relative" else form.format(tmp_path)
    place_at(address, "a", "b").write("name", lambda file: _write(file, b"here"), tmp_path)

    assert (tmp_path / "a" / "b" / "name").read_bytes() == b"here"


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()


def test_new_folders_stay_when_the_power_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
    )
    LocalPlace(tmp_path / "sum" / "1").write("a", lambda file: file.write(b"a"), tmp_path)
    assert [each for each in synced if Path(each).is_dir()] == [
        str(tmp_path),
        str(tmp_path / "sum"),
        str(tmp_path / "sum" / "1"),
    ]
