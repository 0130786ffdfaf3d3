import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import App
from penstock.bench.apps.cases import KINDS, Case, alike, all_cases, chain, different
from penstock.bench.apps.client import LIVE_AMOUNT, live_order
from penstock.bench.apps.contenders import Contender, Measured, Pace
from penstock.bench.apps.figures import (
    BEFORE,
    FIRST,
    MEASURES,
    P50,
    PROCESSES,
    SPEED,
    goals,
    percentile,
)
from penstock.bench.apps.orders import FIRST as FIRST_ORDER
from penstock.bench.apps.orders import Backlog, customers
from penstock.bench.apps.processes import Processes, available_share
from penstock.bench.apps.report import AppsReport, BeforeReport
from penstock.bench.apps.run import measure
from penstock.bench.flink import FLINK, flink_missing
from penstock.bench.spark_figures import PENSTOCK, Figures
from penstock.cli.bench import command
from penstock.errors import NodeFailed
from penstock.testing import wait_until
from tests.bench.quick import quick_run
from tests.conftest import without_peer

ONE, TEN = alike(1), alike(10)
LOOK, WAIT = Pace(1.0, 0.0, 0.0), 20.0


def declared(case: Case) -> App:
    names: dict[str, object] = {}
    exec(case.program(), names)
    app = names["app"]
    assert isinstance(app, App)
    return app


@pytest.mark.parametrize("family", [alike, different, chain])
@pytest.mark.parametrize("count", [1, 3, 30])
def test_a_case_is_an_app_with_as_many_views(family: Callable[[int], Case], count: int) -> None:
    case = family(count)
    nodes = declared(case).ordered_nodes()

    assert len(nodes) == count
    assert nodes[-1].name == case.last
    assert "`last` BIGINT" in case.views[-1].columns


def test_different_views_have_nothing_in_common_and_all_kinds_are_there() -> None:
    views = different(2 * len(KINDS)).views

    assert len({view.sql for view in views}) == len(views)
    for words in ("DISTINCT", "avg(", "min(", "JOIN", "LIMIT 10", "TUMBLE", "shop, item"):
        assert any(words in view.sql for view in views)
    tumbling = next(view for view in views if "TUMBLE" in view.sql)
    assert "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))" in tumbling.flink


def test_there_is_a_case_for_each_family_and_count() -> None:
    names = [case.name for case in all_cases((1, 10), (3,))]
    assert names == ["1 alike", "10 alike", "1 different", "10 different", "chain of 3"]


@pytest.mark.parametrize("case", [TEN, different(10), chain(5)])
def test_totals_are_those_of_all_orders(case: Case) -> None:
    backlog = Backlog(5_000)
    live = [live_order(number) for number in range(1, 8)]
    rows = [json.loads(value) for value in backlog.values.to_pylist()]

    right: dict[str, tuple[float, int]] = {}
    for row in (*live, *rows):
        if row["amount"] > case.above:
            total, last = right.get(row["customer"], (float(case.added), 0))
            right[row["customer"]] = (total + row["amount"], max(last, row["id"]))

    assert backlog.totals(case, Counter(row["customer"] for row in live)) == right
    assert rows[0]["id"] == FIRST_ORDER
    assert {row["customer"] for row in rows} <= set(customers()["id"].to_pylist())
    assert max(row["amount"] for row in rows) < LIVE_AMOUNT


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([7.0], 99, 7.0), ([1.0, 3.0], 50, 2.0), ([float(n) for n in range(101)], 99, 99.0)],
)
def test_percentiles(values: list[float], percent: int, found: float) -> None:
    assert percentile(values, percent) == pytest.approx(found)


def figures(*, penstock: float = 20.0, others: float = 10.0) -> Figures:
    found = Figures()
    for repeat in (1.0, 0.5, 2.0):
        for case in (ONE, TEN):
            for each in MEASURES:
                found.add(each.row(case), PENSTOCK, penstock * repeat)
                found.add(each.row(case), BEFORE, others * repeat)
            for each in (FIRST, SPEED):
                found.add(each.row(case), FLINK, others * repeat)
    return found


@pytest.mark.parametrize(("processes", "met"), [(15.0, True), (15.1, False)])
def test_many_views_may_take_so_many_times_what_one_takes(processes: float, met: bool) -> None:
    found = Figures()
    found.add(PROCESSES.row(ONE), PENSTOCK, 10.0)
    found.add(PROCESSES.row(TEN), PENSTOCK, processes)

    (goal,) = goals(found, [ONE, TEN])
    assert goal.text == "processes, 10 alike at most 1.5x that of 1 alike"
    assert goal.met == met


