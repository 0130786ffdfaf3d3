import re

import pytest

from penstock import Log, Record
from penstock.testing import wait_until
from tests.cli.conftest import Invoke
from tests.cli.running import OnTerminal
from tests.cli.test_topics import row

NOON = 1_767_268_800_000  # 2026-01-01 in UTC, in milliseconds
MINUTE = 60_000


@pytest.fixture
def orders(log: Log, topic: str, group: str) -> str:
    """Two partitions, of ten records a minute apart and of none; the group has read four."""
    log.create(topic, partitions=2)
    log.append(
        topic, [Record(value=b"v", partition=0, timestamp=NOON + n * MINUTE) for n in range(10)]
    )
    log.trim(topic, 0, 2)
    log.commit(group, {(topic, 0): 4})
    return topic


def committed(log: Log, group: str) -> dict[int, int]:
    return {each.partition: each.committed for each in log.describe_group(group).lags}


@pytest.mark.usefixtures("orders")
def test_list(penstock: Invoke, group: str) -> None:
    listed = penstock("groups").stdout
    assert row(listed, "group") == ["group", "state", "members", "lag"]
    assert row(listed, group) == [group, "Empty", "0", "6"]


def test_describe(penstock: Invoke, orders: str, group: str) -> None:
    lines = penstock("groups", "describe", group).stdout.splitlines()
    assert lines[0] == f"{group}: Empty, 0 members"
    assert lines[2].split() == ["topic", "partition", "committed", "end", "lag", "member"]
    assert lines[3].split() == [orders, "0", "4", "10", "6", "-"]


def test_describe_names_the_members(penstock: Invoke, log: Log, orders: str, group: str) -> None:
    with log.subscribe(group, [orders]) as records:
        wait_until(lambda: records.poll(0.1) or records.assignment, within=20)
        shown = penstock("groups", "describe", group).stdout.splitlines()
        [member] = log.describe_group(group).members
        assert shown[0] == f"{group}: Stable, 1 member"
        assert [line.split()[-1] for line in shown[3:]] == [member, member]
        assert shown[4].split()[2:5] == ["-", "0", "0"]
        for command in (
            ["delete", group, "--yes"],
            ["reset", group, "--topic", orders, "--to-end"],
        ):
            failed = penstock("groups", *command)
            assert failed.exit_code == 1
            assert "error: " in failed.stderr
        planned = penstock("groups", "reset", group, "--topic", orders, "--to-end", "--dry-run")
        assert [line.split()[2] for line in planned.stdout.splitlines()[1:]] == ["4", "-"]
        records.close()


@pytest.mark.parametrize(
    ("where", "first", "second"),
    [
        (["--to-start"], 2, 0),
        (["--to-end"], 10, 0),
        (["--to", "2026-01-01T12:05:00Z"], 5, 0),
        (["--to", "2020-01-01"], 2, 0),
        (["--to", "1s"], 10, 0),
        (["--to-offset", "7"], 7, 0),
        (["--to-offset", "0"], 2, 0),
        (["--to-offset", "99"], 10, 0),
    ],
)
def test_reset(
    penstock: Invoke, log: Log, orders: str, group: str, where: list[str], first: int, second: int
) -> None:
    arguments = ("groups", "reset", group, "--topic", orders, *where)
    planned = penstock(*arguments, "--dry-run")
    assert planned.stderr == "nothing was changed: this was a dry run\n"
    assert committed(log, group) == {0: 4}
    moved = penstock(*arguments)
    assert (moved.exit_code, moved.stderr) == (0, "")
    assert moved.stdout == planned.stdout
    assert committed(log, group) == {0: first, 1: second}
    assert [line.split()[1:] for line in moved.stdout.splitlines()[1:]] == [
        ["0", "4", str(first), str(10 - first)],
        ["1", "-", str(second), "0"],
    ]


@pytest.mark.parametrize(("by", "offset"), [("3", 7), ("-1", 3), ("-99", 2), ("+99", 10)])
def test_reset_by(
    penstock: Invoke, log: Log, orders: str, group: str, by: str, offset: int
) -> None:
    arguments = ("groups", "reset", group, "--topic", orders, "--by", by)
    failed = penstock(*arguments)
    assert f"group {group!r} has committed nothing in {orders}/1" in failed.stderr
    assert committed(log, group) == {0: 4}
    assert penstock(*arguments, "--partition", "0").exit_code == 0
    assert committed(log, group) == {0: offset}


@pytest.mark.parametrize("where", [[], ["--to-start", "--to-end"], ["--by", "1", "--to", "1m"]])
def test_reset_wants_one_place(penstock: Invoke, orders: str, group: str, where: list[str]) -> None:
    failed = penstock("groups", "reset", group, "--topic", orders, *where)
    assert failed.exit_code == 2
    assert "Give one of --to-start" in failed.stderr


def test_reset_of_what_is_not_there(penstock: Invoke, log: Log, orders: str, group: str) -> None:
    to_start = ("--topic", orders, "--to-start")
    failed = penstock("groups", "reset", f"{group}x", *to_start)
    assert f"did you mean {group!r}" in failed.stderr
    assert f"{group}x" not in log.groups()
    failed = penstock("groups", "reset", group, *to_start, "--partition", "2")
    assert failed.exit_code == 1
    assert "has no partition 2" in failed.stderr
    failed = penstock("groups", "reset", group, "--topic", orders, "--to", "soon")
    assert failed.exit_code == 2
    assert "neither a time" in failed.stderr


@pytest.mark.usefixtures("orders")
def test_delete(penstock: Invoke, log: Log, group: str) -> None:
    assert penstock("groups", "delete", group).exit_code == 2
    assert group in log.groups()
    assert penstock("groups", "delete", group, "--yes").output == f"deleted group {group}\n"
    assert group not in log.groups()


def test_describe_fits_a_terminal(address: str, log: Log, orders: str, group: str) -> None:
    with log.subscribe(group, [orders]) as records:
        wait_until(lambda: records.poll(0.1) or records.assignment, within=20)
        with OnTerminal("groups", "describe", group, "--server", address) as command:
            assert command.wait() == 0
            lines = command.plain.splitlines()
        records.close()
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if re.search(r"  penstock-..…[0-9a-f]{8}$", line)]) == 2
