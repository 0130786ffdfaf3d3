import shutil
from pathlib import Path

import pytest

from penstock.bench.machine import facts, file_system


def test_every_fact_is_there() -> None:
    known = facts()

    missing = [what for what, fact in known.items() if not fact]
    assert missing == ([] if shutil.which("java") else ["Java"])
    assert known["kernel"].startswith("Linux ")


def test_no_java_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    assert facts()["Java"] == ""


def test_the_file_system_is_that_of_the_folder() -> None:
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/")) != "proc"
