import signal
from pathlib import Path

import pytest

from penstock import Log
from penstock.testing import wait_until
from tests.cli.conftest import Invoke
from tests.cli.running import WITHIN, OnTerminal, Running, run


def stored(log: Log, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in log.read(topic, partition, 0)]


def test_a_file_of_lines(penstock: Invoke, log: Log, topic: str, tmp_path: Path) -> None:
    log.create(topic)
    (tmp_path / "notes").write_bytes(b"first\n\nthird \xff")
    done = penstock("produce", topic, str(tmp_path / "notes"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"appended 3 records to {topic}/0, offsets 0 to 2\n"
    assert stored(log, topic) == [(None, b"first"), (None, b""), (None, b"third \xff")]


def test_keys_go_to_their_partitions_and_are_counted_there(
    penstock: Invoke, log: Log, topic: str, tmp_path: Path
) -> None:
    log.create(topic, partitions=3)
    (tmp_path / "f").write_text("".join(f"{n % 7}:{n}\n" for n in range(3_000)))
    done = penstock("produce", topic, str(tmp_path / "f"), "--key-separator", ":")
    bounds = log.describe(topic).partitions
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines == [
        ["appended", "3000", "records", "to", topic],
        ["partition", "records", "first", "last"],
        *([str(n), str(end), "0", str(end - 1)] for n, (_, end) in enumerate(bounds) if end),
    ]
    assert sum(end for _, end in bounds) == 3_000
    found = [stored(log, topic, partition) for partition in range(3)]
    assert sorted(int(value or b"") for records in found for _, value in records) == [*range(3_000)]
    assert all(int(value or b"") % 7 == int(key or b"") for part in found for key, value in part)
    assert sum(len({key for key, _ in records}) for records in found) == 7


def test_positions_for_those_who_read_what_they_wrote(
    penstock: Invoke, log: Log, topic: str, tmp_path: Path
) -> None:
    log.create(topic, partitions=2)
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}:x\n" for number in range(6)))
    arguments = ("produce", topic, str(file), "--key-separator", ":", "--position")
    done = penstock(*arguments)
    ends = [log.bounds(topic, number).end for number in range(2)]
    assert done.stdout == f"{topic}/0@{ends[0] - 1},{topic}/1@{ends[1] - 1}\n"
    file.write_text("")
    assert penstock(*arguments).stdout == ""


def test_standard_input(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    lines = b'{"id": "a", "n": 1}\n\n{"id": 2}\n'
    done = run("produce", topic, "--key-field", "id", "--server", address, stdin=lines)
    assert (done.returncode, done.stderr) == (0, "left out 1 blank line\n")
    assert done.stdout == f"appended 2 records to {topic}/0, offsets 0 to 1\n"
    assert stored(log, topic) == [(b"a", b'{"id": "a", "n": 1}'), (b"2", b'{"id": 2}')]


def test_nothing_in_nothing_out(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    done = run("produce", topic, "--server", address)
    assert (done.returncode, done.stdout) == (0, f"appended 0 records to {topic}\n")


def test_a_bad_line_is_an_error_that_names_it(
    penstock: Invoke, log: Log, topic: str, tmp_path: Path
) -> None:
    log.create(topic)
    path = tmp_path / "orders.jsonl"
    path.write_text('{"id": 1}\n{"id": 2}\n{"id": \n{"id": 4}\n')
    done = penstock("produce", topic, str(path), "--json")
    assert done.exit_code == 1
    assert done.stdout == f"appended 2 records to {topic}/0, offsets 0 to 1\n"
    assert done.stderr == (
        f"error: {path}, line 3: this is not JSON: Expecting value at character 7\n"
        "  hint: the lines before line 3 are in the log\n"
    )
    assert len(stored(log, topic)) == 2


def test_a_line_too_long_for_the_topic(
    penstock: Invoke, log: Log, topic: str, tmp_path: Path
) -> None:
    log.create(topic, max_message_bytes=1_000)
    path = tmp_path / "f"
    path.write_text("short\n" + "x" * 1_001)
    done = penstock("produce", topic, str(path))
    assert "line 2: this is longer than 1000 bytes" in done.stderr
    assert stored(log, topic) == [(None, b"short")]


def test_wrong_options(penstock: Invoke, tmp_path: Path) -> None:
    both = penstock("produce", "t", "--key-field", "id", "--key-separator", ":")
    assert (both.exit_code, "not both" in both.stderr) == (2, True)
    missing = penstock("produce", "t", str(tmp_path / "missing"))
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_says_how_much_is_in_the_log(
    log: Log, address: str, topic: str, number: int
) -> None:
    log.create(topic)
    with Running("produce", topic, "--server", address) as command:
        command.enter("a\nb\nhalf a line")
        wait_until(lambda: log.bounds(topic, 0).end == 2, within=WITHIN)
        assert command.interrupt(number) == 130
        assert command.text == (f"interrupted\nappended 2 records to {topic}/0, offsets 0 to 1\n")


def test_lines_from_a_pipe_are_sent_as_they_come(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    with (
        Running("produce", topic, "--server", address) as command,
        log.follow(topic, {0: 0}) as records,
    ):
        for value in ("a", "b"):
            command.enter(f"{value}\n")
            assert [record.value for record in records.poll(20)] == [value.encode()]


def test_a_failure_comes_after_the_count(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    with Running("produce", topic, "--server", address) as command:
        command.enter("a\n")
        with log.follow(topic, {0: 0}) as records:
            assert len(records.poll(20)) == 1
        log.alter(topic, max_message_bytes=200)  # after the command has looked
        command.enter(f"{'b' * 500}\n")
        assert command.wait() == 1
        counted, _, failed = command.text.partition("\n")
    assert counted == f"appended 1 record to {topic}/0, offset 0"
    assert failed.startswith("error: ")
    assert stored(log, topic) == [(None, b"a")]


def test_a_file_on_a_terminal_has_a_progress_bar(
    log: Log, address: str, topic: str, tmp_path: Path
) -> None:
    log.create(topic)
    path = tmp_path / "lines.txt"
    path.write_text("x" * 99 + "\n")
    with OnTerminal("produce", topic, str(path), "--server", address) as command:
        assert command.wait() == 0
        assert "lines.txt ━" in command.plain
        assert "100/100 bytes" in command.plain
        assert command.plain.rstrip().endswith(f"appended 1 record to {topic}/0, offset 0")
    assert run("produce", topic, str(path), "--server", address).stderr == ""


def test_a_person_is_told_how_to_end(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    with OnTerminal("produce", topic, "--server", address) as command:
        command.shows("one record a line; Ctrl-D ends")
        command.enter("hello\n\x04")
        assert command.wait() == 0
        command.shows("appended 1 record")
    assert stored(log, topic) == [(None, b"hello")]
