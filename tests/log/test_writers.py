"""Writers and conditions across restarts and processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.errors import LogClosed, StorageFailed, VersionConflict, WriterFenced
from penstock.log.contract import Bounds
from penstock.testing import LogServerProcess

COMMANDS = """
import sys
from penstock import Log, Record
from penstock.errors import VersionConflict
won = 0
with Log.connect(sys.argv[1]) as log:
    for version in range(50):
        try:
            record = Record(key=b"k", value=sys.argv[2].encode())
            log.append("t", [record], expected={b"k": version - 1})
            won += 1
        except VersionConflict:
            pass
print(won)
"""


def records(count: int) -> list[Record]:
    return [Record(value=b"%d" % number) for number in range(count)]


def test_a_writer_and_its_batches_survive_a_restart(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.create("t")
        old = log.open_writer("w")
        old.append("t", {0: records(3)}, batch=7)
    with Log.open(tmp_path) as log:
        new = log.open_writer("w")
        assert (new.epoch, new.last_batch("t", 0)) == (2, 7)
        assert new.append("t", {0: records(3)}, batch=7) == {0: None}
        assert new.append("t", {0: records(1)}, batch=8) == {0: range(3, 4)}
    for doing in (
        lambda: new.append("t", {0: records(1)}, batch=9),
        lambda: new.last_batch("t", 0),
    ):
        with pytest.raises(LogClosed):
            doing()


def test_a_fenced_writer_stays_fenced_after_a_restart(log_server: LogServerProcess) -> None:
    with Log.connect(log_server.address) as one, Log.connect(log_server.address) as other:
        one.create("t")
        old = one.open_writer("w")
        old.append("t", {0: records(2)}, batch=0)
        new = other.open_writer("w")
        log_server.kill()
        log_server.restart()
        with pytest.raises(WriterFenced):
            old.append("t", {0: records(2)}, batch=1)
        assert new.last_batch("t", 0) == 0
        assert new.append("t", {0: records(2)}, batch=1) == {0: range(2, 4)}


def test_an_epoch_that_cannot_be_written_opens_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log.open(tmp_path) as log:
        log.create("t")
        old = log.open_writer("w")

        def refuse(*_: object) -> None:
            raise OSError(5, "no")

        with monkeypatch.context() as patched:
            patched.setattr("penstock.log.writers.write_atomically", refuse)
            with pytest.raises(StorageFailed):
                log.open_writer("w")
        assert old.append("t", {0: records(1)}, batch=0) == {0: range(1)}
    assert json.loads((tmp_path / "writers.json").read_text())["w"][1] == 1


def test_who_is_told_of_a_conflict_or_a_batch_can_rely_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told was synced first: a crash right after does not take it back."""
    synced: list[int] = []
    real = os.fdatasync

    def counting(handle: int) -> None:
        synced.append(handle)
        real(handle)

    with Log.open(tmp_path) as log:
        log.create("t")
        writer = log.open_writer("w")
        partition = log._engine.topics.get("t").partition(0)  # type: ignore[attr-defined]
        monkeypatch.setattr(os, "fdatasync", counting)
        told: list[Callable[[], object]] = [
            lambda: writer.last_batch("t", 0),
            lambda: writer.append("t", {0: records(1)}, batch=5),
            lambda: log.append("t", records(1), expected=-1),
        ]
        for number, tell in enumerate(told):
            with monkeypatch.context() as unsynced:
                unsynced.setattr("penstock.log.writers.durable", lambda *_: Done())
                writer.append("t", {0: records(1)}, batch=5 + number)
            assert partition.end_offset == number
            try:
                tell()
            except VersionConflict as conflict:
                synced.append(-conflict.actual)
            assert partition.end_offset == number + 1
        assert synced[-1] == -2


class Done:
    def result(self) -> None:
        pass


def test_of_commands_in_several_processes_one_wins_each_version(
    log_server: LogServerProcess,
) -> None:
    with Log.connect(log_server.address) as log:
        log.create("t", partitions=1)
        commands = [
            subprocess.Popen(
                [sys.executable, "-c", COMMANDS, log_server.address, name],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two", "three")
        ]
        won = [int(command.communicate(timeout=60)[0]) for command in commands]
        assert sum(won) == 50
        assert log.bounds("t", 0) == Bounds(0, 50)
