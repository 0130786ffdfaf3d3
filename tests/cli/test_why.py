import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock import Log, Record, clock
from penstock.cli import cli
from penstock.events.schema import parse_schema
from penstock.runtime.folders import app_folder
from penstock.streams.source.event_time import EventTime
from penstock.streams.source.spec import SourceSpec
from tests.runtime.statuses import a_node, an_app, an_input


def why(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["why", *arguments, "--data", str(data)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    an_app(pid=os.getpid(), written_ms=clock.now_ms()).write(app_folder(tmp_path, "shop"))
    return tmp_path


def test_it_says_why(data: Path) -> None:
    said = why(data, "totals")
    assert said.exit_code == 0
    assert said.stdout.startswith("totals waits for new records in orders: ")
    assert said.stderr == ""


def test_a_node_that_is_not_there(data: Path) -> None:
    failed = why(data, "total")
    assert failed.exit_code == 1
    assert "there is no node 'total' in shop" in failed.stderr
    assert "did you mean 'totals'?" in failed.stderr


def test_a_node_that_two_apps_have(data: Path) -> None:
    an_app(app="bank", pid=os.getpid()).write(app_folder(data, "bank"))
    failed = why(data, "totals")
    assert failed.exit_code == 1
    assert "choose: --app bank or --app shop" in failed.stderr
    assert why(data, "totals", "--app", "shop").exit_code == 0


def test_rejected_rows_are_shown_with_their_place(tmp_path: Path) -> None:
    good = b'{"id": 1, "at": "2026-01-31T10:00:00Z"}'
    late = b'{"id": 2, "at": "2026-01-31T09:00:00Z"}'
    values = [(0, good), (0, late), (1, b"junk"), (1, good), (1, b'{"id": "x"}'), (1, b"beyond")]
    with Log.open(tmp_path) as log:
        log.create("orders", partitions=2)
        log.append("orders", [Record(value=value, partition=number) for number, value in values])
    spec = SourceSpec(
        log=str(tmp_path),
        topic="orders",
        schema=parse_schema("id long, at timestamp"),
        rule=EventTime("at", wait="10s").rule(),
    )
    rejecting = an_input(
        next={"0": 2, "1": 3}, rejected={"late": 1, "unparsable": 2}, source=spec.options()
    )
    an_app(a_node(rejecting)).write(app_folder(tmp_path, "shop"))
    lines = why(tmp_path, "totals").stdout.splitlines()
    rows = lines[lines.index("") + 1 :]
    assert rows[0].split() == ["rejected", "place", "detail", "value"]
    assert rows[1].startswith("late        orders/0, offset 1  ")
    assert "2026-01-31T09:00:00Z  " in rows[1]
    assert rows[1].endswith(late.decode())
    assert rows[2].startswith("unparsable  orders/1, offset 0  not JSON")
    assert rows[3].startswith("unparsable  orders/1, offset 2  ")
    assert len(rows) == 4


def test_a_log_that_is_out_of_reach_hides_only_the_rows(tmp_path: Path) -> None:
    spec = SourceSpec(log=str(tmp_path / "no"), topic="orders", schema=parse_schema("id long"))
    rejecting = an_input(rejected={"unparsable": 2}, source=spec.options())
    an_app(a_node(rejecting)).write(app_folder(tmp_path, "shop"))
    said = why(tmp_path, "totals")
    assert said.exit_code == 0
    assert "2 unparsable" in said.stdout
    assert "the rejected rows cannot be shown: " in said.stderr
