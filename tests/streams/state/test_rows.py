from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InvalidInput, StateError, StateMismatch
from penstock.streams.state import BucketState, StateSchema, arena, index_loops, rows
from penstock.streams.state.cell_loops import copy_ranges
from penstock.streams.state.key_loops import hash_each
from penstock.streams.state.keys import hashes_of, key_layout
from tests.streams.state.hosts import Host
from tests.streams.state.samples import SAMPLES

SCHEMA = StateSchema(
    pa.schema({"id": pa.int64()}),
    pa.schema({"n": pa.int64(), "total": pa.float64(), "name": pa.string(), "ok": pa.bool_()}),
)


def ids(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64())})


def names(*values: str | None) -> pa.RecordBatch:
    return pa.record_batch({"name": pa.array(values, pa.string())})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, SCHEMA)


@pytest.fixture
def state(host: Host) -> Iterator[BucketState]:
    with host.open(-1) as opened:
        yield opened


def test_rows_are_found_by_key(state: BucketState) -> None:
    added = state.find_or_add(ids(5, None, -7, 5))

    assert added[0] == added[3]
    assert len(set(added.tolist())) == len(state) == 3
    assert state.find(ids(-7, 6, None, 5)).tolist() == [added[2], -1, added[1], added[0]]


def test_a_new_row_has_no_values(state: BucketState) -> None:
    found = state.find_or_add(ids(5))

    assert state.is_new(found).tolist() == [True]
    assert state.take(found).to_pylist() == [
        {"id": 5, "n": None, "total": None, "name": None, "ok": None}
    ]
    assert state.fixed("n")[found].tolist() == [0]
    assert state.valid("n")[found].tolist() == [False]


def test_values_change_in_place(host: Host) -> None:
    for version in range(3):
        with host.open(version - 1) as state:
            found = state.find_or_add(ids(1, 2, 1))
            np.add.at(state.fixed("n"), found, 1)
            np.add.at(state.fixed("total"), found, [0.5, 0.25, 1.0])
            for name in ("n", "total"):
                state.valid(name)[found] = True
            assert state.is_new(found).tolist() == [version == 0] * 3
            state.commit(version)

    host.lose_arena()
    assert host.contents(2) == {"[1]": "[6, 4.5, None, None]", "[2]": "[3, 0.75, None, None]"}


def test_only_touched_rows_are_in_a_delta(host: Host) -> None:
    with host.open(-1) as state:
        state.put(state.find_or_add(ids(1, 2, 3)), names("a", "b", "c"))
        state.commit(0)
    with host.open(0) as state:
        state.find(ids(1))
        state.take(state.find(ids(1)))
        state.touch(state.find(ids(3)))
        state.put(state.find(ids(2)), names("B"))
        state.commit(1)

    (batch,) = pa.ipc.open_stream(host.file(1).read_bytes())
    assert sorted(batch.column("id").to_pylist()) == [2, 3]


def test_put_sets_some_columns_and_the_last_of_equal_rows_wins(state: BucketState) -> None:
    found = state.find_or_add(ids(1, 2, 1))
    state.put(found, pa.record_batch({"ok": pa.array([True, None, False])}))
    state.put(found, names("short", None, "x" * 100))
    state.put(found, names("x" * 100, "y", "short"))

    assert state.take(found[:2]).to_pylist() == [
        {"id": 1, "n": None, "total": None, "name": "short", "ok": False},
        {"id": 2, "n": None, "total": None, "name": "y", "ok": None},
    ]


