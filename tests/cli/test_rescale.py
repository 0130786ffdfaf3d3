from pathlib import Path

from click.testing import CliRunner, Result

from penstock.cli import cli
from penstock.runtime.folders import app_folder
from penstock.runtime.running import running_alone
from tests.runtime.kept import a_node_that_ran


def rescale(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["rescale", *arguments, "--data", str(data)])


def test_the_state_is_spread(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path)
    done = rescale(tmp_path, "totals", "5")
    assert (done.exit_code, done.stdout) == (
        0,
        "totals: 100 rows moved from 2 buckets to 5\n",
    )
    assert folder.buckets == 5


def test_not_while_the_app_runs(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path)
    with running_alone(app_folder(tmp_path, "shop"), "shop"):
        refused = rescale(tmp_path, "totals", "5")
    assert refused.exit_code == 1
    assert "app 'shop' is running already, as process " in refused.stderr
    assert folder.buckets == 2


def test_numbers_that_cannot_be(tmp_path: Path) -> None:
    a_node_that_ran(tmp_path)
    assert rescale(tmp_path, "totals", "0").exit_code == 2
    assert "has 2 buckets already" in rescale(tmp_path, "totals", "2").stderr
