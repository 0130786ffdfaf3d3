"""Writers and conditions over a wire that breaks, and to a server that is killed."""

import random
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock import Log, Record
from penstock.clock import monotonic
from penstock.errors import LogClosed, LogUnreachable
from penstock.log.client import direct
from penstock.log.client.remote import RemoteLog
from penstock.testing import LogServerProcess

ROUNDS = 6
RECORDS, SIZE = 150, 20_000  # three megabytes a partition


def large(batch: int) -> list[Record]:
    return [Record(value=b"%d %d" % (batch, n) + b"." * SIZE) for n in range(RECORDS)]


def record() -> list[Record]:
    return [Record(key=b"k", value=b"v")]


@pytest.fixture
def log(log_server: LogServerProcess) -> Iterator[RemoteLog]:
    with RemoteLog(log_server.address, time_limit=5) as log:
        log.create("t", partitions=2)
        yield log


def break_after(log: RemoteLog, monkeypatch: pytest.MonkeyPatch, answers: int) -> list[int]:
    """Lets so many answers come in, and loses the connection in place of the next."""
    left, broken = [answers], []
    real = direct._receive

    def receive(connection: socket.socket) -> bytes:
        if left[0] == 0:
            left[0] = -1
            broken.append(1)
            real(connection)  # it has been done on the other side
            raise ConnectionResetError("broken by the test")
        left[0] -= 1
        return real(connection)

    monkeypatch.setattr(direct, "_receive", receive)
    return broken


@pytest.mark.parametrize("answers", range(5))
def test_a_lost_answer_is_asked_for_again(
    log: RemoteLog, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    writer = log.open_writer("w")
    writer.append("t", {0: record()}, batch=0)
    broken = break_after(log, monkeypatch, answers)
    stored = writer.append("t", {0: large(1), 1: large(1)}, batch=1)
    assert broken
    # Whether it was this attempt or the one before, it is there once.
    assert set(stored) == {0, 1}
    assert [log.bounds("t", p).end for p in (0, 1)] == [RECORDS + 1, RECORDS]
    assert [writer.last_batch("t", p) for p in (0, 1)] == [1, 1]


def test_an_append_on_a_condition_is_not_sent_twice(
    log: RemoteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append("t", record(), expected={b"k": -1})
    partition = next(p for p in (0, 1) if log.bounds("t", p).end)
    break_after(log, monkeypatch, 1)
    with pytest.raises(LogUnreachable, match="not known whether"):
        log.append("t", record(), expected={b"k": 0})
    monkeypatch.undo()
    assert log.bounds("t", partition).end == 2
    assert log.append("t", record(), expected={b"k": 1})[0].offset == 2


def test_a_restarted_server_is_found_again(log_server: LogServerProcess, log: RemoteLog) -> None:
    writer = log.open_writer("w")
    position = log.append("t", record(), expected={b"k": -1})[0]
    log_server.kill()
    log_server.restart()
    # Neither is refused because of the connection that ended meanwhile.
    assert log.append("t", record(), expected={b"k": position.offset})
    assert writer.append("t", {1: record()}, batch=0)


def test_a_writer_waits_for_a_server_that_comes_back(
    log_server: LogServerProcess, log: RemoteLog
) -> None:
    writer = log.open_writer("w")
    log_server.kill()
    back = threading.Thread(target=log_server.restart)
    back.start()
    assert writer.append("t", {0: large(0)}, batch=0) == {0: range(RECORDS)}
    back.join()


def test_a_server_that_is_gone(log_server: LogServerProcess) -> None:
    log = RemoteLog(log_server.address, time_limit=1)
    log.create("t")
    writer = log.open_writer("w")
    log_server.stop()
    with pytest.raises(LogUnreachable, match="is the log running"):
        writer.append("t", {0: record()}, batch=0)
    log.close()
    with pytest.raises(LogClosed):
        writer.append("t", {0: record()}, batch=0)
    with pytest.raises(LogClosed):
        log.open_writer("w")


def test_a_server_killed_in_the_middle_of_large_appends(log_server: LogServerProcess) -> None:
    """Of each batch all records are there or none, in each partition, and never twice."""
    luck = random.Random(7)
    batch = 0
    with Log.connect(log_server.address) as log:
        log.create("t", partitions=2)
    for _ in range(ROUNDS):
        with RemoteLog(log_server.address, time_limit=1) as log:
            writer = log.open_writer("w")
            batch = 1 + min(writer.last_batch("t", partition) for partition in (0, 1))
            killer = threading.Timer(luck.uniform(0.02, 0.4), log_server.kill)
            writer.append("t", {0: large(batch), 1: large(batch)}, batch=batch)
            batch += 1
            killer.start()
            deadline = monotonic() + 30
            try:
                while monotonic() < deadline:
                    writer.append("t", {0: large(batch), 1: large(batch)}, batch=batch)
                    batch += 1
            except LogUnreachable:
                pass
            killer.join()
        log_server.restart()
    with Log.connect(log_server.address) as log:
        assert batch >= ROUNDS
        for partition in (0, 1):
            last = log.open_writer("w").last_batch("t", partition)
            found = [(r.value or b"").rstrip(b".") for r in log.read("t", partition, 0)]
            assert found == [b"%d %d" % (b, n) for b in range(last + 1) for n in range(RECORDS)]
