"""Runs the examples of docs/cli.md in order, in one folder, and compares what they print."""

import doctest
import os
import sys
from pathlib import Path

import pytest

from tests.cli.running import ended_server
from tests.test_pages import steps

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.spark
@pytest.mark.timeout(500)
def test_every_example_does_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    same = doctest.OutputChecker().check_output
    with ended_server(tmp_path / "penstock-data"):
        for step in steps(DOCS.read_text()):
            printed = step.run({})
            assert same(step.expected, printed, doctest.ELLIPSIS), f"{step.code}\n{printed}"


def test_all_blocks_are_examples_that_run() -> None:
    text = DOCS.read_text()
    assert text.count("```console\n") * 2 == text.count("```")
