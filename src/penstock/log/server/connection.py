"""One client: frames in, answers out, in the order of the requests.

Requests are taken up as they arrive, so that the appends of a pipeline share one sync; each holds
a place in the line of answers until its own is ready.
"""

import asyncio
import logging
import mmap
import os
import struct
from collections import deque
from collections.abc import Awaitable
from typing import IO, TYPE_CHECKING, Any, cast

from penstock.clock import monotonic
from penstock.errors import InvalidInput
from penstock.log import extension
from penstock.log.server.apis.fetch import Fetching, Part
from penstock.log.server.apis.produce import Production
from penstock.log.server.apis.versions import unsupported_version
from penstock.log.server.call import API_VERSIONS, APIS, FETCH, PRODUCE, Api, Call
from penstock.log.server.codec import codec
from penstock.log.server.own import OwnRequests
from penstock.log.storage.segment import Slice

if TYPE_CHECKING:
    from penstock.log.server.server import Server

SCRATCH_BYTES = 256 * 1024
KEPT_FRAME_BYTES = 8 * 1024 * 1024
# Of any request but Produce: what is read into objects takes many times its bytes.
MAX_REQUEST_BYTES = 2 * 1024 * 1024
MAX_UNANSWERED = 128
# Taken from one client before the others have their turn.
MAX_IN_A_TURN = 64
WRITE_BUFFER_BYTES = 4 * 1024 * 1024

_HEAD = struct.Struct(">hhi")
log = logging.getLogger(__name__)