def test_removed_rows_are_gone_and_may_come_back(host: Host) -> None:
    with host.open(-1) as state:
        state.put(state.find_or_add(ids(1, 2, 3)), names("a", "b", "c"))
        state.commit(0)
    with host.open(0) as state:
        state.remove(state.find(ids(1, 2, 1)))
        assert state.find(ids(1, 2, 3)).tolist()[:2] == [-1, -1]
        assert len(state) == 1
        again = state.find_or_add(ids(2))
        assert state.is_new(again).all()
        assert state.take(again).column("name").to_pylist() == [None]
        state.remove(state.find_or_add(ids(9)))
        state.commit(1)

    assert host.contents(1) == {
        "[2]": "[None, None, None, None]",
        "[3]": "[None, None, 'c', None]",
    }
    (batch,) = pa.ipc.open_stream(host.file(1).read_bytes())
    removed = dict(
        zip(*(batch.column(name).to_pylist() for name in ("id", "(removed)")), strict=True)
    )
    assert removed == {1: True, 2: False}  # and of 9, which came and went, nothing


def test_rows_of_removed_keys_are_used_again(host: Host) -> None:
    for version in range(20):
        with host.open(version - 1) as state:
            state.remove(state.find(ids(*range(version * 10 - 10, version * 10)))[: version * 10])
            found = state.find_or_add(ids(*range(version * 10, version * 10 + 10)))
            assert found.max() < 20
            state.commit(version)

    assert len(host.contents(19)) == 10


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_it_grows_as_it_must(tmp_path: Path, kind: pa.DataType) -> None:
    count = 20 * arena._LEAST_ROWS
    schema = StateSchema(pa.schema({"key": kind}), pa.schema({"n": pa.int64(), "s": pa.string()}))
    host = Host(tmp_path, schema)
    keys = pa.record_batch([pa.array(np.arange(count)).cast(kind)], ["key"])
    values = pa.record_batch(
        {"n": np.arange(count), "s": pa.array(np.arange(count)).cast("string")}
    )

    with host.open(-1) as state:
        for first in range(0, count, 3000):
            found = state.find_or_add(keys.slice(first, 3000))
            state.put(found, values.slice(first, 3000))
        state.commit(0)
    host.restart_process()
    with host.open(0) as state:
        found = state.find(keys)
        taken = state.take(found)
        assert len(set(found.tolist())) == len(state) == count
        assert taken.select(["n", "s"]).equals(values)
        assert taken.column("key").equals(keys.column(0))


