"""What the tasks of a batch send each other, and at last to the driver.

A message is addressed to an operator in one bucket, or to the driver. What one task sends keeps its
order: a message says from which stage and task it came, and as the how many-th.
"""

import json
import struct
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.streams.spark.packing import batch_id

MESSAGES = pa.schema(
    {
        "_bucket": pa.int32(),
        "_target": pa.int32(),
        "_order": pa.int64(),
        "_payload": pa.binary(),
        "_file": pa.string(),
    }
)
DRIVER = -1  # the target of what the driver is told
_INLINE = 256 * 1024
# What the driver is told in more bytes comes to it in pieces, of which the second waits for the
# first to be acknowledged: 40 ms.
_LAST_INLINE = 4 * 1024
_FRAME = struct.Struct("<qii")
_STAGE_BITS, _TASK_BITS = 48, 24


class Message(NamedTuple):
    bucket: int
    target: int
    order: int
    payload: bytes | pa.Buffer | pa.RecordBatch | None
    file: str | None


class Told(NamedTuple):
    """What a task told the driver: facts that JSON can hold, and bytes."""

    order: int
    facts: dict[str, Any]
    content: bytes


class Outbox:
    """The messages of one task. `folder` is where large contents for the driver are written on a
    single host, None where they have to travel inline. What `stays` in the task needs no packing:
    rows are sent as they are."""

    def __init__(
        self, stage: int, task: int, buckets: int, folder: str | None, *, stays: bool = False
    ) -> None:
        self.stays = stays
        self._next = (stage << _STAGE_BITS) | (task << _TASK_BITS)
        self._home = task % buckets
        self._folder = folder
        self.messages: list[Message] = []

    def pass_on(self, message: Message) -> None:
        self.messages.append(message)

    def send(
        self,
        bucket: int,
        target: int,
        payload: bytes | pa.Buffer | pa.RecordBatch | None,
        file: str | None,
    ) -> None:
        self.messages.append(Message(bucket, target, self._next, payload, file))
        self._next += 1

    def tell(self, facts: dict[str, Any], content: bytes = b"") -> None:
        """Tells the driver."""
        if self._folder is not None and len(content) > _INLINE:
            facts, content = {**facts, "file": _filed(self._folder, content)}, b""
        self.send(self._home, DRIVER, _frame(self._next, facts, content), None)

    def batch(self) -> pa.RecordBatch:
        return _batch(self.messages)

    def left_over(self) -> pa.RecordBatch:
        """What is for others than the driver."""
        return _batch([each for each in self.messages if each.target != DRIVER])

    def last_word(self) -> pa.RecordBatch:
        """All that is for the driver as one row, which is cheap to collect."""
        frames = [bytes(each.payload or b"") for each in self.messages if each.target == DRIVER]
        content = b"".join(frames)
        if self._folder is not None and len(content) > _LAST_INLINE:
            content = _frame(0, {"frames": _filed(self._folder, content)}, b"")
        return _batch([Message(0, DRIVER, 0, content, None)])


def _frame(order: int, facts: dict[str, Any], content: bytes) -> bytes:
    header = json.dumps(facts).encode()
    return b"".join((_FRAME.pack(order, len(header), len(content)), header, content))


def _filed(folder: str, content: bytes) -> str:
    """The path of a file with this content, which the driver reads and removes."""
    home = Path(folder) / batch_id()
    home.mkdir(parents=True, exist_ok=True)
    path = home / uuid.uuid4().hex
    path.write_bytes(content)
    return str(path)


def _taken(path: str) -> bytes:
    content = Path(path).read_bytes()
    Path(path).unlink()
    return content


def _batch(messages: list[Message]) -> pa.RecordBatch:
    plain = [
        each._replace(payload=each.payload.to_pybytes())
        if isinstance(each.payload, pa.Buffer)
        else each
        for each in messages
    ]
    columns = zip(*plain, strict=True) if plain else [[]] * len(MESSAGES)
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, MESSAGES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)


def read_messages(batches: Iterable[pa.RecordBatch]) -> list[Message]:
    """In the order in which they were sent."""
    found = []
    for batch in batches:
        buckets, targets, orders, payloads, files = batch.columns
        for number in range(batch.num_rows):
            payload, file = payloads[number], files[number]
            found.append(
                Message(
                    buckets[number].as_py(),
                    targets[number].as_py(),
                    orders[number].as_py(),
                    payload.as_buffer() if payload.is_valid else None,
                    file.as_py(),
                )
            )
    return sorted(found, key=lambda message: message.order)


def rows_of(message: Message) -> Iterator[pa.RecordBatch]:
    if isinstance(message.payload, pa.RecordBatch):
        yield message.payload
    elif message.file is not None:
        yield from pa.ipc.open_stream(pa.memory_map(message.file))
    elif message.payload is not None:
        yield from pa.ipc.open_stream(message.payload)


def read_told(payload: bytes) -> Iterator[Told]:
    at = 0
    while at < len(payload):
        order, header, size = _FRAME.unpack_from(payload, at)
        at += _FRAME.size
        facts = json.loads(payload[at : at + header])
        at += header
        content = payload[at : at + size]
        at += size
        if frames := facts.get("frames"):
            yield from read_told(_taken(frames))
            continue
        if file := facts.pop("file", None):
            content = _taken(file)
        yield Told(order, facts, content)
