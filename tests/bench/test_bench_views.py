import subprocess
import sys
from pathlib import Path

import pytest

from penstock.bench.flink import flink_missing
from penstock.bench.views.one_change import KINDS
from penstock.bench.views.queries import ALL
from tests.conftest import without_peer


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.peer
@pytest.mark.timeout(600)  # a Spark and a Flink come and go, on what may be a busy machine
def test_a_quick_run_finds_all_answers_right_and_reports_every_row(tmp_path: Path) -> None:
    if missing := flink_missing():
        without_peer(missing)
    # In a process of its own: it opens a session, and there may be one in this.
    command = (sys.executable, "-m", "penstock", "bench", "views", "--quick", "--repeats", "1")
    done = subprocess.run(
        (*command, "--output", "results/views.md"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    written = (tmp_path / "results" / "views.md").read_text().splitlines()
    for asked in ALL:
        assert f"\n{asked.row.title} " in done.stdout
        medians, values = (
            line.strip("|").split("|")
            for line in written
            if line.startswith(f"| {asked.row.title} |")
        )
        assert medians[4].strip().endswith("x")
        assert medians[5].strip().endswith("x") == (asked.spark is not None)
        there = [bool(value.strip()) for value in values[1:]]
        assert there == [True, asked.spark is not None, True]
    steps = [line for line in done.stderr.splitlines() if line.startswith("[")]
    can = 2 * len(ALL) + sum(asked.spark is not None for asked in ALL)
    assert sum(step.endswith(": right") for step in steps) == can
    assert sum("one change: " in step for step in steps) == 2 * len(KINDS)
    assert [each.name for each in tmp_path.glob("[!.]*")] == ["results"]
