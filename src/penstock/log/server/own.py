"""penstock's own requests: appends on a condition, writers, append times.

What waits for the disk does so on a thread, so that other clients are served meanwhile.
"""

import asyncio
import mmap
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.errors import InvalidInput, PenstockError, RecordTooLarge
from penstock.log.engine import Engine
from penstock.log.extension import read_expected, refusal
from penstock.log.storage.files import OpenFile, storage_error
from penstock.log.writer import Pen, Piece

MAX_SPOOL_BYTES = 2**31 - 1

Content = dict[str, Any]


class OwnRequests:
    """Of one connection. An append that is large comes in several requests, and waits in a spool.

    The spool has no name and ends with the connection.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._spool: OpenFile | None = None
        self._asked: dict[str, Callable[[Content, memoryview], Content | Awaitable[Content]]] = {
            "stage": self._stage,
            "store": self._store,
            "open_writer": self._open_writer,
            "last_batch": self._last_batch,
            "max_message_bytes": self._max_message_bytes,
            "append_times": self._append_times,
        }

    def answer(self, question: Content, data: memoryview) -> Content | Awaitable[Content]:
        """Raises InvalidInput for what is no question; other errors are in the answer."""
        asked = self._asked.get(str(question.get("ask")))
        if asked is None:
            raise InvalidInput(f"there is no request {question.get('ask')!r}")
        try:
            return asked(question, data)
        except PenstockError as error:
            return refusal(error)
        except (KeyError, TypeError, ValueError, OverflowError) as broken:
            raise InvalidInput(f"not a request: {broken!r}") from broken

    def _stage(self, question: Content, data: memoryview) -> Content:
        spool, self._spool = self._spool, None
        try:
            spool = spool or _new_spool(self._engine.folder)
            position = spool.size()
            if position + len(data) > MAX_SPOOL_BYTES:
                raise RecordTooLarge(
                    f"an append of more than {MAX_SPOOL_BYTES} bytes", hint="append less at a time"
                )
            while data:
                written = os.pwrite(spool.fd, data, position)
                data, position = data[written:], position + written
        except OSError as error:
            raise storage_error(error, "taking in a large append") from error
        self._spool = spool
        return {}

    def _store(self, question: Content, data: memoryview) -> Awaitable[Content]:
        pen = Pen(*question["pen"]) if question.get("pen") else None
        batches: bytearray | memoryview = bytearray(data)
        if self._spool is not None:
            self._stage(question, data)
            spool, self._spool = self._spool, None
            batches = memoryview(mmap.mmap(spool.fd, spool.size(), access=mmap.ACCESS_COPY))
        if len(batches) != int(question["size"]):
            raise InvalidInput(f"{len(batches)} bytes instead of {question['size']}")
        piece = Piece(
            str(question["topic"]),
            int(question["partition"]),
            batches,
            pen,
            int(question["batch"]),
            read_expected(question["expected"]),
        )

        def store() -> Content:
            stored = self._engine.writers.store([piece])[0]
            return {"offsets": [stored.offsets.start, stored.offsets.stop], "new": stored.is_new}

        return _on_a_thread(store)

    def _open_writer(self, question: Content, data: memoryview) -> Awaitable[Content]:
        name = str(question["name"])
        return _on_a_thread(lambda: {"epoch": self._engine.writers.open_writer(name).epoch})

    def _last_batch(self, question: Content, data: memoryview) -> Awaitable[Content]:
        pen, (topic, partition) = Pen(*question["pen"]), _place(question)
        return _on_a_thread(
            lambda: {"batch": self._engine.writers.last_batch(pen, topic, partition)}
        )

    def _max_message_bytes(self, question: Content, data: memoryview) -> Content:
        return {"bytes": self._engine.writers.max_message_bytes(str(question["topic"]))}

    def _append_times(self, question: Content, data: memoryview) -> Content:
        bounds = int(question["start"]), int(question["end"])
        return {"times": self._engine.writers.append_times(*_place(question), *bounds)}


def _new_spool(folder: Path | None) -> OpenFile:
    if folder is None:
        return OpenFile(None)
    path = folder / f"spool-{uuid4()}"
    file = OpenFile(path)
    path.unlink()
    return file


def _place(question: Content) -> tuple[str, int]:
    return str(question["topic"]), int(question["partition"])


async def _on_a_thread(work: Callable[[], Content]) -> Content:
    try:
        return await asyncio.to_thread(work)
    except PenstockError as error:
        return refusal(error)
