"""Runs the code blocks of the pages as CONTRIBUTING.md describes and compares what they print."""

import contextlib
import doctest
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/analytics.md",
    "docs/apps.md",
    "docs/joins.md",
    "docs/log.md",
    "docs/sql.md",
    "docs/testing.md",
    "docs/views.md",
    "docs/windows.md",
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


class Step(NamedTuple):
    """A piece of code in a page and what it must print."""

    language: str
    code: str
    expected: str

    def run(self, namespace: dict[str, object]) -> str:
        if self.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(self.code, "a page", "exec"), namespace)
            return printed.getvalue()
        done = subprocess.run(
            ("bash", "-c", self.code),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout


def steps(markdown: str) -> Iterator[Step]:
    blocks = BLOCK.findall(markdown)
    for (language, code), (next_language, output) in zip(
        blocks, [*blocks[1:], ("", "")], strict=True
    ):
        if language == "python":
            yield Step(language, code, output if next_language == "text" else "")
        elif language == "console":
            for command, expected in COMMAND.findall(code):
                yield Step(language, command, expected)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder whose log server, if a command started one, ends with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")
    yield tmp_path
    for lock in tmp_path.glob("*/lock"):
        owner = json.loads(lock.read_text().strip() or "{}").get("pid", os.getpid())
        if owner != os.getpid():
            os.kill(owner, signal.SIGTERM)


@pytest.mark.usefixtures("folder", "spark")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_shows(page: str) -> None:
    namespace: dict[str, object] = {}
    same = doctest.OutputChecker().check_output
    for step in steps((ROOT / page).read_text()):
        printed = step.run(namespace)
        assert same(step.expected, printed, doctest.ELLIPSIS), f"{step.code}\nprinted:\n{printed}"


def test_blocks_are_read_in_order_with_their_output() -> None:
    markdown = (
        "```sh\npip install x\n```\n"
        "```python\nprint(1)\n```\n\n```text\n1\n```\n"
        "```python\nx = 1\n```\n"
        "```console\n$ a | b\nfirst\n$ c\n$ d\nlast\n\nafter a gap\n```\n"
    )

    assert list(steps(markdown)) == [
        ("python", "print(1)\n", "1\n"),
        ("python", "x = 1\n", ""),
        ("console", "a | b", "first\n"),
        ("console", "c", ""),
        ("console", "d", "last\n\nafter a gap\n"),
    ]
