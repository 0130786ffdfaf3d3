import re

import pytest

from penstock import Log, Record
from penstock.log.contract import Bounds
from tests.cli.conftest import Invoke
from tests.cli.running import OnTerminal


def row(output: str, first: str) -> list[str]:
    """The cells of the row that begins with that."""
    [line] = [line for line in output.splitlines() if line.split()[:1] == [first]]
    return re.split(r"\s{2,}", line.strip())


def test_create_and_list(penstock: Invoke, log: Log, topic: str) -> None:
    created = penstock("topics", "create", topic, "--partitions", "3", "--set", "retention.ms=36h")
    assert created.output == f"created {topic} with 3 partitions\n"
    log.append(topic, [Record(value=b"v", partition=n % 3) for n in range(5)])
    log.trim(topic, 0, 1)
    assert log.describe(topic).policy.retention_ms == 36 * 3_600_000
    listed = penstock("topics").stdout
    headings = ["topic", "partitions", "records", "durability", "retention"]
    assert row(listed, "topic") == headings
    assert row(listed, topic) == [topic, "3", "4", "fsync", "1d 12h"]


def test_retention_by_size_is_listed(penstock: Invoke, topic: str) -> None:
    settings = ("--set", "retention.bytes=1048576", "--set", "retention.ms=-1")
    assert penstock("topics", "create", topic, *settings).exit_code == 0
    assert row(penstock("topics").stdout, topic)[-1] == "forever or 1 MiB"


def test_a_topic_is_made_once(penstock: Invoke, topic: str) -> None:
    assert penstock("topics", "create", topic).exit_code == 0
    failed = penstock("topics", "create", topic)
    assert failed.exit_code == 1
    assert topic in failed.stderr


@pytest.mark.parametrize(
    ("settings", "code", "why"),
    [
        (["retention.ms"], 2, "write NAME=VALUE"),
        (["retention.ms=soon"], 1, "'soon' is not a duration"),
        (["partitions=3"], 1, "'partitions' is not a topic setting"),
        (["topic=x"], 1, "'topic' is not a topic setting"),
        (["durability=maybe"], 1, "one of: fsync, os, memory"),
    ],
)
def test_a_wrong_setting_is_refused(
    penstock: Invoke, log: Log, topic: str, settings: list[str], code: int, why: str
) -> None:
    failed = penstock("topics", "create", topic, *(f"--set={each}" for each in settings))
    assert failed.exit_code == code
    assert why in failed.stderr
    assert topic not in log.topics()


def test_describe_marks_what_differs(penstock: Invoke, log: Log, topic: str) -> None:
    log.create(topic, partitions=2, retention="30 days", durability="os")
    log.append(topic, [Record(value=b"v", partition=1)] * 4)
    log.trim(topic, 1, 3)
    lines = penstock("topics", "describe", topic).stdout.splitlines()
    assert lines[0] == f"{topic}: 1 record, id {log.describe(topic).id}"
    assert lines[2:5] == [
        "partition  start  end  records",
        "        0      0    0        0",
        "        1      3    4        1",
    ]
    marked = [line.split() for line in lines if line.startswith("*")]
    assert marked == [["*", "durability", "os", "fsync"], ["*", "retention.ms", "30d", "7d"]]
    assert "   segment.bytes           268435456 (256 MiB)" in lines


def test_alter(penstock: Invoke, log: Log, topic: str) -> None:
    log.create(topic, segment_ms="1h")
    changes = ("--partitions", "2", "--set", "retention.ms=1d", "--unset", "segment.ms")
    altered = penstock("topics", "alter", topic, *changes)
    assert altered.output == f"altered {topic}\n"
    described = log.describe(topic)
    assert len(described.partitions) == 2
    assert described.policy.retention_ms == 86_400_000
    assert described.policy.segment_ms == 7 * 86_400_000


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ([], 2, "Nothing to change"),
        (["--unset", "nix"], 1, "'nix' is not a topic setting"),
        (["--unset", "partitions"], 1, "'partitions' is not a topic setting"),
    ],
)
def test_what_cannot_be_altered(
    penstock: Invoke, log: Log, topic: str, changes: list[str], code: int, why: str
) -> None:
    log.create(topic)
    failed = penstock("topics", "alter", topic, *changes)
    assert failed.exit_code == code
    assert why in failed.stderr


def test_partitions_cannot_be_taken_away(penstock: Invoke, log: Log, topic: str) -> None:
    log.create(topic, partitions=2)
    assert penstock("topics", "alter", topic, "--partitions", "1").exit_code == 1
    assert log.describe(topic).partitions == (Bounds(0, 0), Bounds(0, 0))


def test_delete(penstock: Invoke, log: Log, topic: str) -> None:
    log.create(topic)
    log.append(topic, [Record(value=b"v")])
    refused = penstock("topics", "delete", topic)
    assert refused.exit_code == 2
    assert "give --yes" in refused.stderr
    assert topic in log.topics()
    assert penstock("topics", "delete", topic, "--yes").output == (
        f"deleted {topic} with 1 record\n"
    )
    assert topic not in log.topics()


@pytest.mark.parametrize(("answer", "gone"), [("n\n", False), ("\n", False), ("y\n", True)])
def test_on_a_terminal_delete_asks(
    address: str, log: Log, topic: str, answer: str, gone: bool
) -> None:
    log.create(topic)
    with OnTerminal("topics", "delete", topic, "--server", address) as command:
        command.shows(f"Delete topic {topic} with 0 records? [y/N]")
        command.enter(answer)
        assert command.wait() == (0 if gone else 1)
        assert ("nothing was deleted" in command.text) != gone
    assert (topic in log.topics()) != gone


def test_the_table_on_a_terminal_fits_and_groups_digits(address: str, log: Log, topic: str) -> None:
    short = f"short-{topic[-4:]}"
    log.create(short)
    log.append(short, [Record(value=b"")] * 1_234)
    log.create(f"{topic}-{'long' * 30}")
    with OnTerminal("topics", "--server", address) as command:
        assert command.wait() == 0
        lines = command.plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(short) and "  1,234  " in line for line in lines)
