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
    durable,
    info,
    look_up,
    state_info,
)

SCHEMA = StateSchema(
    pa.schema({"id": pa.int64(), "name": pa.string()}), pa.schema({"n": pa.int64()})
)
BUCKETS = 3


def step(folder: Path, version: int) -> None:
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
            version=version - 1,
        ) as state:
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
    assert {each.versions for each in found} == {range(5)}
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
