import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock import clock
from penstock.cli import cli
from penstock.runtime.folders import app_folder
from penstock.runtime.status import AppStatus
from tests.cli.running import OnTerminal
from tests.runtime.statuses import TEN, a_node, an_app, an_input


def told(data: Path, status: AppStatus, *, ago: int = 0) -> None:
    """Written as by this process, so many milliseconds ago."""
    status.pid = os.getpid()
    status.written_ms = clock.now_ms() - ago
    status.started_ms = status.written_ms - 90 * 60_000
    for node in status.nodes:
        node.since_ms = status.written_ms - 12_000
    status.write(app_folder(data, status.app))


def status(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["status", "--data", str(data), *arguments])


def test_a_running_app(tmp_path: Path) -> None:
    behind = an_input(end={"0": 12_500, "1": 500}, rejected={"late": 2, "future": 1})
    told(tmp_path, an_app(a_node(name="paid"), a_node(behind, state="running")))
    shown = status(tmp_path)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == f"shop: running for 1h 30m, process {os.getpid()}"
    assert lines[2].split() == ["node", "state", "rows", "rows/s", "lag", "clock", "rejected"]
    assert lines[3].split() == ["paid", "waiting", "1000", "1500", "0", "2026-01-31T10:00:00Z", "0"]
    assert lines[4].split()[1:] == [
        "running", "1000", "1500", "12000", "2026-01-31T10:00:00Z", "3",
    ]  # fmt: skip
    assert len(lines) == 5


def test_while_spark_starts_nothing_is_known_of_rows(tmp_path: Path) -> None:
    unknown = an_input(next={}, end={}, clocks={}, read=0, kept=0, clock=None)
    told(tmp_path, an_app(a_node(unknown, state="starting", rows_per_second=0.0)))
    line = status(tmp_path).stdout.splitlines()[3]
    assert line.split() == ["totals", "starting", "-", "0", "-", "-", "0"]


@pytest.mark.parametrize("state", ["failed", "running"])
def test_a_failing_node_shows_its_error(tmp_path: Path, state: str) -> None:
    told(tmp_path, an_app(a_node(state=state, error="KernelError: too much\n  hint: less")))
    shown = status(tmp_path)
    assert shown.exit_code == 1
    assert "KernelError: too much\n  hint: less\n  hint: penstock why totals\n" in shown.stdout
    assert ("totals failed 12s ago: " in shown.stdout) == (state == "failed")


def test_too_many_rejected_rows_give_the_alarm(tmp_path: Path) -> None:
    told(tmp_path, an_app(a_node(an_input(rejected_share=0.5, rejected_alarm=0.05))))
    shown = status(tmp_path)
    assert shown.exit_code == 1
    assert shown.stdout.endswith(
        "50 % of the rows of orders read lately were rejected, more than 5 %\n"
        "  hint: penstock why totals\n"
    )


@pytest.mark.parametrize(
    ("facts", "ago", "line", "code"),
    [
        ({"stopped": True}, 65_000, "shop: stopped 1m 5s ago", 0),
        ({"stopped": True, "error": "DiskFull: no room"}, 65_000, "shop: stopped 1m 5s ago", 1),
        ({}, 65_000, "shop: silent: its process {pid} is there, and has told nothing for 1m 5s", 1),
        ({"stopping": True}, 0, "shop: stopping", 0),
    ],
)
def test_an_app_that_does_not_run(
    tmp_path: Path, facts: dict[str, object], ago: int, line: str, code: int
) -> None:
    told(tmp_path, an_app(**facts), ago=ago)
    shown = status(tmp_path)
    assert (shown.stdout.splitlines()[0], shown.exit_code) == (line.format(pid=os.getpid()), code)
    assert ("stopped by an error: DiskFull: no room" in shown.stdout) == ("error" in facts)


def test_an_app_whose_process_is_gone(tmp_path: Path) -> None:
    told(tmp_path, an_app())
    dead = AppStatus.read(app_folder(tmp_path, "shop"))
    assert dead is not None
    dead.pid = 2**22 + 1  # beyond the highest there can be
    dead.write(app_folder(tmp_path, "shop"))
    shown = status(tmp_path)
    assert shown.exit_code == 1
    assert shown.stdout.startswith(f"shop: gone: its process {dead.pid} is no more, last heard of ")
    assert shown.stdout.splitlines()[3].split()[:2] == ["totals", "stopped"]


def test_all_apps_or_one(tmp_path: Path) -> None:
    told(tmp_path, an_app())
    told(tmp_path, an_app(app="bank"))
    both = status(tmp_path).stdout
    assert both.startswith("bank: running")
    assert "\n\nshop: running" in both
    assert "bank" not in status(tmp_path, "shop").stdout


def test_nothing_to_show(tmp_path: Path) -> None:
    missing = status(tmp_path)
    assert missing.exit_code == 1
    assert f"no app has run in {tmp_path}" in missing.stderr
    told(tmp_path, an_app())
    unknown = status(tmp_path, "shpo")
    assert unknown.exit_code == 1
    assert "did you mean 'shop'?" in unknown.stderr


def test_for_programs(tmp_path: Path) -> None:
    told(tmp_path, an_app(a_node(an_input(end={"0": 501, "1": 500}))))
    content = json.loads(status(tmp_path, "--json").stdout)
    assert (content["app"], content["life"]) == ("shop", "running")
    [node] = content["nodes"]
    assert (node["name"], node["lag"], node["clock"]) == ("totals", 1, TEN)
    assert node["inputs"][0]["lag"] == 1
    assert "source" not in node["inputs"][0]
    assert status(tmp_path, "--watch").exit_code == 2


def test_watching_shows_what_changes_until_ctrl_c(tmp_path: Path) -> None:
    told(tmp_path, an_app())
    with OnTerminal("status", "--watch", "--data", str(tmp_path)) as command:
        command.shows("1,000")
        told(tmp_path, an_app(a_node(an_input(read=123_456))))
        command.shows("123,456")
        assert max(map(len, command.plain.splitlines())) <= 80
        assert command.interrupt() == 0
        assert "Traceback" not in command.text


def test_how_far_nodes_are_that_are_being_built(tmp_path: Path) -> None:
    facts = {"state": "building", "built": 450, "to_build": 1_000, "query": "@beside-1"}
    nodes = [a_node(name="paid"), a_node(name="sizes", **facts), a_node(**facts)]
    told(tmp_path, an_app(*nodes))
    shown = status(tmp_path)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line.split()[1:3] for line in lines[4:6]] == [["building", "45%"]] * 2
    assert lines[-2:] == ["", "building sizes, totals: 450 of 1000 rows"]
    told(tmp_path, an_app(*nodes, stopped=True))
    assert "building" not in status(tmp_path).stdout


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    told(tmp_path, an_app(a_node(state="building", built=450, to_build=1_000)))
    with OnTerminal("status", "--data", str(tmp_path)) as command:
        assert command.wait() == 0
        line = next(each for each in command.plain.splitlines() if each.startswith("building"))
    assert line.split()[:2] == ["building", "totals"]
    assert "━" in line
    assert line.rstrip().endswith("450 of 1,000 rows")
