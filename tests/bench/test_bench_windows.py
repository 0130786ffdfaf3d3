from pathlib import Path

import pytest

from penstock.bench.flink import flink_missing
from penstock.bench.windows.queries import ALL
from tests.bench.quick import quick_run
from tests.conftest import without_peer


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.peer
@pytest.mark.timeout(600)  # a Spark and a Flink come and go, on what may be a busy machine
def test_a_quick_run_finds_all_answers_right_and_reports_every_row(tmp_path: Path) -> None:
    if missing := flink_missing():
        without_peer(missing)
    run = quick_run("windows", tmp_path)

    for asked in ALL:
        assert f"\n{asked.row.title} " in run.shown
        medians, values = run.lines(asked.row.title)
        assert medians[5].strip().endswith("x")
        assert medians[6].strip().endswith("x") == (asked.spark is not None)
        there = [bool(value.strip()) for value in values[1:]]
        assert there == [True, True, asked.spark is not None, True]
    assert run.steps[-1].startswith(f"[{len(run.steps)}/{len(run.steps)}] ")
    assert sum(step.endswith(": right") for step in run.steps) == 4 * len(ALL) - 1
