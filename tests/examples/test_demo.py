import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_counts_every_order_once_and_says_so() -> None:
    shown = subprocess.run(
        [sys.executable, str(DEMO), "--headless"],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert re.search(r"kill -9 \d+", shown.stdout)
    counts = re.search(r"sold ([\d,]+) · counted ([\d,]+)", shown.stdout)
    assert counts is not None
    assert counts[1] == counts[2]
    assert re.search(r"the view, after order orders/\d+@\d+: \w+ [\d,]+ · ", shown.stdout)
    assert "with another count than the till's 0" in shown.stdout
    assert "every order was counted exactly once" in shown.stdout
