import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import StateMissing
from penstock.streams.state import BucketState, StateSchema, open_for
from penstock.streams.state import bucket as bucket_module
from penstock.streams.state.bucket import unmap

SCHEMA = StateSchema(pa.schema({"id": pa.int64()}), pa.schema({"n": pa.int64()}))
NONE = range(0)
KEY = pa.RecordBatch.from_pylist([{"id": 1}], schema=SCHEMA.keys)


def opened(
    folder: Path,
    batch: int,
    bucket: int = 0,
    skipped: range = NONE,
    *,
    host: str = "warm",
    may_skip: Callable[[int], bool] | None = None,
) -> BucketState:
    return open_for(
        batch,
        str(folder / "state"),
        folder / host,
        operator="count",
        bucket=bucket,
        buckets=2,
        may_skip=may_skip or skipped.__contains__,
        schema=SCHEMA,
    )


def files(folder: Path) -> Path:
    return folder / "state" / "count" / "2" / "0"


def step(
    folder: Path, batch: int, bucket: int = 0, skipped: range = NONE, *, host: str = "warm"
) -> int:
    """Counts one more; how many there are then."""
    with opened(folder, batch, bucket, skipped, host=host) as state:
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
    assert step(tmp_path, 7, skipped=range(2, 7)) == 3  # run again
    assert step(tmp_path, 8) == 4


def test_batches_after_a_whole_version_are_stepped_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "WHOLE_ROWS", 1)
    assert [step(tmp_path, batch) for batch in (0, 1)] == [1, 2]
    assert list(files(tmp_path).glob("*1.base"))

    assert step(tmp_path, 7, skipped=range(2, 7)) == 3


def test_the_clock_is_kept_over_batches_without_the_operator(tmp_path: Path) -> None:
    with opened(tmp_path, 0) as state:
        state.commit(0, clock=77)
    with opened(tmp_path, 4, skipped=range(1, 4)) as state:
        assert state.version == 0
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
    (lost,) = files(tmp_path).glob("*1.delta")
    lost.unlink()

    with pytest.raises(StateMissing, match=r"version 1 .*1\.delta is not there"):
        opened(tmp_path, 4, skipped=range(2, 4))


def test_a_version_that_is_lost_before_a_long_silence_is_missed(tmp_path: Path) -> None:
    step(tmp_path, 0)
    with pytest.raises(StateMissing, match="version 1"):
        opened(tmp_path, 90, skipped=range(2, 90))


def test_a_version_that_is_lost_between_two_others_is_missed(tmp_path: Path) -> None:
    step(tmp_path, 0)
    step(tmp_path, 3, skipped=range(1, 3))
    step(tmp_path, 9, skipped=range(4, 9))
    (files(tmp_path) / f"{3:020d}.delta").unlink()
    unmap(tmp_path / "warm")
    shutil.rmtree(tmp_path / "warm")

    with pytest.raises(StateMissing, match=r"version 9 .* does not follow version 0"):
        opened(tmp_path, 10)


def test_only_steps_write(tmp_path: Path) -> None:
    step(tmp_path, 0)
    opened(tmp_path, 50_000, skipped=range(1, 50_000)).close()
    assert [path.name for path in files(tmp_path).iterdir()] == [f"{0:020d}.delta"]

    assert step(tmp_path, 50_000, skipped=range(1, 50_000)) == 2
    assert step(tmp_path, 50_001) == 3
    assert len(list(files(tmp_path).iterdir())) == 3


@pytest.mark.parametrize(("first", "most"), [(True, 100), (False, 16)])
def test_few_batches_are_asked_for(tmp_path: Path, first: bool, most: int) -> None:
    asked: list[int] = []

    def may_skip(batch: int) -> bool:
        asked.append(batch)
        return True

    if not first:
        step(tmp_path, 0)
    for batch in (8000, 8001):
        with opened(tmp_path, batch, may_skip=may_skip) as state:
            state.commit(batch)

    assert asked == list(range(7900, 7900 + most))


def test_the_newest_version_is_taken_by_a_host_that_has_an_older_one(tmp_path: Path) -> None:
    """One that was left out of the batches in between, or is run again."""
    assert step(tmp_path, 0) == 1
    assert step(tmp_path, 4, skipped=range(1, 4), host="other") == 2
    assert step(tmp_path, 9, skipped=range(5, 9), host="other") == 3

    assert step(tmp_path, 12, skipped=range(10, 12)) == 4
    assert step(tmp_path, 9, skipped=range(5, 9), host="other") == 3
    assert step(tmp_path, 12, skipped=range(10, 12), host="other") == 4
