from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InvalidInput, StateMismatch, StateMissing
from penstock.streams.state import (
    BucketState,
    StateSchema,
    bucket_of,
    counted,
    look_up,
    rescale,
    state_info,
    state_schema,
)
from tests.streams.state.hosts import contents_of
from tests.streams.state.samples import SAMPLES

SCHEMA = StateSchema(
    pa.schema({"id": pa.int64(), "name": pa.string()}), pa.schema({"v": pa.list_(pa.float64())})
)
COUNT = 3000


def rows(version: int) -> pa.RecordBatch:
    ids = np.random.default_rng(version).permutation(COUNT)[: COUNT // 2]
    names = pa.array([f"name {key}" if key % 5 else None for key in ids])
    lists = pa.array([[float(key), None] * (key % 4) for key in ids], pa.list_(pa.float64()))
    return pa.record_batch([pa.array(ids), names, lists], schema=SCHEMA.columns)


def open_at(
    folder: Path, bucket: int, buckets: int, version: int, schema: StateSchema = SCHEMA
) -> BucketState:
    return BucketState.open(
        folder / "durable",
        folder / "warm",
        operator="join",
        bucket=bucket,
        buckets=buckets,
        schema=schema,
        version=version,
    )


def step(folder: Path, buckets: int, version: int, after: int | None = None) -> None:
    batch = rows(version)
    targets = bucket_of(batch.select(SCHEMA.keys.names), buckets)
    for bucket in range(buckets):
        part = batch.filter(pa.array(targets == bucket))
        with open_at(folder, bucket, buckets, version - 1 if after is None else after) as state:
            found = state.find_or_add(part.select(SCHEMA.keys.names))
            state.put(found, part.select(["v"]))
            state.remove(found[::9])
            state.commit(version)


def everything(folder: Path, buckets: int, version: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for bucket in range(buckets):
        with open_at(folder, bucket, buckets, version) as state:
            found |= contents_of(state)
            for batch in state.all_rows():
                assert set(bucket_of(batch.select(SCHEMA.keys.names), buckets)) == {bucket}
    return found


@pytest.mark.parametrize(("before", "after"), [(4, 1), (4, 3), (2, 7), (1, 40)])
def test_every_row_is_kept_and_goes_on(tmp_path: Path, before: int, after: int) -> None:
    for version in range(3):
        step(tmp_path, before, version)
    contents = everything(tmp_path, before, 2)

    moved = rescale(
        tmp_path / "durable", operator="join", from_buckets=before, to_buckets=after, version=2
    )
    assert moved == len(contents)
    assert everything(tmp_path, after, 2) == contents
    assert everything(tmp_path, before, 2) == contents  # the old number's stays
    assert sum(each.rows for each in state_info(tmp_path / "durable", "join", after)) == moved
    step(tmp_path, after, 3)
    step(tmp_path, before, 3)
    assert len(everything(tmp_path, after, 3)) >= len(contents)


def test_rows_of_all_types(tmp_path: Path) -> None:
    columns = {
        name: pa.array([None, *(values * 40)[:39]], kind)
        for name, (kind, values) in SAMPLES.items()
        if values
    }
    values, keys = pa.record_batch(columns), pa.record_batch({"id": pa.array(range(40))})
    schema = StateSchema(keys.schema, values.schema)

    with open_at(tmp_path, 0, 1, -1, schema) as state:
        state.put(state.find_or_add(keys), values)
        before = contents_of(state)
        state.commit(0)
    rescale(tmp_path / "durable", operator="join", from_buckets=1, to_buckets=3, version=0)

    after: dict[str, str] = {}
    for bucket in range(3):
        with open_at(tmp_path, bucket, 3, 0, schema) as state:
            after |= contents_of(state)
    assert after == before


SPREAD = {
    "by one": (1, ["customer"]),
    "by none": (0, []),
    "by all": (2, ["customer", "pane"]),
    "by default": (None, ["customer", "pane"]),
}


@pytest.mark.parametrize("name", SPREAD)
def test_rows_stay_with_those_they_belong_to(tmp_path: Path, name: str) -> None:
    spread, names = SPREAD[name]
    schema = StateSchema(
        pa.schema({"customer": pa.string(), "pane": pa.int64()}),
        pa.schema({"due": pa.int64()}),
        due="due",
        spread=spread,
    )
    panes = np.arange(600)
    batch = pa.record_batch(
        [pa.array([f"c{pane % 40}" for pane in panes]), pa.array(panes), pa.array(panes * 10)],
        schema=schema.columns,
    )
    keys = batch.select(schema.keys.names)

    for bucket in range(3):
        mine = pa.array(bucket_of(batch.select(names), 3) == bucket)
        with open_at(tmp_path, bucket, 3, -1, schema) as state:
            state.put(state.find_or_add(keys.filter(mine)), batch.select(["due"]).filter(mine))
            state.count(late=bucket + 1, corrected=10, dropped=100)
            state.commit(0, clock=2500)
    rescale(tmp_path / "durable", operator="join", from_buckets=3, to_buckets=5, version=0)

    due: list[int] = []
    for bucket in range(5):
        with open_at(tmp_path, bucket, 5, 0, schema) as state:
            assert state.clock == 2500
            targets = bucket_of(batch.select(names), 5)
            assert len(state) == (targets == bucket).sum()
            assert (state.find(keys.filter(pa.array(targets == bucket))) >= 0).all()
            due += state.take(state.due(2500)).column("pane").to_pylist()
    assert sorted(due) == list(range(251))
    assert sum(each.late for each in state_info(tmp_path / "durable", "join", 5)) == 1 + 2 + 3
    counts = counted(tmp_path / "durable", "join", 5, 0)
    assert counts == {"late": 6, "corrected": 30, "dropped": 300}
    key = {"customer": "c3", "pane": 43}
    assert look_up(tmp_path / "durable", "join", 5, key) == {**key, "due": 430}
    assert state_schema(tmp_path / "durable", "join", 5).spread_keys == names


@pytest.mark.parametrize("copied", [True, "kind"])
@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 4)])
def test_what_is_copied_is_in_every_bucket(
    tmp_path: Path, copied: bool | str, before: int, after: int
) -> None:
    schema = StateSchema(
        pa.schema({"id": pa.int64(), "kind": pa.int8()}),
        pa.schema({"v": pa.int64()}),
        copied=copied,
    )
    ids = np.arange(200)
    kinds = (ids % 4 == 0).astype(np.int8)
    batch = pa.record_batch([ids, kinds, ids * 7], schema=schema.columns)
    keys = batch.select(schema.keys.names)

    def expected(bucket: int, buckets: int) -> set[int]:
        everywhere = np.full(200, True) if copied is True else kinds != 0
        return set(ids[everywhere | (bucket_of(keys, buckets) == bucket)].tolist())

    for bucket in range(before):
        mine = pa.array(sorted(expected(bucket, before)))
        with open_at(tmp_path, bucket, before, -1, schema) as state:
            state.put(state.find_or_add(keys.take(mine)), batch.select(["v"]).take(mine))
            state.commit(0)
    address = tmp_path / "durable"
    moved = rescale(address, operator="join", from_buckets=before, to_buckets=after, version=0)

    for bucket in range(after):
        with open_at(tmp_path, bucket, after, 0, schema) as state:
            rows = [row for each in state.all_rows() for row in each.to_pylist()]
            assert {row["id"] for row in rows} == expected(bucket, after)
            assert len(state) == len(expected(bucket, after))
            assert all(row["v"] == row["id"] * 7 for row in rows)
    assert moved == sum(len(expected(bucket, after)) for bucket in range(after))
    for number in (3, 8):
        key = {"id": number, "kind": int(kinds[number])}
        assert look_up(address, "join", after, key) == {**key, "v": number * 7}


