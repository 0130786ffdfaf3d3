import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ForeignCheckpoint
from penstock.streams.source.event_time import Rule
from penstock.streams.source.offsets import (
    ProgressFiles,
    SourceOffset,
    clock_of,
    clock_of_batch,
    has_idle_source,
    totals,
)
from penstock.streams.source.progress import Progress


def offset(clock: int | None, timed: bool = True) -> SourceOffset:
    progress = {0: Progress(3, 50, {"p": 7}), 11: Progress(0)}
    return SourceOffset("orders", "some-id", 99, clock, {0: 5, 11: 0}, progress, timed)


@pytest.mark.parametrize("told", [offset(None), offset(42), offset(None, timed=False)])
def test_as_json(told: SourceOffset) -> None:
    written = json.dumps(told.as_json())
    assert SourceOffset.from_json(json.loads(written)) == told
    assert ("clock" in json.loads(written)) == told.timed


def test_settled_is_when_all_was_read() -> None:
    assert not offset(None).is_settled
    assert SourceOffset("orders", "x", 0, None, {0: 3}, {0: Progress(3)}, True).is_settled


# The clock of a stream


@pytest.mark.parametrize(
    ("highs", "idle", "before", "clock"),
    [
        ([100, 70], (), None, 60),
        ([100, 70], (), 65, 65),
        ([100, 70], (1,), None, 90),
        ([100, None], (), None, None),
        ([100, None], (), 50, 50),
        ([100, None], (1,), None, 90),
        ([100, 70], (0, 1), 20, 90),
        ([100, 70], (0, 1), None, 90),
        ([], (), None, None),
    ],
)
def test_the_clock_is_the_least_that_is_not_idle_and_never_goes_back(
    highs: list[int | None], idle: tuple[int, ...], before: int | None, clock: int | None
) -> None:
    progress = {number: Progress(0, high) for number, high in enumerate(highs)}
    assert clock_of(progress, Rule(wait=10), frozenset(idle), before) == clock


def test_totals() -> None:
    progress = {
        0: Progress(9, read=4, kept=3, stragglers=1),
        1: Progress(9, read=6, kept=4, stragglers=2),
    }
    progress[0].rejected["late"] = 1
    progress[1].rejected.update(late=1, future=1)
    assert totals(progress) == (10, 7, 3, {"late": 2, "future": 1})


@pytest.mark.parametrize(
    ("lines", "watermark", "clock"),
    [
        ([offset(42)], 0, 42),
        ([offset(42), offset(41)], 0, 41),
        ([offset(42), offset(None)], 0, None),
        ([offset(42), offset(None, timed=False)], 0, 42),
        ([offset(None, timed=False)], 0, None),
        ([offset(42_000), {"orders": {"0": 7}}], 41, 41_000),
        ([offset(42_000), 17], 43, 42_000),
        ([offset(42_000), {"orders": {"0": 7}}], 0, 42_000),
    ],
)
def test_the_clock_of_a_batch(
    tmp_path: Path, lines: list[Any], watermark: int, clock: int | None
) -> None:
    (tmp_path / "offsets").mkdir()
    written = [line.as_json() if isinstance(line, SourceOffset) else line for line in lines]
    about = {"batchWatermarkMs": watermark}
    content = ["v1", *(json.dumps(line) for line in (about, *written))]
    (tmp_path / "offsets" / "7").write_text("\n".join(content))
    assert clock_of_batch(str(tmp_path), 7) == clock
    assert clock_of_batch(tmp_path.as_uri(), 7) == clock


# Where ranges leave their progress


def test_progress_is_left_and_found(tmp_path: Path) -> None:
    files = ProgressFiles(str(tmp_path), "orders")
    for partition in (1, 11):
        files.write(partition, Progress(5, 50, {"p": 7}, 1, 2, 2))
        files.write(partition, Progress(5, 50, {"p": 7}, 1, 2, 2))
    assert ProgressFiles(str(tmp_path), "orders").read(11, 5).high == 50
    assert len(list((tmp_path / "progress" / "orders").iterdir())) == 2


@pytest.mark.parametrize("content", [None, "", '{"at": 5'])
def test_progress_that_is_not_whole(tmp_path: Path, content: str | None) -> None:
    files = ProgressFiles(str(tmp_path), "orders")
    files.write(0, Progress(5))
    path = tmp_path / "progress" / "orders" / "0-5.json"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(ForeignCheckpoint, match=r"0-5\.json is missing or damaged"):
        files.read(0, 5)


def test_old_progress_is_forgotten(tmp_path: Path) -> None:
    files = ProgressFiles(str(tmp_path), "orders")
    files.forget_before({0: 5})
    for partition in (0, 1, 10):
        for end in (4, 5, 40):
            files.write(partition, Progress(end))
    folder = tmp_path / "progress" / "orders"
    (folder / "0-3.json.0a1b.tmp").touch()  # of a task that was killed
    (folder / "notes.txt").touch()
    files.forget_before({0: 5, 1: 41})
    left = {path.name for path in folder.iterdir()}
    assert left == {"0-5.json", "0-40.json", "notes.txt"} | {f"10-{end}.json" for end in (4, 5, 40)}


def test_a_source_that_had_nothing_new_is_idle(tmp_path: Path) -> None:
    def plan(batch: int, *ends: int) -> None:
        offsets = [
            SourceOffset(f"source {n}", "id", 0, None, {0: end}, {0: Progress(0)}, False).as_json()
            for n, end in enumerate(ends)
        ]
        path = tmp_path / "offsets" / str(batch)
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(["v1", "{}", *map(json.dumps, offsets)]))

    plan(0, 5, 0)
    plan(1, 6, 1)
    plan(2, 7, 1)

    assert has_idle_source(str(tmp_path), 0)
    assert not has_idle_source(str(tmp_path), 1)
    assert has_idle_source(str(tmp_path), 2)
    assert has_idle_source(str(tmp_path), 99)  # nobody remembers
