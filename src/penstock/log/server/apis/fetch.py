"""Fetch: batches go from the file to the socket; a client that is at the end waits for more."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.log.server.broker import Broker, error_code
from penstock.log.server.wire import Writer
from penstock.log.storage.partition import Partition
from penstock.log.storage.segment import Slice
from penstock.log.topics import Topic

FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13

UNKNOWN_TOPIC_OR_PARTITION = 3
KAFKA_STORAGE_ERROR = 56
SESSION_NOT_FOUND = 70
UNKNOWN_TOPIC_ID = 100

# What one answer may carry in all, whatever the client asks for.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
# Below this, copying costs less than a sendfile of its own.
INLINE_BYTES = 64 * 1024

Part = bytes | Slice
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Share:
    """What one partition gives to an answer."""

    index: int
    partition: Partition | None = None
    error: int = 0
    records: Slice | None = None
    inline: bytes = b""  # the records themselves, if they are few


class Fetching:
    """One fetch request, answered at once or when there is enough."""

    def __init__(self, broker: Broker, request: Any, version: int, correlation_id: int) -> None:
        self._broker = broker
        self._request = request
        self._version = version
        self._correlation_id = correlation_id

    def answer(self) -> list[Part] | None:
        """The parts of the answer, or None when it is better to wait."""
        if getattr(self._request, "session_id", 0):
            return self._write([], error=SESSION_NOT_FOUND)
        shares, total, trouble = self._gather()
        enough = total >= self._request.min_bytes or trouble
        return self._write(shares) if enough else None

    async def wait(self) -> list[Part]:
        """The answer once enough can be read, or when the client's patience ends."""
        loop = self._broker.loop
        deadline = loop.time() + self._request.max_wait.total_seconds()
        partitions = {p for _, p, _ in self._wanted() if p is not None}
        while True:
            more = loop.create_future()

            def wake(future: asyncio.Future[None] = more) -> None:
                loop.call_soon_threadsafe(_resolve, future)

            for partition in partitions:
                partition.watch(wake)
            try:
                # Looks again after it began to watch, or an append in between would go unseen.
                parts = self.answer()
                left = deadline - loop.time()
                if parts is not None:
                    return parts
                if left <= 0:
                    return self._write(self._gather()[0])
                await asyncio.wait([more], timeout=left)
            finally:
                for partition in partitions:
                    partition.unwatch(wake)

    def _topic(self, asked: Any) -> Topic | None:
        if self._version >= TOPIC_IDS_FROM:
            return self._broker.topics.by_id(asked.topic_id)
        return self._broker.topics.find(asked.topic)

    def _wanted(self) -> list[tuple[Any, Partition | None, int]]:
        """What is asked for, and the partition or else the error that says it is not there."""
        wanted = []
        for asked in self._request.topics:
            topic = self._topic(asked)
            known = topic.partitions if topic else []
            by_id = topic is None and self._version >= TOPIC_IDS_FROM
            missing = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
            for part in asked.partitions:
                there = 0 <= part.partition < len(known)
                found = (known[part.partition], 0) if there else (None, missing)
                wanted.append((part, *found))
        return wanted

    def _gather(self) -> tuple[list[list[Share]], int, bool]:
        """The shares by topic, their bytes, and whether any is an error."""
        budget = min(self._request.max_bytes, MAX_ANSWER_BYTES)
        total, trouble = 0, False
        wanted = iter(self._wanted())
        topics = []
        for asked in self._request.topics:
            shares = []
            for _ in asked.partitions:
                part, partition, error = next(wanted)
                share = Share(part.partition, partition, error)
                if partition is not None:
                    self._fill(share, part, partition, budget - total, first=total == 0)
                total += share.records.size if share.records else 0
                trouble = trouble or share.error != 0
                shares.append(share)
            topics.append(shares)
        return topics, total, trouble

    def _fill(
        self, share: Share, part: Any, partition: Partition, room: int, *, first: bool
    ) -> None:
        try:
            partition.check_offset(part.fetch_offset)
            if room > 0 or first:
                found = partition.slice(part.fetch_offset, min(part.partition_max_bytes, room))
                # One batch always goes through, or a consumer with small limits would be stuck.
                share.records = found if found and (first or found.size <= room) else None
                if share.records and share.records.size <= INLINE_BYTES:
                    share.inline = share.records.read()
        except PenstockError as error:
            share.error, share.records = error_code(error), None
            self._broker.counts[f"fetch: {type(error).__name__}"] += 1
        except OSError as error:
            share.error, share.records = KAFKA_STORAGE_ERROR, None
            self._broker.counts["fetch: disk error"] += 1
            log.error("%s/%s cannot be read: %s", partition.topic, partition.index, error)

    def _write(self, topics: list[list[Share]], error: int = 0) -> list[Part]:
        version, flexible = self._version, self._version >= FLEXIBLE_FROM
        out = Writer(self._correlation_id, flexible=flexible)
        slices: list[tuple[int, Slice]] = []
        out.int32(0)  # not throttled
        if version >= 7:
            out.int16(error)
            out.int32(0)  # no session: the client names its partitions each time
        out.array(len(topics))
        for asked, shares in zip(self._request.topics, topics, strict=False):
            if version >= TOPIC_IDS_FROM:
                out.out += asked.topic_id.bytes if asked.topic_id else bytes(16)
            else:
                out.string(asked.topic.encode())
            out.array(len(shares))
            for share in shares:
                self._write_share(out, share, slices)
            out.tags()
        out.tags()
        return _interleave(out, slices)

    def _write_share(self, out: Writer, share: Share, slices: list[tuple[int, Slice]]) -> None:
        partition, records = None if share.error else share.partition, share.records
        end = partition.end_offset if partition else -1
        out.int32(share.index)
        out.int16(share.error)
        out.int64(end)
        out.int64(end)  # without transactions, all that is durable is stable
        if self._version >= 5:
            out.int64(partition.start_offset if partition else -1)
        out.array(-1)  # aborted transactions
        if self._version >= 11:
            out.int32(-1)  # no better replica to read from
        out.blob(records.size if records else 0)
        if records and not share.inline:
            slices.append((len(out.out), records))
        out.out += share.inline
        out.tags()


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _interleave(out: Writer, slices: list[tuple[int, Slice]]) -> list[Part]:
    frame = out.finish(elsewhere=sum(piece.size for _, piece in slices))
    parts: list[Part] = []
    at = 0
    for position, piece in slices:
        parts += frame[at:position], piece
        at = position
    return [*parts, frame[at:]]
