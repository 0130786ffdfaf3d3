from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import StateMissing
from penstock.streams.state import BucketState, StateSchema, open_for
from penstock.streams.state import bucket as bucket_module

SCHEMA = StateSchema(pa.schema({"id": pa.int64()}), pa.schema({"n": pa.int64()}))
NONE = range(0)
KEY = pa.RecordBatch.from_pylist([{"id": 1}], schema=SCHEMA.keys)


def opened(folder: Path, batch: int, bucket: int = 0, skipped: range = NONE) -> BucketState:
    return open_for(
        batch,
        str(folder / "state"),
        folder / "warm",
        operator="count",
        bucket=bucket,
        buckets=2,
        may_skip=lambda version: version in skipped,
        schema=SCHEMA,
    )


def step(folder: Path, batch: int, bucket: int = 0, skipped: range = NONE) -> int:
    """Counts one more; how many there are then."""
    with opened(folder, batch, bucket, skipped) as state:
        rows = state.find_or_add(KEY)
        state.fixed("n")[rows] += 1
        state.valid("n")[rows] = True
        counted = int(state.fixed("n")[rows][0])
        state.commit(batch)
        return counted


def test_batches_without_the_operator_are_stepped_over(tmp_path: Path) -> None:
    for bucket in (0, 1):
        assert [step(tmp_path, batch, bucket) for batch in (0, 1)] == [1, 2]

    assert [step(tmp_path, 7, bucket, range(2, 7)) for bucket in (0, 1)] == [3, 3]
    assert step(tmp_path, 7) == 3  # run again
    assert step(tmp_path, 8) == 4


def test_batches_after_a_whole_version_are_stepped_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "WHOLE_ROWS", 1)
    assert [step(tmp_path, batch) for batch in (0, 1)] == [1, 2]
    assert list((tmp_path / "state" / "count" / "2" / "0").glob("*1.base"))

    assert step(tmp_path, 7, skipped=range(2, 7)) == 3


def test_the_clock_is_kept_over_batches_without_the_operator(tmp_path: Path) -> None:
    with opened(tmp_path, 0) as state:
        state.commit(0, clock=77)
    with opened(tmp_path, 4, skipped=range(1, 4)) as state:
        assert state.version == 3
        assert state.clock == 77


def test_an_operator_may_take_its_first_step_late(tmp_path: Path) -> None:
    assert [step(tmp_path, 5, bucket, range(5)) for bucket in (0, 1)] == [1, 1]
    assert step(tmp_path, 6) == 2


def test_state_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(StateMissing):
        opened(tmp_path, 5)


def test_a_version_that_must_have_been_there_is_missed(tmp_path: Path) -> None:
    step(tmp_path, 0)
    step(tmp_path, 1)
    (lost,) = (tmp_path / "state" / "count" / "2" / "0").glob("*1.delta")
    lost.unlink()

    with pytest.raises(StateMissing, match="version 3"):
        opened(tmp_path, 4, skipped=range(2, 4))
