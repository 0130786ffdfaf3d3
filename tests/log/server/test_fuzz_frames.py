"""Real requests with any bytes changed: answered or turned away, never an error in the server."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.server.call import APIS
from penstock.log.server.codec import codec
from penstock.log.server.connection import MAX_IN_A_TURN, Connection
from tests.log.server.plain_client import PlainClient
from tests.log.server.scenes import SCENES
from tests.log.server.served import Served

T = TypeVar("T")

INTERNAL = "connection: internal error"
NUMBERS = [
    struct.pack(form, number)
    for form, bits in ((">h", 15), (">i", 31), (">q", 63))
    for number in (-1, -2, 0, 1, 2**bits - 1, -(2**bits))
]
LENGTHS = [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\xff\xff\x7f", b"\xff" * 6, b"\0"]


class Recorder(PlainClient):
    """Keeps the frames that it sends."""

    frames: list[bytes]

    def send_bytes(self, data: bytes) -> None:
        self.frames.append(data)
        super().send_bytes(data)


class NoNetwork(asyncio.Transport):
    """The end of a connection that is fed by hand: what is written to it is only counted."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__({"socket": end, "peername": ("127.0.0.1", 1)})
        self.closed = False
        self.answers = 0

    def write(self, data: Any) -> None:
        self.answers += 1

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Errors(logging.Handler):
    """Everything that is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        # The server here has no files: that is the log of another test in this process.
        if "no retention" not in text:
            self.found.append(text)


class Fed:
    """A server that has seen every kind of request, those requests, and what went wrong since."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.errors = Errors()
        logging.getLogger("penstock").addHandler(self.errors)
        self.end, self._far_end = socket.socketpair()
        Recorder.frames = []
        for api in sorted(APIS.values()):
            for version in range(api.oldest, api.newest + 1):
                with Recorder(served.address) as client:
                    SCENES[api.schema](client, version)
        self.frames = list(dict.fromkeys(Recorder.frames))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.served._loop).result(20)

    def feed(self, data: bytes, sizes: list[int]) -> None:
        """Gives the data to a new connection, in pieces of these sizes in turn, and hangs up."""
        self.do(self._feed(data, sizes))

    async def _feed(self, data: bytes, sizes: list[int]) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.errors.found.append(context)
        )
        transport = NoNetwork(self.end)
        connection = Connection(self.served.server)
        connection.connection_made(transport)
        at, turn = 0, 0
        while at < len(data) and not transport.closed:
            piece = data[at : at + sizes[turn % len(sizes)]]
            room = connection.get_buffer(-1)
            piece = piece[: len(room)]
            room[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            at, turn = at + len(piece), turn + 1
            await asyncio.sleep(0)  # a connection that is held up goes on in the next turn
        for _ in range(3):
            await asyncio.sleep(0)
        transport.closed = True
        connection.connection_lost(None)

    def close(self) -> None:
        logging.getLogger("penstock").removeHandler(self.errors)
        self.end.close()
        self._far_end.close()


@pytest.fixture(scope="module")
def fed() -> Iterator[Fed]:
    with Served(None) as served:
        fed = Fed(served)
        yield fed
        fed.close()


Mutation = Callable[[bytearray], None]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """A change behind the frame's size, which is set right afterwards."""
    kind = draw(st.sampled_from(["flip", "number", "length", "cut", "insert", "remove", "repeat"]))
    share = draw(st.floats(0, 1, exclude_max=True))
    bit, length = draw(st.integers(0, 7)), draw(st.integers(1, 40))
    number, size = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(LENGTHS))
    data = draw(st.binary(min_size=1, max_size=40))

    def mutate(content: bytearray) -> None:
        at = int(share * len(content))
        match kind:
            case "flip" if content:
                content[at] ^= 1 << bit
            case "number":
                content[at : at + len(number)] = number
            case "length":
                content[at : at + 1] = size
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = data
            case "remove":
                del content[at : at + length]
            case "repeat":
                content[at:at] = content[at : at + length]

    return mutate


CHUNKS = st.lists(st.sampled_from([1, 3, 7, 50, 10_000, 10**6]), min_size=1, max_size=3)


@settings(max_examples=700)
@given(
    chosen=st.lists(st.integers(0, 10**6), min_size=1, max_size=3),
    changes=st.lists(mutations(), min_size=1, max_size=4),
    keeps_head=st.booleans(),
    chunks=CHUNKS,
)
def test_changed_requests(
    fed: Fed,
    chosen: list[int],
    changes: list[Mutation],
    keeps_head: bool,
    chunks: list[int],
) -> None:
    frames = []
    for number in chosen:
        frame = fed.frames[number % len(fed.frames)]
        head, content = frame[4:12], bytearray(frame[12:])
        if not keeps_head:
            head, content = b"", bytearray(frame[4:])
        for change in changes:
            change(content)
        frames.append(struct.pack(">i", len(head) + len(content)) + head + content)
    expect_no_error(fed, b"".join(frames), chunks)


@settings(max_examples=150)
@given(data=st.binary(max_size=300), chunks=CHUNKS)
def test_anything(fed: Fed, data: bytes, chunks: list[int]) -> None:
    expect_no_error(fed, data, chunks)
    expect_no_error(fed, struct.pack(">i", len(data)) + data, chunks)
    for api in APIS.values():
        head = struct.pack(">hhi", api.key, api.newest, 1)
        expect_no_error(fed, struct.pack(">i", 8 + len(data)) + head + data, chunks)


def expect_no_error(fed: Fed, data: bytes, chunks: list[int]) -> None:
    counts = fed.served.server.broker.counts
    before = counts[INTERNAL]
    fed.errors.found.clear()
    fed.feed(data, chunks)
    assert not fed.errors.found
    assert counts[INTERNAL] == before


def test_every_request_is_read_to_its_end_and_not_changed(fed: Fed) -> None:
    """What is looked at before the codec reads it is what the codec reads."""
    for frame in fed.frames:
        key, version = struct.unpack_from(">hh", frame, 4)
        skim = codec(key, APIS[key].schema, version)._skim
        assert skim(frame[4:]) == frame[4:]


def test_unknown_tags_are_cut_out(fed: Fed) -> None:
    tags = b"\x02\x63\x03abc\x64\0"  # two of them, with three bytes and with none
    for frame in fed.frames:
        key, version = struct.unpack_from(">hh", frame, 4)
        form = codec(key, APIS[key].schema, version)
        name = max(struct.unpack_from(">h", frame, 12)[0], 0)
        if not form.flexible_header or frame[14 + name : 15 + name] != b"\0":
            continue
        plain, tagged = frame[4:-1], frame[4 : 14 + name] + tags + frame[15 + name : -1]
        assert form.read(tagged + tags) == form.read(plain + b"\0")


def test_many_requests_at_once_are_taken_in_turns(fed: Fed) -> None:
    """So that others are served between them."""
    question = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    count = 1_000

    async def answered_in_each_turn() -> list[int]:
        transport = NoNetwork(fed.end)
        connection = Connection(fed.served.server)
        connection.connection_made(transport)
        connection.get_buffer(-1)[: count * len(question)] = question * count
        connection.buffer_updated(count * len(question))
        answered = [transport.answers]
        while transport.answers > sum(answered[:-1]):
            await asyncio.sleep(0)
            answered.append(transport.answers - sum(answered))
        connection.connection_lost(None)
        return answered

    turns = fed.do(answered_in_each_turn())
    assert sum(turns) == count
    assert max(turns) <= MAX_IN_A_TURN