class Place:
    """A request's place in the line; `parts` is the answer once it is known."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Part] | None = None


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: "Server") -> None:
        self._server = server
        self._broker = server.broker
        self._transport: asyncio.Transport
        self._peer = ""
        self._partial = b""  # what was not taken: part of a frame, more when it is held up
        self._large: mmap.mmap | None = None  # room for frames that do not; its pages come as used
        self._filled = self._expected = 0
        self._own = OwnRequests(server.engine)
        self._line: deque[Place] = deque()
        self._waits: set[asyncio.Future[Any]] = set()
        self._sending = self._choked = self._held_up = False
        self.has_spoken = False
        self.last_heard = monotonic()

    # The connection's life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._fd = transport.get_extra_info("socket").fileno()
        self._peer = (transport.get_extra_info("peername") or ("",))[0]
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self._server.welcome(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.farewell(self)
        for wait in self._waits:
            wait.cancel()
        self._line.clear()

    def refuse(self, why: str) -> None:
        """Ends the connection; what was wrong is counted, and logged for who looks."""
        self._broker.counts[f"connection: {why}"] += 1
        log.info("closed the connection from %s: %s", self._peer, why)
        self._transport.abort()

    def hang_up(self) -> None:
        self._transport.abort()

    # Frames in

    def get_buffer(self, hint: int) -> memoryview:
        if self._expected:
            assert self._large is not None
            return memoryview(self._large)[self._filled : self._expected]
        scratch, kept = self._server.scratch, len(self._partial)
        scratch[:kept] = self._partial
        return scratch[kept:]

    def buffer_updated(self, count: int) -> None:
        self.last_heard = monotonic()
        if self._expected:
            self._filled += count
            if self._filled == self._expected:
                self._take_large()
        else:
            self._take_small(self._server.scratch[: len(self._partial) + count])
        if not self._takes_more():
            self._hold_up()

    def _hold_up(self) -> None:
        self._held_up = True
        self._transport.pause_reading()

    def _takes_more(self) -> bool:
        """Not while the client leaves answers unread, or there would be ever more of them."""
        return len(self._line) < MAX_UNANSWERED and not self._choked and not self._sending

    def _take_small(self, data: memoryview) -> None:
        at, taken, self._partial = 0, 0, b""
        while len(data) - at >= 4 and self._takes_more():
            if self._transport.is_closing():
                return
            if taken == MAX_IN_A_TURN:
                self._hold_up()
                self._broker.loop.call_soon(self._go_on_reading)
                break
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            if not 8 <= size <= self._server.settings.max_frame_bytes:
                self.refuse("frame size out of bounds")
                return
            if len(data) - at - 4 < size:
                if size + 4 <= SCRATCH_BYTES or len(data) - at < 6:
                    break
                key = int.from_bytes(data[at + 4 : at + 6], "big", signed=True)
                if key != PRODUCE and size > MAX_REQUEST_BYTES:
                    self.refuse("frame size out of bounds")
                else:
                    self._begin_large(size + 4, data[at:])
                return
            self._take(data[at + 4 : at + 4 + size])
            at, taken = at + 4 + size, taken + 1
        self._partial = bytes(data[at:])

    def _go_on_reading(self) -> None:
        """Takes the frames that were left when it was held up, and more once those are gone."""
        self._held_up = False
        self._take_small(memoryview(self._partial))
        if not self._takes_more():
            self._held_up = True
        if not self._held_up:
            self._transport.resume_reading()

    def _begin_large(self, size: int, start: memoryview) -> None:
        if self._large is None or len(self._large) < size:
            self._large = mmap.mmap(-1, size)
        self._large[: len(start)] = start
        self._filled, self._expected = len(start), size

    def _take_large(self) -> None:
        assert self._large is not None
        frame = memoryview(self._large)[4 : self._expected]
        self._filled = self._expected = 0
        self._take(frame)
        if len(self._large) > KEPT_FRAME_BYTES:
            self._large = None

    def _take(self, frame: memoryview) -> None:
        key, version, correlation_id = _HEAD.unpack_from(frame)
        api = APIS.get(key)
        try:
            if (key, version) == (extension.API_KEY, extension.VERSION):
                self._answer_own(frame, correlation_id)
            elif api is None or not api.oldest <= version <= api.newest:
                if key != API_VERSIONS:
                    self.refuse("unknown request" if api is None else "unsupported version")
                    return
                self._answer(self._place(), [unsupported_version(correlation_id)])
            elif key == PRODUCE:
                self._produce(frame, version, correlation_id)
            else:
                self._handle(api, bytes(frame), version, correlation_id)
        except InvalidInput as broken:
            log.debug("malformed request %s v%s: %r", key, version, broken)
            self.refuse("malformed request")
        except Exception:
            log.exception("request %s v%s failed", key, version)
            self.refuse("internal error")
        else:
            self.has_spoken = True

    def _produce(self, frame: memoryview, version: int, correlation_id: int) -> None:
        place = self._place()

        def send(answer: bytes | None) -> None:
            if answer is None:
                self.refuse("unacknowledged produce failed")
            else:
                self._answer(place, [answer])

        Production(self._broker, frame, version, correlation_id, send, self._fail)

    def _answer_own(self, frame: memoryview, correlation_id: int) -> None:
        question, data = extension.read_request(frame)
        content, place = self._own.answer(question, data), self._place()
        if isinstance(content, Awaitable):
            self._await(place, content, lambda found: [extension.answer(correlation_id, found)])
        else:
            self._answer(place, [extension.answer(correlation_id, content)])

    def _handle(self, api: Api, frame: bytes, version: int, correlation_id: int) -> None:
        form = codec(api.key, api.schema, version)
        try:
            client_id, request = form.read(frame)
        except Exception as broken:  # whatever the codec makes of bytes that are no request
            raise InvalidInput(f"not a request: {broken!r}") from broken
        place = self._place()
        if api.key == FETCH:
            fetching = Fetching(self._broker, request, version, correlation_id)
            parts = fetching.answer()
            if parts is not None:
                self._answer(place, parts)
            else:
                self._await(place, fetching.wait(), list)
            return
        call = Call(self._broker, form, version, client_id or "", self._peer, request)
        result = api.handler(call)
        if isinstance(result, Awaitable):
            self._await(place, result, lambda response: [form.write(correlation_id, response)])
        else:
            self._answer(place, [form.write(correlation_id, result)])

    # Answers out

    def _place(self) -> Place:
        place = Place()
        self._line.append(place)
        return place

    def _await(self, place: Place, result: Awaitable[Any], parts: Any) -> None:
        wait = asyncio.ensure_future(result)
        self._waits.add(wait)

        def done(future: asyncio.Future[Any]) -> None:
            self._waits.discard(future)
            if future.cancelled():
                return
            try:
                self._answer(place, parts(future.result()))
            except Exception as error:
                self._fail(error)

        wait.add_done_callback(done)

    def _fail(self, error: Exception) -> None:
        """Hangs up, as a place in the line that is never filled would hold up all answers."""
        log.error("a request of %s failed", self._peer, exc_info=error)
        self.refuse("internal error")

    def _answer(self, place: Place, parts: list[Part]) -> None:
        place.parts = parts
        self._drain()

    def _drain(self) -> None:
        while self._line and not self._sending and not self._choked:
            parts = self._line[0].parts
            if parts is None:
                break
            self._line.popleft()
            self._send(deque(parts))
        if self._held_up and self._takes_more() and len(self._line) <= MAX_UNANSWERED // 2:
            self._broker.loop.call_soon(self._go_on_reading)

    def _send(self, parts: deque[Part]) -> None:
        while parts:
            part = parts.popleft()
            if isinstance(part, Slice):
                rest = self._send_slice(part)
                if rest is not None:
                    parts.appendleft(rest)
                    self._sending = True
                    wait = asyncio.ensure_future(self._send_later(parts))
                    self._waits.add(wait)
                    wait.add_done_callback(self._waits.discard)
                    return
            elif part:
                self._transport.write(part)

    def _send_slice(self, part: Slice) -> Slice | None:
        """Sends what the socket takes at once; returns the rest."""
        if self._transport.get_write_buffer_size() or self._transport.is_closing():
            return part
        file, position, size = part
        try:
            while size:
                sent = os.sendfile(self._fd, file.fd, position, size)
                if not sent:
                    self.refuse("a segment was cut short")
                    return None
                position, size = position + sent, size - sent
        except BlockingIOError:
            return Slice(file, position, size)
        except OSError:
            self._transport.abort()
        return None

    async def _send_later(self, parts: deque[Part]) -> None:
        loop = self._broker.loop
        try:
            for part in parts:
                if isinstance(part, Slice):
                    file = cast(IO[bytes], part.file)  # only its descriptor is asked for
                    sent = await loop.sendfile(self._transport, file, part.position, part.size)
                    if sent != part.size:
                        self.refuse("a segment was cut short")
                        return
                elif part:
                    self._transport.write(part)
        except (OSError, RuntimeError):  # the client went away
            self._transport.abort()
            return
        self._sending = False
        self._drain()

    def pause_writing(self) -> None:
        self._choked = True

    def resume_writing(self) -> None:
        self._choked = False
        self._drain()
