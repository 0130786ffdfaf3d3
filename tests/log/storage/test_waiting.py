"""Who waits for whom: nobody for a long write or sync but those who write to the partition too."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StorageFailed
from penstock.log.policy import TopicPolicy
from penstock.log.storage.append_times import APPENDED_FILE
from penstock.log.storage.partition import Partition
from penstock.log.storage.published import Published
from penstock.log.storage.segment import Segment

from .conftest import append, batch, read

SMALL = TopicPolicy(segment_bytes=100)


class Gate:
    """Holds whoever comes through, until it opens."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def after(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def held(*arguments: Any) -> Any:
            result = work(*arguments)
            self.reached.set()
            assert self.opened.wait(30)
            return result

        return held


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(params=["one segment", "a new segment for each append"])
def partition(request: pytest.FixtureRequest, tmp_path: Path, syncs: Executor) -> Partition:
    policy = TopicPolicy() if request.param == "one segment" else SMALL
    return Partition(tmp_path, "orders", 0, policy, syncs)


def test_nobody_waits_for_a_long_write(
    partition: Partition, gate: Gate, others: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is written, and nothing of it is seen before the append is over."""
    for n in range(3):
        append(partition, b"%d" % n * 50)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "write", gate.after(Segment.write))
        slow = others.submit(partition.append, batch(b"slow" * 1000))
        assert gate.reached.wait(10)
    woken: Future[bool] = Future()
    told: Future[Exception | None] = Future()

    def look() -> None:
        partition.watch(lambda: None)
        partition.watch(lambda: woken.set_result(True))
        partition.when_durable(3, told.set_result)
        assert [offset for offset, _ in read(partition, 0)] == [0, 1, 2]
        assert partition.last_append_of(1) is None
        partition._sync()  # as for an append before
        assert (partition.next_offset, partition.end_offset) == (3, 3)
        assert partition.slice(3, 1000) is None
        assert partition.forget_before(1) in (0, 1)
        assert partition.start_offset == 1

    others.submit(look).result(10)
    assert told.result(10) is None
    assert not woken.done()
    assert not slow.done()
    gate.opened.set()
    assert slow.result(10).base_offset == 3
    assert append(partition, b"4") == 4
    assert woken.result(10)
    assert read(partition, 1)[2:] == [(3, b"slow" * 1000), (4, b"4")]


def test_other_writers_do(
    partition: Partition, gate: Gate, others: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "write", gate.after(Segment.write))
        first = others.submit(partition.append, batch(b"first"))
        assert gate.reached.wait(10)
    second = others.submit(append, partition, b"second")
    gate.opened.set()
    assert (first.result(10).base_offset, second.result(10)) == (0, 1)
    assert read(partition, 0) == [(0, b"first"), (1, b"second")]


def test_nobody_waits_while_the_start_is_synced(
    partition: Partition, gate: Gate, others: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        append(partition, b"%d" % n * 50)
    monkeypatch.setattr(Published, "begin", gate.after(Published.begin))
    slow = others.submit(partition.forget_before, 2)
    assert gate.reached.wait(10)

    def go_on() -> None:
        assert append(partition, b"3") == 3
        assert [offset for offset, _ in read(partition, 0)] == [0, 1, 2, 3]
        partition.watch(lambda: None)

    others.submit(go_on).result(10)
    assert not slow.done()
    gate.opened.set()
    slow.result(10)
    assert partition.start_offset == 2
    assert [offset for offset, _ in read(partition, 2)] == [2, 3]


def test_a_topic_that_is_deleted_meanwhile_leaves_nothing_in_a_new_one(
    tmp_path: Path,
    syncs: Executor,
    gate: Gate,
    others: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "orders"
    partition = Partition(folder, "orders", 0, SMALL, syncs)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "write", gate.after(Segment.write))
        slow = others.submit(partition.append, batch(b"slow"))
        assert gate.reached.wait(10)
    others.submit(partition.abandon).result(10)
    folder.rename(tmp_path / "trash")
    folder.mkdir()
    gate.opened.set()
    with pytest.raises(StorageFailed, match="was deleted"):
        slow.result(10)
    with pytest.raises(StorageFailed, match="was deleted"):
        partition.append(batch(b"more"))
    assert not list(folder.iterdir())
    assert not (tmp_path / "trash" / APPENDED_FILE).exists()
