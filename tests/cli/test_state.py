import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli import cli
from penstock.runtime.folders import NodeFolder, app_folder
from tests.cli.running import OnTerminal
from tests.runtime.kept import a_node_that_ran
from tests.runtime.statuses import a_node, an_app


def state(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["state", *arguments, "--data", str(data)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    a_node_that_ran(tmp_path)
    return tmp_path


def test_operators(data: Path) -> None:
    shown = state(data, "totals")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "totals: 2 buckets"
    assert lines[2].split() == ["operator", "key", "rows", "bytes", "versions"]
    operator, key, rows, _, unit, *versions = lines[3].split()
    assert (operator, key, rows, unit) == ("0-aggregate", "customer", "100", "KiB")
    assert versions == ["0", "to", "2"]


def test_a_key(data: Path) -> None:
    found = state(data, "totals", "customer=7")
    assert found.exit_code == 0
    assert json.loads(found.stdout) == {"customer": 7, "n": 2_007}
    with OnTerminal("state", "totals", "customer=7", "--data", str(data)) as command:
        assert command.wait() == 0
        assert command.plain.splitlines()[1:] == ["customer     7", "n            2007"]


def test_a_key_that_is_not_there(data: Path) -> None:
    for key in ("customer=1000", "customer=null"):
        missing = state(data, "totals", key)
        assert (missing.exit_code, missing.stdout) == (1, "")
        assert missing.stderr == "0-aggregate has no such key\n"


@pytest.mark.parametrize(
    ("key", "code", "told"),
    [
        ("customer=x", 1, "'x' is not a value of customer, which is int64"),
        ("id=7", 1, "0-aggregate is keyed by customer=..."),
        ("7", 2, "'7' is not COLUMN=VALUE."),
    ],
)
def test_a_key_that_cannot_be(data: Path, key: str, code: int, told: str) -> None:
    failed = state(data, "totals", key)
    assert failed.exit_code == code
    assert told in failed.stderr


def test_nodes_without_state(data: Path) -> None:
    an_app(a_node(), a_node(name="paid"), a_node(name="new")).write(app_folder(data, "shop"))
    paid = NodeFolder("shop", "paid", app_folder(data, "shop") / "paid")
    paid.settle({"buckets": 2, "operators": {}, "key": []})
    assert "paid keeps nothing: its rows pass through" in state(data, "paid").stderr
    assert "new has not begun" in state(data, "new").stderr
    assert "there is no node 'old'" in state(data, "old").stderr
