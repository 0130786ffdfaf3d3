from pathlib import Path

import pytest

from penstock.bench.flink import flink_missing
from penstock.bench.views.one_change import KINDS
from penstock.bench.views.queries import ALL
from tests.bench.quick import quick_run
from tests.conftest import without_peer


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.peer
@pytest.mark.timeout(600)  # a Spark and a Flink come and go, on what may be a busy machine
def test_a_quick_run_finds_all_answers_right_and_reports_every_row(tmp_path: Path) -> None:
    if missing := flink_missing():
        without_peer(missing)
    run = quick_run("views", tmp_path)

    for asked in ALL:
        assert f"\n{asked.row.title} " in run.shown
        medians, values = run.lines(asked.row.title)
        assert medians[4].strip().endswith("x")
        assert medians[5].strip().endswith("x") == (asked.spark is not None)
        there = [bool(value.strip()) for value in values[1:]]
        assert there == [True, asked.spark is not None, True]
    can = 2 * len(ALL) + sum(asked.spark is not None for asked in ALL)
    assert sum(step.endswith(": right") for step in run.steps) == can
    assert sum("one change: " in step for step in run.steps) == 2 * len(KINDS)
