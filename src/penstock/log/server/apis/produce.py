"""Produce: the one request that is read by hand, because every record passes through it.

The batches are written straight from the receive buffer; the answer waits for the sync.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import CorruptBatch, PenstockError
from penstock.events.batch import HEADER_BYTES, TRANSACTIONAL, crc_fits, read_header
from penstock.log.server.broker import Broker, error_code
from penstock.log.server.wire import Reader, Writer

FLEXIBLE_FROM = 9
INVALID_REQUIRED_ACKS = 21
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
INVALID_RECORD = 87


@dataclass(slots=True)
class Outcome:
    index: int
    error: int = 0
    message: str = ""
    base_offset: int = -1
    append_time: int = -1
    start_offset: int = -1


def _fault(records: memoryview) -> tuple[int, str]:
    """What Kafka asks of a batch before it looks at its checksum, and which error it gives."""
    if len(records) < HEADER_BYTES:
        return INVALID_RECORD, "no batch of records"
    header = read_header(records)
    if header.size != len(records):
        return INVALID_RECORD, "a partition takes one whole batch at a time"
    if header.attributes & TRANSACTIONAL:
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this log has no transactions yet"
    if header.producer_id >= 0 and header.base_sequence < 0:
        return INVALID_RECORD, f"a sequence of {header.base_sequence}"
    return 0, ""


class Production:
    """One produce request from its bytes to its answer."""

    def __init__(
        self,
        broker: Broker,
        frame: memoryview,
        version: int,
        correlation_id: int,
        send: Callable[[bytes | None], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """`send` gets the answer, on the loop's thread; None when an unacknowledged one failed.
        `fail` hears why there is no answer."""
        self._broker = broker
        self._version = version
        self._correlation_id = correlation_id
        self._send = send
        self._fail = fail
        self._topics: list[tuple[bytes, list[Outcome]]] = []
        self._waiting = 1  # this constructor, so that no answer goes before all is read
        self._flexible = version >= FLEXIBLE_FROM
        reader = Reader(frame, 8, flexible=self._flexible)
        reader.legacy_string()  # the client's name
        reader.tags()
        reader.string()  # the transactional id
        self._acks = reader.int16()
        reader.int32()  # the client's time limit; the disk answers in any case
        for _ in range(reader.array()):
            name = reader.string()
            outcomes: list[Outcome] = []
            self._topics.append((name, outcomes))
            for _ in range(reader.array()):
                index, records = reader.int32(), reader.blob()
                outcomes.append(self._append(name, index, records))
                reader.tags()
            reader.tags()
        self._one_less()

    def _append(self, name: bytes, index: int, records: memoryview) -> Outcome:
        outcome = Outcome(index)
        if self._acks not in (-1, 0, 1):
            outcome.error = INVALID_REQUIRED_ACKS
            return outcome
        outcome.error, outcome.message = _fault(records)
        if outcome.error:
            self._broker.counts["produce: malformed"] += 1
            return outcome
        try:
            partition = self._broker.topics.get(name.decode(errors="replace")).partition(index)
            appended = partition.append(records)
        except CorruptBatch as error:
            self._refuse(outcome, error)
            if crc_fits(records, read_header(records)):
                outcome.error = INVALID_RECORD  # as it was meant, so not worth another attempt
            return outcome
        except PenstockError as error:
            self._refuse(outcome, error)
            return outcome
        outcome.base_offset, until, outcome.append_time, _ = appended
        outcome.start_offset = partition.start_offset
        if partition.end_offset < until:
            self._waiting += 1
            partition.when_durable(until, lambda error: self._synced(outcome, error))
        return outcome

    def _synced(self, outcome: Outcome, error: Exception | None) -> None:
        """On the thread that synced."""
        if error is not None:
            self._refuse(outcome, error)
        self._broker.loop.call_soon_threadsafe(self._one_less)

    def _refuse(self, outcome: Outcome, error: Exception) -> None:
        outcome.error, outcome.base_offset = error_code(error), -1
        outcome.message = str(error)
        self._broker.counts[f"produce: {type(error).__name__}"] += 1

    def _one_less(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        try:
            self._send(self._content())
        except Exception as error:  # after a sync, nobody else would hear of it
            self._fail(error)

    def _content(self) -> bytes | None:
        if self._acks != 0:
            return self._answer()
        failed = any(o.error for _, outcomes in self._topics for o in outcomes)
        return None if failed else b""

    def _answer(self) -> bytes:
        version, out = self._version, Writer(self._correlation_id, flexible=self._flexible)
        out.array(len(self._topics))
        for name, outcomes in self._topics:
            out.string(name)
            out.array(len(outcomes))
            for outcome in outcomes:
                out.int32(outcome.index)
                out.int16(outcome.error)
                out.int64(outcome.base_offset)
                out.int64(outcome.append_time)
                if version >= 5:
                    out.int64(outcome.start_offset)
                if version >= 8:
                    out.array(0)  # single records at fault
                    out.string(outcome.message.encode() or None)
                out.tags()
            out.tags()
        out.int32(0)  # not throttled
        out.tags()
        return out.finish()
