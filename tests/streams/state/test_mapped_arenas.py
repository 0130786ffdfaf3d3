import resource
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.streams.state import StateSchema, mapped_arenas
from penstock.streams.state.arena import Arena
from penstock.streams.state.layout import row_layout
from penstock.streams.state.mapped_arenas import MappedArenas

KEYS, VALUES = pa.schema({"a": pa.int64(), "b": pa.int64()}), pa.schema({"due": pa.int64()})
PLAIN = StateSchema(KEYS, VALUES)
FULL = StateSchema(KEYS, VALUES, due="due", grouped=1)


def arena_in(folder: Path, schema: StateSchema = PLAIN) -> Arena:
    return Arena.create(folder, row_layout(schema), schema.fingerprint)


def filled(folder: Path, count: int) -> MappedArenas:
    mapped = MappedArenas()
    for number in range(count):
        mapped.put(folder / str(number), arena_in(folder / str(number)))
    return mapped


def kept(mapped: MappedArenas, folder: Path, count: int) -> list[int]:
    return [number for number in range(count) if mapped.take(folder / str(number)) is not None]


def test_an_arena_is_its_takers_until_it_is_put_back(tmp_path: Path) -> None:
    mapped, arena = MappedArenas(), arena_in(tmp_path)
    mapped.put(tmp_path, arena)

    assert mapped.take(tmp_path) is arena
    assert mapped.take(tmp_path) is None


@pytest.mark.parametrize(("schema", "files"), [(PLAIN, 3), (FULL, 8)], ids=["plain", "full"])
def test_all_files_of_an_arena_count(tmp_path: Path, schema: StateSchema, files: int) -> None:
    arena = arena_in(tmp_path, schema)
    there = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]

    assert arena.mapped == (files, sum(there))
    assert len(there) == files


def test_hundreds_of_small_ones_stay(tmp_path: Path) -> None:
    assert kept(filled(tmp_path, 200), tmp_path, 200) == list(range(200))


@pytest.mark.parametrize("limit", ["number", "bytes", "files"])
def test_what_was_used_longest_ago_goes(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, size = arena_in(tmp_path / "0").mapped
    monkeypatch.setattr(mapped_arenas, "_ANY_SIZE", 2)
    if limit == "number":
        monkeypatch.setattr(mapped_arenas, "_MOST", 4)
    elif limit == "bytes":
        monkeypatch.setattr(mapped_arenas, "_MOST_BYTES", 5 * size - 1)
    else:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (2 * (5 * 3 - 1), 4096))
    mapped = filled(tmp_path, 4)
    first = mapped.take(tmp_path / "0")
    assert first is not None
    mapped.put(tmp_path / "0", first)
    for number in (4, 5):
        mapped.put(tmp_path / str(number), arena_in(tmp_path / str(number)))

    assert kept(mapped, tmp_path, 6) == [0, 3, 4, 5]


def test_some_stay_however_large_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_arenas, "_ANY_SIZE", 3)
    monkeypatch.setattr(mapped_arenas, "_MOST_BYTES", 0)

    assert kept(filled(tmp_path, 5), tmp_path, 5) == [2, 3, 4]


def test_what_is_put_twice_or_forgotten_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, size = arena_in(tmp_path / "0").mapped
    monkeypatch.setattr(mapped_arenas, "_ANY_SIZE", 1)
    monkeypatch.setattr(mapped_arenas, "_MOST_BYTES", 3 * size)
    mapped = filled(tmp_path / "other", 3)
    mapped.forget(tmp_path / "other")
    for _ in range(3):
        mapped.put(tmp_path / "0", arena_in(tmp_path / "0"))
    for number in (1, 2):
        mapped.put(tmp_path / str(number), arena_in(tmp_path / str(number)))

    assert kept(mapped, tmp_path, 3) == [0, 1, 2]
    assert kept(mapped, tmp_path / "other", 3) == []
