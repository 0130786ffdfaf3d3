import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "log_demo.py"


def test_the_demo_loses_nothing_and_says_so() -> None:
    shown = subprocess.run(
        [sys.executable, str(DEMO), "--headless"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert re.search(r"kill -9 \d+", shown.stdout)
    assert "acknowledged 3,000 · stored 3,000 · lost 0 · twice 0" in shown.stdout
    assert "billing missed 0 · shipping missed 0" in shown.stdout
    assert shown.stderr == ""
