"""A journal whose files were damaged: it opens, says what is lost, and keeps the damaged bytes."""

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import pytest

from penstock.events.batch import decode
from penstock.log.storage.journal import UNREADABLE_FILE, Journal
from penstock.log.storage.published import START_FILE
from penstock.testing import wait_until

from .test_journal import put

FACTS = {b"group %d" % n: b"fact %d " % n * 20 for n in range(5)}


def written(folder: Path, syncs: Executor, *, closes: bool = True) -> Path:
    """A journal of one segment, which has every fact in a batch of its own."""
    journal = Journal(folder, syncs)
    for key, fact in FACTS.items():
        put(journal, {key: fact})
    if closes:
        journal.close()
    (segment,) = folder.glob("*.log")
    return segment


def flip(segment: Path, sought: bytes) -> bytes:
    """Returns the file as it is from now on."""
    content = bytearray(segment.read_bytes())
    content[content.index(sought)] ^= 1
    segment.write_bytes(content)
    return bytes(content)


def is_mended(folder: Path, syncs: Executor) -> bool:
    wait_until(lambda: len(list(folder.glob("*.log"))) == 1, what="the damaged file to go")
    again = Journal(folder, syncs)
    return not again.damage


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("number", range(5))
def test_a_flipped_bit_costs_the_fact_it_is_in(
    tmp_path: Path,
    syncs: Executor,
    caplog: pytest.LogCaptureFixture,
    number: int,
    closes: bool,
) -> None:
    segment = written(tmp_path, syncs, closes=closes)
    content = flip(segment, b"fact %d" % number)
    journal = Journal(tmp_path, syncs)
    left = {key: fact for key, fact in FACTS.items() if key != b"group %d" % number}
    assert dict(journal.items()) == left
    assert len(journal.damage) == 1
    assert segment.name in caplog.text
    assert "4 facts about groups could be read" in caplog.text
    kept = tmp_path / f"{segment.name}.damaged"
    assert kept.read_bytes() == content
    assert is_mended(tmp_path, syncs)
    put(journal, {b"one": b"more"})
    assert dict(Journal(tmp_path, syncs).items()) == left | {b"one": b"more"}
    assert kept.read_bytes() == content


def test_a_fact_that_was_written_again_behind_the_damage_is_the_later_one(
    tmp_path: Path, syncs: Executor
) -> None:
    written(tmp_path, syncs)
    journal = Journal(tmp_path, syncs)
    put(journal, {b"group 1": b"later"})
    journal.close()
    (segment,) = tmp_path.glob("*.log")
    flip(segment, b"fact 1")
    assert dict(Journal(tmp_path, syncs).items()) == FACTS | {b"group 1": b"later"}


def test_a_crash_while_it_begins_anew_loses_nothing_more(
    tmp_path: Path, syncs: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = written(tmp_path, syncs)
    flip(segment, b"fact 2")
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_repeat", lambda journal: None)
        assert len(dict(Journal(tmp_path, syncs).items())) == 4
    assert len(dict(Journal(tmp_path, syncs).items())) == 4
    assert len(list(tmp_path.glob("*.damaged*"))) == 1


def lose_all(segment: Path) -> None:
    segment.unlink()
    segment.with_suffix(".index").unlink()


def shorten(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:150])


@pytest.mark.parametrize("damage", [lose_all, shorten])
def test_files_that_are_gone_are_told_of(
    tmp_path: Path,
    syncs: Executor,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
) -> None:
    damage(written(tmp_path, syncs))
    journal = Journal(tmp_path, syncs)
    assert len(journal.damage) >= 1
    assert "is damaged" in caplog.text
    assert len(dict(journal.items())) < 5
    put(journal, {b"one": b"more"})
    assert is_mended(tmp_path, syncs)


def test_a_start_that_is_no_number(tmp_path: Path, syncs: Executor) -> None:
    written(tmp_path, syncs)
    (tmp_path / START_FILE).write_bytes(b"what is this")
    journal = Journal(tmp_path, syncs)
    assert dict(journal.items()) == FACTS
    assert len(journal.damage) == 1
    assert (tmp_path / f"{START_FILE}.damaged").read_bytes() == b"what is this"
    assert is_mended(tmp_path, syncs)


def test_what_is_kept_of_it_can_be_read(tmp_path: Path, syncs: Executor) -> None:
    segment = written(tmp_path, syncs)
    flip(segment, b"fact 4")
    Journal(tmp_path, syncs)
    content = memoryview((tmp_path / f"{segment.name}.damaged").read_bytes())
    last = bytes(content).index(b"group 4")
    sound = [record.key for record in decode(content[: _batch_before(bytes(content), last)])]
    assert sound == list(FACTS)[:4]


def _batch_before(content: bytes, at: int) -> int:
    """Where the batch begins that holds this byte."""
    return content.rindex(b"\0\0\0\0\x02", 0, at) - 12


def test_a_fact_that_nobody_can_read_is_set_aside(tmp_path: Path, syncs: Executor) -> None:
    journal = Journal(tmp_path, syncs)
    put(journal, {b"a": b"\xff", b"b": b"1"})
    journal.set_aside(b"a", "it is no text")
    put(journal, {b"c": b"2"})
    assert dict(Journal(tmp_path, syncs).items()) == {b"b": b"1", b"c": b"2"}
    told = (tmp_path / UNREADABLE_FILE).read_text()
    assert told == '{"key": "a", "fact": "\\\\xff", "why": "it is no text"}\n'
