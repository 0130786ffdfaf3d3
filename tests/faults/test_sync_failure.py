"""A disk that fails to sync: writes are refused and say why, reads go on, a restart mends it."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from penstock import Log
from penstock.errors import StorageFailed
from penstock.events.record import Record
from penstock.testing import LogServerProcess, wait_until
from tests.conftest import without_peer
from tests.log.server.plain_client import PlainClient, batch, creation, production
from tests.log.server.scenes.stage import listing

KAFKA_STORAGE_ERROR = 56


@contextmanager
def failing_syncs(strace: str, server: LogServerProcess, when: str = "1+") -> Iterator[None]:
    """Every sync of the server from the one that `when` says fails, until the block ends."""
    inject = f"inject=fdatasync,fsync:error=EIO:when={when}"
    with TemporaryFile() as messages:
        tracer = subprocess.Popen(
            [strace, "-f", "-p", str(server.pid), "-e", inject], stdout=messages, stderr=messages
        )

        def said() -> bytes:
            return os.pread(messages.fileno(), 100_000, 0)

        def attached() -> bool:
            if tracer.poll() is not None:
                without_peer(f"strace may not attach here: {said().decode().strip()}")
            return b"attached" in said()

        wait_until(attached, what="strace to be attached")
        try:
            yield
        finally:
            tracer.terminate()
            tracer.wait()


def committing(group: str, topic: str, offset: int) -> dict[str, Any]:
    place = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [place | {"committed_metadata": ""}]}],
    }


def commit(client: PlainClient, offset: int) -> int:
    answer = client.ask("offset_commit", 8, **committing("readers", "orders", offset))
    return int(answer.topics[0].partitions[0].error_code)


def end_of(client: PlainClient) -> int:
    found = client.ask("list_offsets", 5, **listing("orders", {0: -1}))
    return int(found.topics[0].partitions[0].offset)


def committed(client: PlainClient) -> int:
    answer = client.ask("offset_fetch", 5, group_id="readers", topics=None)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_over_the_wire(log_server: LogServerProcess, require_program: Callable[[str], str]) -> None:
    strace = require_program("strace")
    with PlainClient(log_server.address) as client:
        topic = client.create_topic("orders")
        assert client.produce("orders", batch(b"kept", b"too")).base_offset == 0
        assert commit(client, 1) == 0

        with failing_syncs(strace, log_server):
            refused = client.produce("orders", batch(b"refused"))
            assert (refused.error_code, refused.base_offset) == (KAFKA_STORAGE_ERROR, -1)
            assert "the disk failed (Input/output error): syncing orders/0" in refused.error_message
            assert "restart" in refused.error_message
            assert commit(client, 2) == KAFKA_STORAGE_ERROR
            made = client.ask("create_topics", 7, **creation("more")).topics[0]
            assert made.error_code == KAFKA_STORAGE_ERROR
            assert "Input/output error" in made.error_message
            expect_refusal_by_a_client_library(log_server.address)

        # The disk works again, but nobody knows what it forgot: that takes a restart.
        assert client.produce("orders", batch(b"refused")).error_code == KAFKA_STORAGE_ERROR
        assert commit(client, 2) == KAFKA_STORAGE_ERROR
        client.create_topic("others")
        assert client.produce("others", batch(b"another file is fine")).error_code == 0
        assert end_of(client) == 2
        found = client.fetch(topic, 0)
        assert b"kept" in found.records
        assert b"refused" not in found.records
        assert client.fetch(topic, 2).records in (None, b"")
    assert "orders/0 takes no more writes" in log_server.output

    log_server.restart()
    with PlainClient(log_server.address) as client:
        # What was refused may have reached the disk; whoever was refused may send it again.
        assert end_of(client) in (2, 3)
        assert b"kept" in client.fetch(topic, 0).records
        assert committed(client) in (1, 2)
        assert client.produce("orders", batch(b"goes on")).error_code == 0
        assert commit(client, 2) == 0
        client.create_topic("more")


def expect_refusal_by_a_client_library(address: str) -> None:
    errors: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": address, "message.timeout.ms": 2_000, "retries": 0, "log_level": 0}
    )
    producer.produce("orders", b"refused", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(20) == 0
    assert [error.code() for error in errors] == [KafkaError.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("when", [2, 5, 17])
def test_in_the_middle_of_a_stream(
    log_server: LogServerProcess, require_program: Callable[[str], str], when: int
) -> None:
    """What was acknowledged before stays, in order, and nothing behind it can be seen."""
    strace = require_program("strace")
    with PlainClient(log_server.address) as client:
        client.create_topic("orders")
        codes: list[int] = []
        with failing_syncs(strace, log_server, f"{when}+"):
            while not any(codes) and len(codes) < 200:
                for number in range(len(codes), len(codes) + 5):
                    client.send("produce", 11, **production("orders", batch(b"%d" % number)))
                answers = [client.receive()[1].responses[0] for _ in range(5)]
                codes += [answer.partition_responses[0].error_code for answer in answers]
        acknowledged = codes.count(0)
        assert acknowledged < len(codes)
        refused = len(codes) - acknowledged
        assert codes == [0] * acknowledged + [KAFKA_STORAGE_ERROR] * refused
        assert end_of(client) == acknowledged
    log_server.restart()
    with Log.connect(log_server.address) as log:
        values = [record.value for record in log.read("orders", 0, 0)]
    assert acknowledged <= len(values)
    assert values == [b"%d" % number for number in range(len(values))]


def test_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Log.open(tmp_path) as log:
        log.create("orders")
        log.append("orders", [Record(value=b"kept")])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(
                StorageFailed, match=r"Input/output error.*syncing orders/0"
            ) as first:
                log.append("orders", [Record(value=b"refused")])
        assert "restart" in first.value.hint
        with pytest.raises(StorageFailed):
            log.append("orders", [Record(value=b"refused")])
        assert [record.value for record in log.read("orders", 0, 0)] == [b"kept"]
        assert log.bounds("orders", 0).end == 1
    with Log.open(tmp_path) as log:
        assert next(log.read("orders", 0, 0)).value == b"kept"
        log.append("orders", [Record(value=b"goes on")])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_room_that_lacks_at_the_sync_is_no_promise_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Where room is only found when the system writes, what it could not write may be gone."""

    def fail(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    with Log.open(tmp_path) as log:
        log.create("orders")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(StorageFailed):
                log.append("orders", [Record(value=b"refused")])
        with pytest.raises(StorageFailed) as later:
            log.append("orders", [Record(value=b"refused")])
        assert "restart" in later.value.hint
