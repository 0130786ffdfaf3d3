"""A quick run of a benchmark, in a process of its own: it opens a session, and there may be one in
this."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class QuickRun(NamedTuple):
    shown: str
    steps: list[str]
    written: list[str]

    def lines(self, title: str) -> list[list[str]]:
        """The rows of the report with this title: its medians, and all its values."""
        lines = (line for line in self.written if line.startswith(f"| {title} |"))
        return [line.strip("|").split("|") for line in lines]


def quick_run(name: str, folder: Path) -> QuickRun:
    """It leaves nothing but its report."""
    command = (sys.executable, "-m", "penstock", "bench", name, "--quick", "--repeats", "1")
    done = subprocess.run(
        (*command, "--output", f"results/{name}.md"),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [each.name for each in folder.glob("[!.]*")] == ["results"]
    written = (folder / "results" / f"{name}.md").read_text().splitlines()
    steps = [line for line in done.stderr.splitlines() if line.startswith("[")]
    return QuickRun(done.stdout, steps, written)
