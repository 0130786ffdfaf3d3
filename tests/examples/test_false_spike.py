import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "false_spike.py"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stopped_processor_makes_a_spike_by_processing_time_alone(tmp_path: Path) -> None:
    picture = tmp_path / "spike.png"
    shown = subprocess.run(
        [sys.executable, str(EXAMPLE), "--stopped", "6", "--picture", str(picture)],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    spike = re.search(r"by processing time: up to ([\d,]+) a second", shown.stdout)
    steady = re.search(r"by event time: from ([\d,]+) to ([\d,]+) a second", shown.stdout)
    assert spike is not None
    assert steady is not None
    assert int(spike[1].replace(",", "")) >= 400
    assert [int(each.replace(",", "")) for each in steady.groups()] == [200, 200]
    assert picture.read_bytes().startswith(b"\x89PNG")
