from pathlib import Path

from penstock.bench.machine import facts, file_system


def test_every_fact_is_there() -> None:
    known = facts()

    missing = [what for what, fact in known.items() if not fact]
    assert missing in ([], ["Java"])
    assert known["kernel"].startswith("Linux ")


def test_the_file_system_is_that_of_the_folder() -> None:
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/")) != "proc"