def test_buckets_at_different_clocks_are_refused(tmp_path: Path) -> None:
    for bucket, clock in enumerate([5, None, 6]):
        with open_at(tmp_path, bucket, 3, -1) as state:
            state.commit(0, clock)

    with pytest.raises(StateMismatch, match="different clocks: 5, 6, None") as raised:
        rescale(tmp_path / "durable", operator="join", from_buckets=3, to_buckets=2, version=0)
    assert "completed" in raised.value.hint
    assert state_info(tmp_path / "durable", "join", 2) == []


def test_there_and_back_at_another_version(tmp_path: Path) -> None:
    """Files of the old number from before are not mixed with the new ones."""
    for version in range(3):
        step(tmp_path, 2, version)
    address = tmp_path / "durable"
    rescale(address, operator="join", from_buckets=2, to_buckets=3, version=1)
    step(tmp_path, 3, 2)
    contents = everything(tmp_path, 3, 2)
    rescale(address, operator="join", from_buckets=3, to_buckets=2, version=2)

    assert everything(tmp_path, 2, 2) == contents
    with pytest.raises(StateMissing):
        open_at(tmp_path, 0, 2, 1)


def test_a_version_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    step(tmp_path, 2, 3, after=-1)
    contents = everything(tmp_path, 2, 3)
    for buckets in (2, 4):
        with pytest.raises((StateMissing, InvalidInput)):
            rescale(
                tmp_path / "durable",
                operator="join",
                from_buckets=2,
                to_buckets=buckets,
                version=2,
            )

    assert everything(tmp_path, 2, 3) == contents
    assert state_info(tmp_path / "durable", "join", 4) == []


