import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Log, Record
from penstock.cli import cli
from penstock.clock import now_ms
from penstock.streams.source.punctuation import punctuation
from penstock.testing import wait_until
from tests.cli.conftest import Invoke
from tests.cli.running import PENSTOCK, WITHIN, OnTerminal, Running, environment, run

NOON = 1_767_268_800_000  # 2026-01-01 in UTC, in milliseconds
MINUTE = 60_000

Tail = Callable[..., list[int]]


@pytest.fixture
def orders(log: Log, topic: str) -> str:
    """Two partitions; ten records a minute apart, the even ones in the first."""
    log.create(topic, partitions=2)
    log.append(
        topic,
        [
            Record(key=b"k", value=b"%d" % n, partition=n % 2, timestamp=NOON + n * MINUTE)
            for n in range(10)
        ],
    )
    return topic


def shown(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def values(text: str) -> list[int]:
    return [int(each["value"]) for each in shown(text)]


@pytest.fixture
def tail(address: str, capfd: pytest.CaptureFixture[str]) -> Tail:
    """The values that a command shows until it ends by itself."""

    def shown_values(*arguments: str) -> list[int]:
        options = ("--no-follow", "--server", address)
        cli.main(["tail", *arguments, *options], standalone_mode=False)
        written = capfd.readouterr()
        assert written.err == ""
        return values(written.out)

    return shown_values


def test_json_lines_in_a_pipe(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    headers = (("trace", b"1"),)
    log.append(topic, [Record(key=b"k", value=b"\xff", headers=headers, timestamp=NOON)])
    done = run("tail", topic, "--from-start", "--no-follow", "--server", address)
    assert shown(done.stdout) == [
        {
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "timestamp": "2026-01-01T12:00:00.000Z",
            "key": "k",
            "value": {"base64": "/w=="},
            "headers": [["trace", "1"]],
        }
    ]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (["--from-start"], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (["--from", "2026-01-01T12:07:00Z"], [7, 8, 9]),
        (["--from", "1s"], []),
        (["-n", "3"], [7, 8, 9]),
        (["-n", "0"], []),
        (["-n", "99"], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (["--from-start", "--partition", "1"], [1, 3, 5, 7, 9]),
        (["-n", "2", "--partition", "0"], [6, 8]),
        ([], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_where_it_begins(tail: Tail, orders: str, where: list[str], found: list[int]) -> None:
    assert sorted(tail(orders, *where)) == found


def test_the_last_ones_come_in_the_order_of_time(tail: Tail, orders: str) -> None:
    assert tail(orders, "-n", "5") == [5, 6, 7, 8, 9]


def test_without_a_start_the_last_ten(tail: Tail, log: Log, orders: str) -> None:
    log.append(orders, [Record(value=b"10", timestamp=NOON + 10 * MINUTE)])
    assert tail(orders) == list(range(1, 11))


def test_clock_marks_are_shown_when_asked_for(
    tail: Tail, log: Log, address: str, orders: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log.append(orders, [punctuation("node", NOON, partition=number % 2) for number in range(50)])
    assert tail(orders, "-n", "3") == [7, 8, 9]
    assert sorted(tail(orders, "--from-start")) == list(range(10))
    options = ("--marks", "--no-follow", "--server", address)
    cli.main(["tail", orders, "-n", "3", *options], standalone_mode=False)
    assert [each["value"] for each in shown(capfd.readouterr().out)] == [None] * 3


def test_records_of_a_partition_come_in_order(tail: Tail, log: Log, topic: str) -> None:
    log.create(topic)
    log.append(topic, [Record(value=b"%d" % n) for n in range(5_000)])
    assert tail(topic, "--from-start") == list(range(5_000))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_begins_at_the_end_and_ends_quietly(
    log: Log, address: str, orders: str, number: int
) -> None:
    with Running("tail", orders, "--server", address) as command:
        # It does not say when it has begun, so records are sent until one is shown.
        numbers = iter(range(100, 10_000))

        def appeared() -> bool:
            log.append(orders, [Record(value=b"%d" % next(numbers))])
            return bool(command.text)

        wait_until(appeared, within=WITHIN)
        last = next(numbers)
        log.append(orders, [Record(value=b"%d" % last)])
        command.shows(f'"{last}"')
        assert command.interrupt(number) == 0
        found = sorted(values(command.text))
    assert found == list(range(found[0], last + 1))
    assert found[0] >= 100


def test_the_last_ones_and_then_what_comes(log: Log, address: str, orders: str) -> None:
    with Running("tail", orders, "-n", "2", "--server", address) as command:
        command.shows('"9"')
        log.append(orders, [Record(value=b"10", partition=0), Record(value=b"11", partition=1)])
        command.shows('"10"')
        command.shows('"11"')
        assert command.interrupt() == 0
        assert sorted(values(command.text)) == [8, 9, 10, 11]


def test_head_ends_it_quietly(address: str, orders: str) -> None:
    arguments = (*PENSTOCK, "tail", orders, "--from-start", "--server", address)
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as following:
        head = subprocess.run(
            ("head", "-n", "2"), stdin=following.stdout, capture_output=True, check=True
        )
        assert following.stdout is not None
        following.stdout.close()
        # No record comes that could tell it: it has to notice that nobody reads.
        assert following.wait(WITHIN) == 0
        assert following.stderr is not None
        assert following.stderr.read() == b""
    assert len(head.stdout.splitlines()) == 2


def test_a_reader_that_leaves_while_much_is_written(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    log.append(topic, [Record(value=b"x" * 1_000)] * 1_000)
    with Running("tail", topic, "--from-start", "--no-follow", "--server", address) as command:
        select.select([command.reading], [], [], WITHIN)
        os.read(command.reading, 1)
        command.stop_reading()
        assert command.wait() == 0


def test_a_group_goes_on_where_it_was(
    tail: Tail, log: Log, address: str, orders: str, group: str
) -> None:
    member = (orders, "--group", group)
    assert sorted(tail(*member, "--from-start")) == list(range(10))
    assert [each.lag for each in log.describe_group(group).lags] == [0, 0]
    assert tail(*member) == []
    log.append(orders, [Record(value=b"10")])
    with Running("tail", *member, "--server", address) as command:
        command.shows('"10"')
        wait_until(
            lambda: sum(each.lag for each in log.describe_group(group).lags) == 0, within=WITHIN
        )
        assert len(log.describe_group(group).members) == 1
        assert command.interrupt() == 0
    assert log.describe_group(group).members == ()


def test_a_new_group_begins_at_the_end(tail: Tail, orders: str, group: str) -> None:
    assert tail(orders, "--group", group) == []


def test_lines_for_people_on_a_terminal(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    headers = (("trace", b"1"),)
    log.append(
        topic,
        [
            Record(key=b"ada", value=b'{"pens": 2, "ok": true}', timestamp=NOON, headers=headers),
            Record(value=b"\x1b[2Jx", timestamp=now_ms()),
        ],
    )
    with OnTerminal("tail", topic, "--from-start", "--server", address) as command:
        command.shows("[2Jx")
        assert command.interrupt() == 0
        lines = command.plain.splitlines()
        styled = command.text
    assert lines[0] == "── Thursday, 2026-01-01 ──"
    assert lines[1] == '12:00:00.000  0@0  ada  {"pens": 2, "ok": true}  trace=1'
    assert lines[3].endswith("  0@1  \\x1b[2Jx")
    assert '\x1b[1;34m"pens"' in styled
    assert "\x1b[2Jx" not in styled


def test_a_long_record_is_not_cut_on_a_terminal(log: Log, address: str, topic: str) -> None:
    log.create(topic)
    log.append(topic, [Record(value=b"x" * 200 + b" " + b"y" * 200)])
    with OnTerminal("tail", topic, "-n", "1", "--server", address) as command:
        command.shows("x" * 200 + " " + "y" * 200)


@pytest.mark.parametrize(
    "options",
    [
        ["--from-start", "-n", "1"],
        ["--from", "1m", "--from-start"],
        ["--group", "g", "-n", "1"],
        ["--group", "g", "--from", "1m"],
        ["--group", "g", "--partition", "0"],
        ["--from", "soon"],
        ["-n", "-1"],
    ],
)
def test_options_that_do_not_go_together(penstock: Invoke, options: list[str]) -> None:
    assert penstock("tail", "t", *options).exit_code == 2


def test_a_partition_that_is_not_there(penstock: Invoke, orders: str) -> None:
    failed = penstock("tail", orders, "--partition", "2")
    assert failed.exit_code == 1
    assert "has no partition 2" in failed.stderr


def test_the_topic_is_deleted_while_it_is_followed(log: Log, address: str, orders: str) -> None:
    with Running("tail", orders, "-n", "1", "--server", address) as command:
        command.shows('"9"')
        log.delete(orders)
        assert command.wait() == 1
        assert f"error: topic {orders!r} is gone" in command.text


def test_partitions_that_come_later_are_followed(log: Log, address: str, orders: str) -> None:
    with Running("tail", orders, "-n", "1", "--server", address) as command:
        command.shows('"9"')
        log.alter(orders, partitions=3)
        log.append(orders, [Record(value=b"new", partition=2)])
        command.shows('"new"')