def test_one_call_may_add_more_than_there_is_room_for(state: BucketState) -> None:
    count = 5 * arena._LEAST_ROWS
    twice = [*range(count), *range(count)]

    found = state.find_or_add(ids(*twice))
    assert found[:count].tolist() == found[count:].tolist()
    assert len(state) == count


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.list_(pa.int8())], ids=str)
def test_keys_with_the_same_hash_are_kept_apart(
    tmp_path: Path, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collide(keys: Any) -> Any:
        hashes = np.full(len(keys.nulls), 0xFFFFFFFF_00000000, np.uint64)  # at the index's end
        hashes[keys.nulls > 0] = 0
        return hashes

    monkeypatch.setattr(rows, "hashes_of", collide)
    values = [[i] for i in range(90)] if pa.types.is_list(kind) else list(range(90))
    keys = pa.record_batch([pa.array([*values, None]).cast(kind)], ["key"])
    schema = StateSchema(keys.schema, pa.schema({"n": pa.int64()}))
    host, model = Host(tmp_path, schema), {}
    random = np.random.default_rng(7)
    for version in range(12):
        with host.open(version - 1) as state:
            chosen = keys.take(pa.array(random.permutation(91)[:40]))
            found = state.find_or_add(chosen)
            state.put(found, pa.record_batch({"n": np.arange(40) + version}))
            state.remove(found[::3])
            for i, key in enumerate(chosen.column(0).to_pylist()):
                model[repr([key])] = repr([i + version])
                if i % 3 == 0:
                    del model[repr([key])]
            state.commit(version)
        if version % 4 == 3:
            host.lose_arena()
        assert host.contents(version) == model


def test_keys_whose_hashes_share_a_fragment(state: BucketState) -> None:
    """Real ones, made by running the hash backwards, all in the same slot of the index."""
    wanted = [(0xABCDEF01 << 32) | low for low in range(0, 3000, 3)]
    made = ids(*(unhashed(each) for each in wanted))

    found = state.find_or_add(made)
    assert len(set(found.tolist())) == len(wanted)
    assert state.find(made).tolist() == found.tolist()
    state.remove(found[::2])
    assert state.find(made).tolist() == [-1 if i % 2 == 0 else row for i, row in enumerate(found)]
    hashes = hashes_of(key_layout(made.schema).encode(made))
    assert {int(each) >> 32 for each in hashes} == {0xABCDEF01}


def unhashed(hashed: int) -> int:
    """The integer key that has this hash."""
    bits = 2**64

    def unshift(value: int, by: int) -> int:
        found = value
        for _ in range(64 // by):
            found = value ^ (found >> by)
        return found

    state = unshift(hashed, 31) * pow(0x94D049BB133111EB, -1, bits) % bits
    state = unshift(state, 27) * pow(0xBF58476D1CE4E5B9, -1, bits) % bits
    state = unshift(unshift(state, 30), 32) * pow(0x9E3779B97F4A7C15, -1, bits) % bits
    key = state ^ 0x243F6A8885A308D3
    return key - bits if key >= bits // 2 else key


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_as_key_and_as_value(tmp_path: Path, name: str) -> None:
    kind, values = SAMPLES[name]
    column = pa.array([*values, None], kind)
    batch = pa.record_batch([column, pa.array(range(len(column))), column], ["key", "i", "value"])
    schema = StateSchema(batch.select(["key"]).schema, batch.select(["i", "value"]).schema)
    here, there = Host(tmp_path, schema), Host(tmp_path, schema, name="b")
    with here.open(-1) as state:
        found = state.find_or_add(batch.select(["key"]))
        state.put(found, batch.select(["i", "value"]))
        state.commit(0)
    with here.open(0) as state:  # each value goes to the next key
        found = state.find(batch.select(["key"]))
        turned = pa.array([None, *values], kind)
        state.put(found, pa.record_batch([turned], ["value"]))
        written = repr(state.take(found).to_pylist())
        state.commit(1)

    with here.open(1) as state:
        state.remove(state.find(batch.slice(0, 1).select(["key"])))
        state.commit(2)

    assert written == repr(batch.set_column(2, "value", turned).to_pylist())
    for host in (here, there):
        host.restart_process()
        with host.open(1) as state:
            taken = state.take(state.find(batch.select(["key"])))
            taken.validate(full=True)
            assert repr(taken.to_pylist()) == written
            assert len(state) == len(column)
        with host.open(2) as state:
            found = state.find(batch.select(["key"]))
            assert found[0] == -1
            assert repr(state.take(found[1:]).to_pylist()) == repr(taken.slice(1).to_pylist())


def test_nullability_is_not_enforced(tmp_path: Path) -> None:
    kinds = {"a": pa.int64(), "b": pa.string(), "c": pa.list_(pa.int8())}
    fields = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
    host = Host(tmp_path, StateSchema(pa.schema(fields[:2]), pa.schema(fields[2:])))
    keys = pa.record_batch([pa.array([None, 1], pa.int64()), pa.array(["x", None])], ["a", "b"])
    values = pa.record_batch([pa.array([None, []], pa.list_(pa.int8()))], ["c"])
    with host.open(-1) as state:
        state.put(state.find_or_add(keys), values)
        state.commit(0)
    host.lose_arena()

    assert host.contents(0) == {"[None, 'x']": "[None]", "[1, None]": "[[]]"}


def test_fixed_gives_what_arrow_keeps(tmp_path: Path) -> None:
    values = pa.schema(
        {
            "at": pa.timestamp("ms"),
            "day": pa.date32(),
            "sum": pa.decimal128(20, 2),
            "b": pa.binary(3),
        }
    )
    host = Host(tmp_path, StateSchema(pa.schema({"id": pa.int64()}), values))
    with host.open(-1) as state:
        found = state.find_or_add(ids(4))
        state.fixed("at")[found] = 1_500
        state.fixed("day")[found] = 1
        state.fixed("sum")[found] = [-150, -1]
        state.fixed("b")[found] = [97, 98, 99]
        for name in values.names:
            state.valid(name)[found] = True
        text = repr(state.take(found).to_pylist())

    assert "1970, 1, 1, 0, 0, 1, 500000" in text
    assert "Decimal('-1.50')" in text
    assert "1970, 1, 2" in text
    assert "b'abc'" in text


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda state: state.take(np.array([-1])), InvalidInput, "none of the state's"),
        (lambda state: state.touch(np.array([3])), InvalidInput, "none of the state's"),
        (
            lambda state: state.put(np.array([0, 1]), names("a")),
            InvalidInput,
            "1 values for 2 rows",
        ),
        (lambda state: state.fixed("name"), InvalidInput, "no fixed width"),
        (lambda state: state.fixed("nix"), InvalidInput, "it has n, total, name, ok"),
        (lambda state: state.put(np.array([0]), ids(1)), InvalidInput, "no values 'id'"),
        (
            lambda state: state.put(np.array([0]), pa.record_batch({"n": pa.array(["a"])})),
            StateMismatch,
            "values given are n string, those of the state n int64",
        ),
        (
            lambda state: state.find(pa.record_batch({"id": pa.array([1], pa.int32())})),
            StateMismatch,
            "keys given are id int32, those of the state id int64",
        ),
        (lambda state: state.find_or_add(names("a")), StateMismatch, "keys given are name string"),
    ],
)
def test_what_does_not_fit_is_refused(
    state: BucketState, act: Any, error: type[StateError], said: str
) -> None:
    state.find_or_add(ids(1, 2))

    with pytest.raises(error, match=said):
        act(state)


