import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import clock
from penstock.runtime.status import AppStatus, NodeStatus
from tests.runtime.statuses import NOW, TEN, a_node, an_app, an_input


def test_what_is_written_is_read(tmp_path: Path) -> None:
    told = an_app(a_node(an_input(rejected={"late": 2}), error="x", retry_at=NOW), error="y")
    assert AppStatus.read(tmp_path / "shop") is None
    told.write(tmp_path / "shop")
    assert AppStatus.read(tmp_path / "shop") == told
    assert [each.name for each in (tmp_path / "shop").iterdir()] == ["status.json"]


def test_facts_are_all_that_is_told_but_for_when() -> None:
    told, later = an_app(a_node(), written_ms=NOW), an_app(a_node(), written_ms=NOW + 1)
    assert told.facts() == later.facts()
    assert told.facts() != an_app(a_node(an_input(read=7)), written_ms=NOW).facts()
    assert told.facts() != an_app(a_node(), written_ms=NOW, views_error="x").facts()


def test_sums_over_inputs() -> None:
    node = a_node(
        an_input(end={"0": 510, "1": 500, "2": 3}, rejected={"late": 1, "future": 1}),
        an_input(rejected={"late": 2}),
    )
    assert (node.lag, node.read, node.kept) == (13, 2_000, 2_000)
    assert node.rejected == {"late": 3, "future": 1}


@pytest.mark.parametrize(
    ("share", "most", "alarm"),
    [
        (0.061, 0.05, "6.1 % of the rows of orders read lately were rejected, more than 5 %"),
        (1.0, 0.0504, "100 % of the rows of orders read lately were rejected, more than 5.04 %"),
        (0.05, 0.05, ""),
        (0.9, None, ""),
        (None, 0.0, ""),
    ],
)
def test_too_many_rejected_rows_give_the_alarm(
    share: float | None, most: float | None, alarm: str
) -> None:
    told = an_input(rejected_share=share, rejected_alarm=most)
    assert told.alarm == alarm
    assert bool(an_app(a_node(told)).alarms) == bool(alarm)
    assert not an_app(a_node(told, state="failed")).alarms


@pytest.mark.parametrize(
    ("clocks", "least"),
    [([TEN + 1, TEN], TEN), ([TEN, None], None), ([], None)],
)
def test_the_clock_is_the_least(clocks: list[int | None], least: int | None) -> None:
    untimed = an_input(timed=False, clock=None)
    assert a_node(*(an_input(clock=each) for each in clocks), untimed).clock == least


def test_a_state_begins_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    node = NodeStatus("totals")
    times = iter([100, 200, 300])
    monkeypatch.setattr(clock, "now_ms", lambda: next(times))
    node.turn("running")
    node.turn("running")
    assert (node.state, node.since_ms) == ("running", 100)
    node.turn("waiting")
    assert (node.state, node.since_ms) == ("waiting", 200)


def test_life() -> None:
    fresh = clock.now_ms()
    ours = an_app(pid=os.getpid(), written_ms=fresh)
    assert ours.life() == "running"
    assert an_app(pid=os.getpid(), written_ms=fresh - 60_000).life() == "silent"
    assert an_app(pid=os.getpid(), written_ms=fresh, stopped=True).life() == "stopped"
    starting = an_app(NodeStatus("totals"), pid=os.getpid(), written_ms=fresh - 60_000)
    assert starting.life() == "running"
    ended = subprocess.Popen((sys.executable, "-c", ""))
    ended.wait()
    assert an_app(pid=ended.pid, written_ms=fresh).life() == "gone"


def test_who_fails() -> None:
    bad = a_node(name="bad", state="failed")
    assert an_app(a_node(), bad).failing == [bad]
