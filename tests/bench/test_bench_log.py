import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.bench.contenders import CONTENDERS
from penstock.bench.figures import GOALS, ROWS
from penstock.bench.log import in_turn, run
from penstock.testing import wait_until


def test_every_contender_is_first_in_turn() -> None:
    orders = [in_turn(repeat) for repeat in range(4)]

    assert [order[0] for order in orders[:3]] == list(CONTENDERS)
    assert orders[3] == orders[0]
    assert all(sorted(order) == sorted(CONTENDERS) for order in orders)


@pytest.mark.slow
@pytest.mark.timeout(300)  # two more Kafkas come and go, on what may be a busy machine
@pytest.mark.usefixtures("kafka")
def test_a_quick_run_reports_every_row(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(repeats=1, quick=True, output=tmp_path / "results" / "log.md")

    shown, progress = capfd.readouterr()
    written = (tmp_path / "results" / "log.md").read_text().splitlines()
    for row in ROWS:
        assert f"\n{row.title} " in shown
        medians, values = (
            line.strip("| ").split(" | ") for line in written if line.startswith(f"| {row.title} |")
        )
        assert len(medians) == 1 + len(CONTENDERS) + 2
        assert len(values) == 1 + len(CONTENDERS)
        assert all(float(value) > 0 for value in values[1:])
    for goal in GOALS:
        assert f" {goal.text}: " in shown
    steps = [line for line in progress.splitlines() if line.startswith("[")]
    assert steps[-1].startswith(f"[{len(steps)}/{len(steps)}] ")


@pytest.mark.usefixtures("kafka")
def test_ctrl_c_stops_the_servers(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "penstock", "bench", "log", "--quick")
    with subprocess.Popen(
        (*command, "--output", str(tmp_path / "log.md")),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as bench:
        assert bench.stderr is not None
        first = bench.stderr.readline()  # the log runs, and Kafka is being started
        os.kill(bench.pid, signal.SIGINT)
        rest = bench.stderr.read()

    assert bench.returncode == 130, rest
    assert "start-up" in first
    assert "Traceback" not in rest
    # Whoever prepares Kafka's folder at that moment may be on its own, and ends by itself.
    wait_until(lambda: not _session(bench.pid), within=20, what="an end of all its processes")
    assert not (tmp_path / "log.md").exists()


def _session(leader: int) -> list[int]:
    """The processes of a session: the benchmark's own, its servers and its clients."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                session = os.getsid(int(entry.name))
            except ProcessLookupError:
                continue
            if session == leader:
                members.append(int(entry.name))
    return members
