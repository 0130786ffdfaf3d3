from pathlib import Path

import pytest

from penstock.bench.spark_figures import BESIDE, ROWS
from penstock.testing import kafka_missing
from penstock.testing.spark_kafka import spark_kafka_missing
from tests.bench.quick import quick_run
from tests.conftest import without_peer


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.peer
@pytest.mark.timeout(600)  # a Spark and a Kafka come and go, on what may be a busy machine
def test_a_quick_run_reports_every_row(tmp_path: Path) -> None:
    if missing := kafka_missing() or spark_kafka_missing():
        without_peer(missing)
    run = quick_run("spark", tmp_path)

    for row in ROWS:
        assert f"\n{row.title} " in run.shown
        medians, values = run.lines(row.title)
        assert medians[3].strip().endswith("x") == (row in BESIDE)
        assert float(values[1]) > 0
    assert run.steps[-1].startswith(f"[{len(run.steps)}/{len(run.steps)}] ")
