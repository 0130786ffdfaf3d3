"""A connection of its own to a penstock server, for what Kafka's protocol does not have."""

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from penstock.clock import monotonic, sleep
from penstock.errors import LogClosed, LogError, LogUnreachable
from penstock.log.extension import API_KEY, CHUNK_BYTES, check_answer, request, write_expected
from penstock.log.writer import Exact, Pen, Piece, Stored

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)
_OFFERED = struct.Struct(">hhh")
_MAX_ANSWER = 64 * 1024 * 1024
_PAUSE = 0.02  # seconds, before a server that went away is tried again
_RUNNING = "is the log running, and is its address right?"
_NOT_KNOWN = "it is not known whether the records are stored; read, then decide"

Question = tuple[dict[str, Any], bytes | bytearray | memoryview]


class Direct(Exact):
    """Safe to use from several threads, one of which has its turn at a time.

    Whatever can be asked again is, when the connection breaks, until `time_limit` in seconds is
    over, so that a server may be restarted meanwhile.
    """

    def __init__(self, servers: str, time_limit: float) -> None:
        """`servers` are `host:port` with commas between; connects when it is first asked."""
        self._servers = servers.split(",")
        self._limit = time_limit
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._closed = False

    def open_writer(self, name: str) -> Pen:
        return Pen(name, self._ask("open_writer", name=name)["epoch"])

    def last_batch(self, pen: Pen, topic: str, partition: int) -> int:
        answer = self._ask("last_batch", pen=pen, topic=topic, partition=partition)
        return int(answer["batch"])

    def max_message_bytes(self, topic: str) -> int:
        return int(self._ask("max_message_bytes", topic=topic)["bytes"])

    def append_times(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[int, int]]:
        place = {"topic": topic, "partition": partition, "start": start, "end": end}
        return [(offset, at) for offset, at in self._ask("append_times", **place)["times"]]

    def store(self, pieces: Sequence[Piece]) -> list[Stored]:
        questions = [question for piece in pieces for question in _questions(piece)]
        once = any(piece.pen is None for piece in pieces)
        answers = self._ask_all(questions, once=once)
        return [Stored(range(*answer["offsets"]), answer["new"]) for answer in answers if answer]

    def _ask(self, ask: str, **facts: Any) -> dict[str, Any]:
        return self._ask_all([({"ask": ask, **facts}, b"")])[0]

    def _ask_all(
        self, questions: Sequence[Question], *, once: bool = False
    ) -> list[dict[str, Any]]:
        """The answers, or the first error among them, once all are there.

        `once` is for questions that must not be asked again when it is not known what became of
        them.
        """
        deadline = monotonic() + self._limit
        with self._lock:
            while True:
                sent = False
                try:
                    connection = self._connected()
                    sent = True
                    answers = [*self._exchange(connection, questions)]
                    break
                except OSError as broken:
                    self._hang_up()
                    if (once and sent) or monotonic() > deadline:
                        raise LogUnreachable(
                            f"the log at {','.join(self._servers)} does not answer: {broken}",
                            hint=_NOT_KNOWN if once and sent else _RUNNING,
                        ) from broken
                sleep(_PAUSE)
        return [check_answer(answer) for answer in answers]

    def _exchange(
        self, connection: socket.socket, questions: Sequence[Question]
    ) -> Iterator[dict[str, Any]]:
        # All are sent before the first answer is read: the server syncs many partitions at once,
        # and its answers are small.
        for number, (question, data) in enumerate(questions):
            for part in request(number, question, data):
                connection.sendall(part)
        for number, _ in enumerate(questions):
            content = _receive(connection)
            if int.from_bytes(content[:4], "big") != number:
                raise ConnectionError("an answer to another question")
            yield json.loads(content[4:])

    def _connected(self) -> socket.socket:
        if self._closed:
            raise LogClosed("this log has been closed", hint="open it again")
        if self._socket is None:
            self._socket = self._connect()
        return self._socket

    def _connect(self) -> socket.socket:
        failure = OSError("no address")
        for server in self._servers:
            host, _, port = server.rpartition(":")
            try:
                connection = socket.create_connection((host.strip("[]"), int(port)), self._limit)
            except OSError as refused:
                failure = refused
                continue
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(_API_VERSIONS)
                offered = _offered(_receive(connection))
            except OSError:
                connection.close()
                raise
            if API_KEY in offered:
                return connection
            connection.close()
            raise LogError(
                f"the log at {server} is not penstock's, and cannot append on a condition, open "
                "writers or tell append times",
                hint="on Apache Kafka, use transactions, and message.timestamp.type=LogAppendTime",
            )
        raise failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _questions(piece: Piece) -> Iterator[Question]:
    """One question, and before it the data that does not fit it."""
    data = memoryview(piece.batches)
    last = max(len(data) - 1, 0) // CHUNK_BYTES * CHUNK_BYTES
    for at in range(0, last, CHUNK_BYTES):
        yield {"ask": "stage"}, data[at : at + CHUNK_BYTES]
    facts = {
        "ask": "store",
        "topic": piece.topic,
        "partition": piece.partition,
        "size": len(data),
        "pen": piece.pen,
        "batch": piece.batch,
        "expected": write_expected(piece.expected),
    }
    yield facts, data[last:]


def _receive(connection: socket.socket) -> bytes:
    """One frame, without its size."""
    size = int.from_bytes(_exactly(connection, 4), "big")
    if not 4 <= size <= _MAX_ANSWER:
        raise ConnectionError(f"an answer of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        some = connection.recv(min(size - len(content), 65536))
        if not some:
            raise ConnectionError("the connection was closed")
        content += some
    return bytes(content)


def _offered(answer: bytes) -> set[int]:
    """The requests that a server knows, from its answer to ApiVersions."""
    error, count = struct.unpack_from(">hi", answer, 4)
    known = answer[10:]
    if error or len(known) < count * _OFFERED.size:
        return set()
    return {key for key, _, _ in _OFFERED.iter_unpack(known[: count * _OFFERED.size])}