def test_between_versions_it_is_the_one_before(tmp_path: Path) -> None:
    for before, version in ((-1, 2), (2, 6), (6, 11)):
        step(tmp_path, 2, version, after=before)
    contents = everything(tmp_path, 2, 6)
    address = tmp_path / "durable"
    rescale(address, operator="join", from_buckets=2, to_buckets=3, version=9)

    assert {each.versions for each in state_info(address, "join", 3)} == {(6,)}
    assert everything(tmp_path, 3, 6) == contents
    step(tmp_path, 3, 14, after=6)
    assert len(everything(tmp_path, 3, 14)) > 0


def test_a_bucket_that_has_lost_its_last_step_is_noticed(tmp_path: Path) -> None:
    step(tmp_path, 2, 2, after=-1)
    step(tmp_path, 2, 6, after=2)
    address = tmp_path / "durable"
    (address / "join" / "2" / "1" / f"{6:020d}.delta").unlink()

    with pytest.raises(StateMissing, match=r"version 6 .*/join/2/1/.* is not there"):
        rescale(address, operator="join", from_buckets=2, to_buckets=3, version=[6, 6])
    assert state_info(address, "join", 3) == []


@pytest.mark.parametrize("version", [9, [6, 2, -1]], ids=["up to one", "of each"])
def test_buckets_may_be_at_different_versions(tmp_path: Path, version: int | list[int]) -> None:
    """A batch that has rows for some buckets alone is a step of these."""
    batch = rows(2)
    keys = batch.select(SCHEMA.keys.names)
    targets = bucket_of(keys, 3)
    address = tmp_path / "durable"
    for bucket, at in ((0, 6), (1, 2), (0, 12)):
        mine = pa.array(targets == bucket)
        with open_at(tmp_path, bucket, 3, 6 if at == 12 else -1) as state:
            found = state.find_or_add(keys.filter(mine))
            if at == 12:  # it is not asked for
                state.remove(found)
            else:
                state.put(found, batch.select(["v"]).filter(mine))
            state.commit(at, clock=50)
    rescale(address, operator="join", from_buckets=3, to_buckets=2, version=version)

    moved = everything(tmp_path, 2, 6)
    assert len(moved) == (targets < 2).sum() > 0
    step(tmp_path, 2, 13, after=6)
    with pytest.raises(InvalidInput, match="2 versions for 3 buckets"):
        rescale(address, operator="join", from_buckets=3, to_buckets=2, version=[6, 2])