def test_a_removed_row_cannot_be_used(state: BucketState) -> None:
    found = state.find_or_add(ids(1))
    state.remove(found)

    with pytest.raises(InvalidInput, match="removed"):
        state.put(found, names("a"))


def test_garbage_and_free_rows_are_given_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "_SPARE_ROWS", 10)
    monkeypatch.setattr(arena, "_SPARE_BYTES", 1000)
    count = 30_000
    with host.open(-1) as state:
        found = state.find_or_add(ids(*range(count)))
        state.put(found, names(*(["some text"] * count)))
        state.commit(0)
    files = ("rows", "index", "heap")
    before = {name: (host.arena / name).stat().st_size for name in files}
    with host.open(0) as state:
        state.remove(state.find(ids(*range(10, count))))
        state.commit(1)
    after = {name: (host.arena / name).stat().st_size for name in files}

    assert all(after[name] < before[name] / 8 for name in files)
    assert host.contents(1) == {f"[{i}]": "[None, None, 'some text', None]" for i in range(10)}


def test_text_that_is_replaced_again_and_again_does_not_pile_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "_SPARE_BYTES", 1000)
    with host.open(-1) as state:
        state.find_or_add(ids(1))
        state.commit(0)
    for version in range(1, 13):
        with host.open(version - 1) as state:
            for size in range(40):
                state.put(state.find(ids(1)), names("x" * (20 * size + version)))
            state.commit(version)

    assert (host.arena / "heap").stat().st_size < 64 * 1024
    assert host.contents(12) == {"[1]": f"[None, None, {'x' * 792!r}, None]"}


def test_each_kernel_is_compiled_once(tmp_path: Path) -> None:
    """Another signature would be compiled in the middle of a run, for seconds."""
    test_every_type_as_key_and_as_value(tmp_path / "1", "struct of structs")
    test_every_type_as_key_and_as_value(tmp_path / "2", "int64")
    test_every_type_as_key_and_as_value(tmp_path / "3", "string")
    kernels = [each for each in vars(index_loops).values() if hasattr(each, "signatures")]
    used = [len(each.signatures) for each in (*kernels, copy_ranges, hash_each)]

    assert max(used) == 1
