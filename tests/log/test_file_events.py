from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from penstock.log import file_events
from penstock.log.file_events import FileEvents

LONG = 60.0  # seconds, of which none passes unless something is wrong


@pytest.fixture
def events() -> Iterator[FileEvents]:
    with closing(FileEvents()) as events:
        yield events


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "durable"
    path.write_bytes(b"0")
    return path


def write(path: Path, content: bytes) -> None:
    """In place, as the server of a log does."""
    with path.open("r+b") as file:
        file.write(content)


def test_a_write_wakes_once(events: FileEvents, file: Path) -> None:
    assert events.watch([file])
    assert not events.wait(0)
    write(file, b"1")
    assert events.wait(LONG)
    assert not events.wait(0)


def test_files_are_watched_only_once(events: FileEvents, file: Path) -> None:
    assert events.watch([file])
    write(file, b"1")
    assert events.watch([file])
    assert events.wait(LONG)
    assert not events.wait(0)


def test_who_sleeps_is_woken_by_a_write(events: FileEvents, file: Path) -> None:
    assert events.watch([file])
    woken: list[bool] = []
    sleeper = Thread(target=lambda: woken.append(events.wait(LONG)))
    sleeper.start()
    write(file, b"1")
    sleeper.join()
    assert woken == [True]


def test_a_folder_tells_what_comes_and_not_what_is_written(
    events: FileEvents, file: Path, tmp_path: Path
) -> None:
    assert events.watch([tmp_path])
    write(file, b"1")
    assert not events.wait(0)
    (tmp_path / "7").mkdir()
    assert events.wait(LONG)
    file.rename(tmp_path / "renamed")
    assert events.wait(LONG)


def test_what_is_not_there_cannot_be_watched(
    events: FileEvents, file: Path, tmp_path: Path
) -> None:
    assert not events.watch([file, tmp_path / "missing"])
    write(file, b"1")
    assert events.wait(LONG)


def test_another_file_of_the_name_is_watched_anew(events: FileEvents, file: Path) -> None:
    assert events.watch([file])
    file.unlink()
    assert events.wait(LONG)
    file.write_bytes(b"0")
    assert events.watch([file])
    write(file, b"1")
    assert events.wait(LONG)


def test_without_inotify_somebody_has_to_look(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setattr(file_events, "_open_inotify", lambda: None)
    with closing(FileEvents()) as events:
        assert not events.watch([file])
        write(file, b"1")
        assert not events.wait(0)
        events.wake()
        assert events.wait(LONG)


def test_woken_by_hand(events: FileEvents) -> None:
    for _ in range(100_000):  # more than a pipe holds
        events.wake()
    assert events.wait(LONG)
    events.close()
    events.wake()
    events.close()
