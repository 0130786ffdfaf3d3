import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.cli.init import FILES
from penstock.runtime.loading import load_app


def test_it_writes_an_app_and_says_what_is_next(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "shop"
    done = CliRunner().invoke(cli, ["init", str(folder)])
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"wrote app.py, test_app.py, orders.jsonl and README.md to {folder}; next:",
        f"  cd {folder} && pytest",
        f"  cd {folder} && penstock run app.py",
        f"  cd {folder} && penstock produce orders orders.jsonl    # in another terminal",
    ]
    assert {file.name for file in folder.iterdir()} == set(FILES)
    app = load_app(folder / "app.py")
    assert [node.name for node in app.ordered_nodes()] == ["paid", "totals"]


def test_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "\n  pytest\n" in CliRunner().invoke(cli, ["init"]).stdout
    assert (tmp_path / "app.py").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    refused = CliRunner().invoke(cli, ["init", str(tmp_path)])
    assert refused.exit_code == 1
    assert f"there is README.md in {tmp_path} already" in refused.stderr
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(cli, ["init", str(tmp_path / "file" / "shop")])
    assert refused.exit_code == 1
    assert "cannot be written to: Not a directory" in refused.stderr


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_what_it_writes_passes_its_own_test(tmp_path: Path) -> None:
    CliRunner().invoke(cli, ["init", str(tmp_path)])
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
