"""Small files share a journal, and what a power cut takes of them is there again."""

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateDamaged
from penstock.streams.state import BucketState, Journal, StateSchema, restore, settle

SCHEMA = StateSchema(pa.schema({"id": pa.int64()}), pa.schema({"n": pa.int64()}))
OPERATORS = ("sum", "count")


class Machine:
    """Steps of two operators share a journal, as those of a task do. A power cut leaves journals
    that were written, and of any other file everything, a part or nothing."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "state"
        self.lives = 0
        self.versions = dict.fromkeys(OPERATORS, -1)

    def _open(self, operator: str, journal: Journal | None) -> BucketState:
        return BucketState.open(
            self.home,
            self.home.parent / f"warm {self.lives}",
            operator=operator,
            bucket=0,
            buckets=1,
            schema=SCHEMA,
            version=self.versions[operator],
            journal=journal,
        )

    def batch(self, number: int, rows: int) -> None:
        journal = Journal.at(str(self.home))
        assert journal is not None
        for operator in OPERATORS:
            with self._open(operator, journal) as state:
                found = state.find_or_add(pa.record_batch({"id": np.arange(rows) * number}))
                np.add.at(state.fixed("n"), found, 1)
                state.commit(number)
        journal.write()
        self.versions = dict.fromkeys(OPERATORS, number)

    def contents(self) -> dict[str, list[tuple[int, int]]]:
        found = {}
        for operator in OPERATORS:
            with self._open(operator, None) as state:
                rows = [row for batch in state.all_rows() for row in batch.to_pylist()]
                found[operator] = sorted((row["id"], row["n"]) for row in rows)
        return found

    def journals(self) -> list[Path]:
        folder = self.home / "@journal"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def cut_power(self, luck: random.Random, synced: set[Path]) -> None:
        """But for files that have reached the disk, as these have."""
        self.lives += 1  # what was in memory is lost
        for path in [*self.home.rglob("*.delta"), *self.home.rglob("*.base")]:
            kept = luck.choice([0, luck.random(), 1])
            if path in synced or kept == 1:
                continue
            if kept == 0:
                path.unlink()
            else:
                os.truncate(path, int(kept * path.stat().st_size))


@given(
    st.lists(st.sampled_from([3, 50, 5_000]), min_size=1, max_size=8), st.integers(0, 7), st.data()
)
def test_what_was_committed_outlives_a_power_cut(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], settled: int, data: st.DataObject
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    synced: set[Path] = set()
    for number, rows in enumerate(batches):
        machine.batch(number, rows)
        # More than a journal takes is synced by itself.
        synced |= {path for path in machine.home.rglob("*.*") if path.stat().st_size > 65_536}
        if number == settled:
            settle(str(machine.home))
            synced |= set(machine.home.rglob("*.*"))
    wanted = machine.contents()

    machine.cut_power(random.Random(data.draw(st.integers(0, 99))), synced)
    restore(str(machine.home))
    assert machine.journals() == []
    assert machine.contents() == wanted
    machine.batch(len(batches), 3)


def test_many_small_files_are_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    machine.batch(0, 3)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    machine.batch(1, 3)
    assert len(synced) == 2  # the journal, and the folder that it is in


def test_a_file_that_was_written_again_comes_from_the_later_journal(tmp_path: Path) -> None:
    path = tmp_path / "sum" / "1" / "0" / "a.delta"
    path.parent.mkdir(parents=True)
    for content in (b"first", b"second", None, b"third"):
        journal = Journal(tmp_path)
        if content is None:
            journal.deleted(str(path))
        else:
            with path.open("w+b") as file:
                file.write(content)
                file.flush()
                assert journal.takes(str(path), file)
        journal.write()
    path.unlink()
    assert restore(str(tmp_path)) == 4
    assert path.read_bytes() == b"third"


def test_a_journal_that_was_not_finished_is_nobodys(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.batch(0, 3)
    (machine.home / "@journal" / "x.y.unfinished").write_bytes(b"half")
    assert restore(str(machine.home)) == len(OPERATORS)
    assert machine.journals() == []


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.batch(0, 3)
    (journal,) = machine.journals()
    content = bytearray(journal.read_bytes())
    content[40] ^= 1
    journal.write_bytes(content)
    with pytest.raises(StateDamaged, match="checksum"):
        restore(str(machine.home))


def test_what_is_far_away_has_none() -> None:
    assert Journal.at("memory://state") is None
    assert restore("memory://state") == 0
