from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.bench import log as bench
from penstock.cli import cli


def test_the_options_reach_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(bench, "run", lambda **given: calls.append(given))
    options = ["--repeats", "5", "--quick", "--output", "x.md"]
    assert CliRunner().invoke(cli, ["bench", "log", *options]).exit_code == 0
    assert calls == [{"repeats": 5, "quick": True, "output": Path("x.md")}]