@pytest.mark.parametrize(("penstock", "met"), [(10.0, True), (9.9, False)])
def test_a_backlog_is_held_against_flink(penstock: float, met: bool) -> None:
    found = goals(figures(penstock=penstock), [ONE, TEN])
    assert {goal.met for goal in found if FLINK in goal.text} == {met}


def test_the_report_has_medians_ratios_goals_and_every_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    about = figures(), "a command", "a day", {"kernel": "Linux 1.0"}, True, [ONE, TEN]
    report = BeforeReport(*about, ["it failed"])
    report.show()

    shown = " ".join(capsys.readouterr().out.split())
    written = report.markdown()
    ours, theirs = "20.0 (10.0-40.0)", "10.0 (5.00-20.0)"
    assert f"{SPEED.row(TEN).title} {ours} {theirs} {theirs} 2.00x 2.00x" in shown
    assert f"| {P50.row(ONE).title} | {ours} | {theirs} |  |  | 2.00x |" in written
    assert f"| {SPEED.row(ONE).title} | 20, 10, 40 | 10, 5, 20 | 10, 5, 20 |" in written
    assert f"met backlog, 10 alike at least 1.0x {FLINK}: 2.00x" in shown
    assert "- it failed" in written
    alone = AppsReport(*about, []).markdown()
    assert f"| {P50.row(ONE).title} | {ours} |  |  |" in alone
    assert "What did not run" not in alone


class Scripted(Contender):
    """Gives one figure, then fails as often as it is asked to."""

    name = PENSTOCK

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures
        self.asked = 0

    def measure(self, case: Case, backlog: Backlog, pace: Pace) -> Measured:
        self.asked += 1
        yield FIRST, 1.0
        if self.asked <= self._failures:
            raise NodeFailed("no memory", hint="a long story")
        yield P50, 2.0


def test_who_fails_is_left_out_and_what_it_gave_counts() -> None:
    failing, fine = Scripted(1), Scripted(0)
    found, notes = measure(3, [(ONE, failing), (TEN, fine)], [], Backlog(1), LOOK)

    assert (failing.asked, fine.asked) == (1, 3)
    assert found.of(FIRST.row(ONE)) == [1.0]
    assert found.of(P50.row(ONE)) == []
    assert found.of(P50.row(TEN)) == [2.0, 2.0, 2.0]
    assert notes == ["penstock, 1 alike: no memory"]


# Starts a process that outlives it, and says so.
ORPHAN = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("started", flush=True)
sys.stdin.read()
"""


def test_processes_are_found_measured_and_ended_also_when_their_parent_is_gone() -> None:
    processes, others = Processes.marked(), Processes.marked()
    with subprocess.Popen(
        (sys.executable, "-c", ORPHAN),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **processes.environment},
    ) as parent:
        assert parent.stdout
        parent.stdout.readline()
        assert len(processes.ids()) == 2
        assert processes.pss_bytes() > 1_000_000
        assert processes.cpu_seconds() >= 0
        parent.kill()
    (orphan,) = processes.ids()
    assert others.ids() == set()
    assert processes.wait_for_end(0.0, but={orphan}) == []
    assert len(processes.wait_for_end(0.1)) == 1
    assert processes.ids() == set()


def test_a_stopped_process_is_sent_no_signal_when_it_is_excepted() -> None:
    processes = Processes.marked()
    with subprocess.Popen(
        (sys.executable, "-c", "import time; time.sleep(600)"),
        env={**os.environ, **processes.environment},
    ) as child:
        assert processes.send(signal.SIGTERM, but={child.pid}) == set()
        assert processes.send(signal.SIGTERM) == {child.pid}
        wait_until(lambda: child.poll() is not None, within=WAIT)
    assert processes.send(signal.SIGTERM) == set()


def test_some_memory_is_available() -> None:
    assert 0 < available_share() < 1


@pytest.mark.parametrize("arguments", [("--views", "1,x"), ("--chains", "0"), ("--before", "/no")])
def test_options_that_cannot_be_right(arguments: tuple[str, str]) -> None:
    assert CliRunner().invoke(command, ["apps", *arguments]).exit_code == 2


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["apps", "--before", str(tmp_path)])
    assert "is no checkout of penstock" in str(done.exception)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.peer
@pytest.mark.timeout(600)  # apps and Flinks come and go, on what may be a busy machine
def test_a_quick_run_reports_every_row(tmp_path: Path) -> None:
    if missing := flink_missing():
        without_peer(missing)
    run = quick_run("apps", tmp_path)

    for case in all_cases((1,), ()):
        for each in MEASURES:
            title = each.row(case).title
            assert f"\n{title} " in run.shown
            medians, values = run.lines(title)
            assert medians[3].strip().endswith("x") == (each in (FIRST, SPEED))
            assert [bool(value.strip()) for value in values[1:]] == [True, each in (FIRST, SPEED)]
    assert not any("did not run" in line for line in run.written)
