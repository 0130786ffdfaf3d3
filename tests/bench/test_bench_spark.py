import subprocess
import sys
from pathlib import Path

import pytest

from penstock.bench.spark_figures import BESIDE, ROWS
from penstock.testing import kafka_missing
from penstock.testing.spark_kafka import spark_kafka_missing
from tests.conftest import without_peer


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.peer
@pytest.mark.timeout(600)  # a Spark and a Kafka come and go, on what may be a busy machine
def test_a_quick_run_reports_every_row(tmp_path: Path) -> None:
    if missing := kafka_missing() or spark_kafka_missing():
        without_peer(missing)
    # In a process of its own: it opens a session, and there may be one in this.
    command = (sys.executable, "-m", "penstock", "bench", "spark", "--quick", "--repeats", "1")
    done = subprocess.run(
        (*command, "--output", "results/spark.md"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    written = (tmp_path / "results" / "spark.md").read_text().splitlines()
    for row in ROWS:
        assert f"\n{row.title} " in done.stdout
        medians, values = (
            line.strip("|").split("|") for line in written if line.startswith(f"| {row.title} |")
        )
        assert medians[3].strip().endswith("x") == (row in BESIDE)
        assert float(values[1]) > 0
    steps = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert steps[-1].startswith(f"[{len(steps)}/{len(steps)}] ")
    assert [each.name for each in tmp_path.glob("[!.]*")] == ["results"]
