"""What the storage tests share: batches, appending and reading, syncs held back."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from penstock.events.batch import decode, encode
from penstock.events.record import Record
from penstock.log.storage.partition import Partition


class HeldExecutor(Executor):
    """Keeps what it is given until `run`."""

    def __init__(self) -> None:
        self.held: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.held.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        held, self.held = self.held, []
        for work in held:
            work()


@pytest.fixture
def held() -> HeldExecutor:
    return HeldExecutor()


@pytest.fixture
def syncs() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def batch(*values: bytes | int, **options: Any) -> memoryview:
    """A batch of these values; a number is a record with that timestamp and itself as value."""
    records = [
        Record(value=str(v).encode(), timestamp=v)
        if isinstance(v, int)
        else Record(value=v, timestamp=1)
        for v in values
    ]
    return memoryview(encode(records, **options))


def append(partition: Partition, *values: bytes | int, **options: Any) -> int:
    """Appends and waits until it is durable; returns the first offset."""
    appended = partition.append(batch(*values, **options))
    durable: Future[None] = Future()
    partition.when_durable(
        appended.next_offset,
        lambda error: durable.set_exception(error) if error else durable.set_result(None),
    )
    durable.result(10)
    return appended.base_offset


def read(partition: Partition, offset: int, max_bytes: int = 1000) -> list[tuple[int, bytes]]:
    """Every record from `offset` to the end."""
    found = []
    while (piece := partition.slice(offset, max_bytes)) is not None:
        for record in decode(memoryview(piece.read())):
            at = record.position.offset
            if at >= offset:
                found.append((at, record.value or b""))
        offset = found[-1][0] + 1
    return found
