"""A disk that fails to sync: what was acknowledged stays, the rest is refused and never seen."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from penstock import Log, Record
from penstock.errors import StorageFailed
from penstock.testing import LogServerProcess, wait_until

KAFKA_STORAGE_ERROR = 56


@contextmanager
def failing_syncs(strace: str, pid: int, trace: Path) -> Iterator[None]:
    """Makes every fdatasync of the process fail with EIO, as a dying disk does."""
    attached = subprocess.Popen(
        [strace, "-f", "-p", str(pid), "-o", str(trace), *("-e", "inject=fdatasync:error=EIO")],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert attached.stderr is not None
    first = attached.stderr.readline()
    assert "attached" in first, first
    try:
        yield
    finally:
        attached.terminate()
        attached.communicate(timeout=20)


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.read("orders", 0, 0)]


def send(address: str, value: bytes) -> KafkaError | None:
    """The error that a producer gets which does not try again for long."""
    outcome: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": address, "message.timeout.ms": 3_000, "log_level": 0, "retries": 0}
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcome.append(error)

    producer.produce("orders", value, partition=0, on_delivery=delivered)
    producer.flush(20)
    return outcome[0]


@pytest.mark.timeout(180)
def test_a_failing_disk_under_the_server(
    log_server: LogServerProcess, require_program: Callable[[str], str], tmp_path: Path
) -> None:
    strace, trace = require_program("strace"), tmp_path / "trace"
    with Log.connect(log_server.address) as log:
        log.create("orders")
        log.append("orders", [Record(value=b"kept %d" % n) for n in range(10)])
        kept = values(log)
    with failing_syncs(strace, log_server.pid, trace):
        refused = send(log_server.address, b"not acknowledged")
        assert refused is not None
        assert refused.code() == KAFKA_STORAGE_ERROR
        assert "EIO" in trace.read_text()
    # The disk seems well again, but what the system could not write may be gone from its memory.
    again = send(log_server.address, b"refused as well")
    assert again is not None
    assert again.code() == KAFKA_STORAGE_ERROR
    with Log.connect(log_server.address) as log:
        assert values(log) == kept
        log.create("others")
        assert log.append("others", [Record(value=b"another file is fine")])
    wait_until(lambda: "takes no more writes" in log_server.output, within=10, what="a message")
    log_server.restart()
    assert send(log_server.address, b"after the restart") is None
    with Log.connect(log_server.address) as log:
        found = values(log)
    assert found[: len(kept)] == kept
    assert found[-1] == b"after the restart"
    assert set(found[len(kept) : -1]) <= {b"not acknowledged"}


def test_a_failing_disk_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with Log.open(tmp_path) as log:
        log.create("orders")
        log.append("orders", [Record(value=b"kept")])
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageFailed, match=r"Input/output error.*syncing orders/0"):
            log.append("orders", [Record(value=b"lost?")])
        monkeypatch.undo()
        with pytest.raises(StorageFailed, match="restart the log"):
            log.append("orders", [Record(value=b"refused")])
        assert values(log) == [b"kept"]
    with Log.open(tmp_path) as log:
        assert values(log)[0] == b"kept"
        log.append("orders", [Record(value=b"goes on")])
        assert values(log)[-1] == b"goes on"
