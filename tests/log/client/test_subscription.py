"""Subscriptions when things go wrong; what they do otherwise is in the contract."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from penstock.errors import LogClosed, LogUnreachable, TopicNotFound
from penstock.events.record import Record
from penstock.log.client import subscription
from penstock.log.client.subscription import Subscription
from penstock.log.contract import Log
from penstock.log.embedded import EmbeddedLog
from penstock.testing import LogServerProcess, wait_until
from penstock.testing.child import Child

NOBODY = "127.0.0.1:1"
LONG_ENOUGH = 30.0


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with EmbeddedLog(None) as log:
        yield log


@pytest.fixture(scope="module")
def address(log: EmbeddedLog) -> str:
    return log.serve()


def numbered(first: int, end: int) -> list[Record]:
    return [Record(value=b"%d" % number) for number in range(first, end)]


def take(member: Subscription, count: int, within: float = LONG_ENOUGH) -> list[int]:
    """The numbers of the records until there are so many."""
    numbers: list[int] = []

    def enough() -> bool:
        numbers.extend(int(record.value or b"") for record in member.poll(0.1))
        return len(numbers) >= count

    wait_until(enough, within=within, what=f"{count} records")
    return numbers


def test_nobody_at_the_address_is_told_quietly(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subscription, "_FIRST_CONTACT", 0.3)
    with pytest.raises(LogUnreachable, match=NOBODY):
        Subscription(NOBODY, "readers", ["orders"])
    assert capfd.readouterr().err == ""


def test_a_single_topic_may_be_given_by_its_name(log: Log, topic: str, group: str) -> None:
    log.create(topic)
    log.append(topic, numbered(0, 2))
    with log.subscribe(group, topic) as member:
        assert [record.offset for record in member.until_end()] == [0, 1]


def test_a_closed_subscription_says_so(log: Log, topic: str, group: str) -> None:
    log.create(topic)
    member = log.subscribe(group, [topic])
    member.close()
    member.close()
    assert list(member) == []
    with pytest.raises(LogClosed):
        member.poll()
    with pytest.raises(LogClosed):
        member.commit()


def test_a_topic_that_is_deleted_meanwhile_is_told(
    log: Log, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "_LOOK", 0.2)
    log.create(topic)
    log.append(topic, numbered(0, 1))
    member = log.subscribe(group, [topic])
    assert take(member, 1) == [0]
    log.delete(topic)
    with pytest.raises(TopicNotFound):
        take(member, 1, within=8)
    member.close()


def test_partitions_that_are_added_are_read(
    log: Log, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "_LOOK", 0.2)
    log.create(topic)
    with log.subscribe(group, [topic]) as member:
        assert list(member.until_end()) == []
        log.alter(topic, partitions=2)
        log.append(topic, [Record(value=b"7", partition=1)])
        assert take(member, 1, within=8) == [7]


def test_records_trimmed_unread_are_not_passed_over_in_silence(
    log: Log, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    log.create(topic)
    log.append(topic, numbered(0, 9))
    log.commit(group, {(topic, 0): 3})
    log.trim(topic, 0, 7)
    with log.subscribe(group, [topic]) as member:
        assert take(member, 2) == [7, 8]
    assert any("offset reset" in line.message and topic in line.message for line in caplog.records)


def test_uncommitted_records_that_go_to_another_are_told(
    log: Log, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    log.create(topic, partitions=2)
    log.append(topic, [Record(value=b"0", partition=partition) for partition in range(2)])
    one = log.subscribe(group, [topic])
    assert take(one, 2) == [0, 0]
    two = log.subscribe(group, [topic])
    wait_until(lambda: one.poll(0.05) or two.poll(0.05), within=LONG_ENOUGH)
    one.close()
    two.close()
    assert [line.message for line in caplog.records if "no longer this member" in line.message]


def test_a_subscription_outlasts_a_restart(
    log_server: LogServerProcess, topic: str, group: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with Log.connect(log_server.address) as log:
        log.create(topic, partitions=2)
        log.append(topic, numbered(0, 3))
        with log.subscribe(group, [topic]) as member:
            assert take(member, 3) == [0, 1, 2]
            member.commit()
            log_server.kill()
            assert member.poll(0.5) == []
            log_server.restart()
            wait_until(lambda: log.topics() == [topic])
            log.append(topic, numbered(3, 6))
            assert take(member, 3) == [3, 4, 5]
        assert sum(lag.lag for lag in log.describe_group(group).lags) == 0
    assert capfd.readouterr().err == ""


def test_a_commit_that_cannot_be_made_is_told(
    log_server: LogServerProcess, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "_PATIENCE", 1.0)
    with Log.connect(log_server.address) as log:
        log.create(topic)
        log.append(topic, numbered(0, 3))
        member = log.subscribe(group, [topic])
        assert take(member, 3) == [0, 1, 2]
        log_server.kill()
        with pytest.raises(LogUnreachable, match=group):
            member.commit()
        log_server.restart()
        wait_until(lambda: log.topics() == [topic])
        monkeypatch.undo()
        member.commit()
        assert log.describe_group(group).lags[0].committed == 3
        member.close()


def test_control_c_ends_the_iteration_cleanly(
    log: Log, address: str, topic: str, group: str
) -> None:
    log.create(topic)
    log.append(topic, numbered(0, 3))
    program = f"""
from penstock.log.client.subscription import Subscription
try:
    with Subscription({address!r}, {group!r}, [{topic!r}]) as records:
        for record in records:
            print(record.offset, flush=True)
            if record.offset == 1:
                records.commit()
except KeyboardInterrupt:
    print("interrupted")
"""
    child = Child((sys.executable, "-c", program))
    child.wait_until(lambda: "2" in child.output, within=LONG_ENOUGH, what="three records")
    os.kill(child.pid, signal.SIGINT)
    wait_until(lambda: not child.running, within=5)
    assert child.output == "0\n1\n2\ninterrupted\n"
    child.close()
    described = log.describe_group(group)
    assert described.members == ()
    assert described.lags[0].committed == 2
