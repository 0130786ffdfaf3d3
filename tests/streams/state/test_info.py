from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import StateMissing
from penstock.streams.state import (
    BucketState,
    StateSchema,
    bucket_of,
    counted,
    durable,
    info,
    look_up,
    state_info,
    state_schema,
)

SCHEMA = StateSchema(
    pa.schema({"id": pa.int64(), "name": pa.string()}), pa.schema({"n": pa.int64()})
)
BUCKETS = 3


def step(folder: Path, version: int, after: int | None = None) -> None:
    keys = [(i, None if i % 7 == 0 else f"n{i}") for i in range(version * 10, version * 10 + 30)]
    batch = pa.record_batch(
        [pa.array([key for key, _ in keys]), pa.array([name for _, name in keys])],
        schema=SCHEMA.keys,
    )
    targets = bucket_of(batch, BUCKETS)
    for bucket in range(BUCKETS):
        part = batch.filter(pa.array(targets == bucket))
        with BucketState.open(
            folder / "durable",
            folder / "warm",
            operator="sum",
            bucket=bucket,
            buckets=BUCKETS,
            schema=SCHEMA,
            version=version - 1 if after is None else after,
        ) as state:
            state.count(late=1)
            found = state.find_or_add(part)
            state.put(found, pa.record_batch({"n": pa.array([version] * len(found))}))
            if version > 0:
                state.remove(found[part.column("id").to_numpy() % 10 == 3])
            state.commit(version)


@pytest.fixture(params=[True, False], ids=["with bases", "deltas only"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param:
        monkeypatch.setattr(durable, "_LEAST_WEIGHT", 0)
    for version in range(5):
        step(tmp_path, version)
    return tmp_path


def test_rows_bytes_and_versions(folder: Path) -> None:
    found = state_info(folder / "durable", "sum", BUCKETS)

    assert [each.bucket for each in found] == [0, 1, 2]
    assert sum(each.rows for each in found) == 64
    assert {each.versions for each in found} == {(0, 1, 2, 3, 4)}
    sizes = (path.stat().st_size for path in (folder / "durable").rglob("*") if path.is_file())
    assert sum(each.size for each in found) == sum(sizes)


@pytest.mark.parametrize(
    ("key", "version", "found"),
    [
        ({"id": 1, "name": "n1"}, None, {"id": 1, "name": "n1", "n": 0}),
        ({"id": 25, "name": "n25"}, None, {"id": 25, "name": "n25", "n": 2}),
        ({"id": 25, "name": "n25"}, 0, {"id": 25, "name": "n25", "n": 0}),
        ({"id": 21, "name": None}, None, {"id": 21, "name": None, "n": 2}),
        ({"id": 13, "name": "n13"}, 0, {"id": 13, "name": "n13", "n": 0}),
        ({"id": 13, "name": "n13"}, None, None),
        ({"id": 25, "name": None}, None, None),
        ({"id": 999, "name": "n1"}, None, None),
    ],
)
def test_one_key_is_looked_up(
    folder: Path, key: dict[str, Any], version: int | None, found: dict[str, Any] | None
) -> None:
    assert look_up(folder / "durable", "sum", BUCKETS, key, version) == found


def test_between_versions_it_is_as_at_the_one_before(folder: Path) -> None:
    step(folder, 9, after=4)
    address = folder / "durable"

    assert {each.versions for each in state_info(address, "sum", BUCKETS)} == {(0, 1, 2, 3, 4, 9)}
    assert [counted(address, "sum", BUCKETS, at)["late"] for at in (0, 4, 5, 8, 9, 99)] == [
        3 * steps for steps in (1, 5, 5, 5, 6, 6)
    ]
    key = {"id": 95, "name": "n95"}
    assert look_up(address, "sum", BUCKETS, key, 8) is None
    assert look_up(address, "sum", BUCKETS, key, 12) == {**key, "n": 9}
    assert look_up(address, "sum", BUCKETS, key) == {**key, "n": 9}
    assert state_schema(address, "sum", BUCKETS) == SCHEMA


def test_a_bucket_may_have_taken_no_step_or_an_older_one(tmp_path: Path) -> None:
    """A batch that has rows for some buckets alone is a step of these."""
    address = tmp_path / "durable"
    keys = pa.record_batch(
        [pa.array(range(20)), pa.array([f"n{i}" for i in range(20)])], schema=SCHEMA.keys
    )
    targets = bucket_of(keys, BUCKETS)
    for bucket, version in ((1, 4), (2, 9)):
        with BucketState.open(
            address,
            tmp_path / "warm",
            operator="sum",
            bucket=bucket,
            buckets=BUCKETS,
            schema=SCHEMA,
            version=-1,
        ) as state:
            found = state.find_or_add(keys.filter(pa.array(targets == bucket)))
            state.put(found, pa.record_batch({"n": pa.array([version] * len(found))}))
            state.commit(version)

    assert state_schema(address, "sum", BUCKETS) == SCHEMA
    for key, target in zip(keys.to_pylist(), targets, strict=True):
        row = look_up(address, "sum", BUCKETS, key)
        assert row == (None if target == 0 else {**key, "n": (0, 4, 9)[target]})


def test_nothing_is_counted_before_the_first_step(tmp_path: Path) -> None:
    nothing = {"late": 0, "corrected": 0, "dropped": 0}
    assert counted(tmp_path / "durable", "sum", BUCKETS, 7) == nothing
    step(tmp_path, 9, after=-1)
    with pytest.raises(StateMissing, match="version 7"):
        counted(tmp_path / "durable", "sum", BUCKETS, 7)


def test_keys_with_the_same_hash_are_told_apart(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "hashes_of", lambda keys: np.zeros(len(keys.nulls), np.uint64))

    for number in (1, 25):
        key = {"id": number, "name": f"n{number}"}
        found = look_up(folder / "durable", "sum", BUCKETS, key)
        assert found is not None
        assert found["id"] == number


def test_where_there_is_no_state(tmp_path: Path) -> None:
    assert state_info(tmp_path, "sum", 3) == []
    with pytest.raises(StateMissing, match="no state of 'sum' in 3 buckets"):
        look_up(tmp_path, "sum", 3, {"id": 1})
