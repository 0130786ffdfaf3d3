"""HTTP on one connection, as uvicorn has it, but for what it says itself and how it writes.

Head and body of an answer are one write. As two, the second waited for the client to acknowledge
the first, which a client on a connection that is kept open delays by 40 ms.
"""

import asyncio
from typing import Any, cast

import h11
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.serve.refusals import refusal

MAX_CONNECTIONS = 500
MAX_REQUESTS = 300  # under way at once: all subscribers, and 200 who read
_LATER = {"connection": "close", "retry-after": "1"}


class Protocol(H11Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        joined = JoinedWrites(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, joined))

    def handle_events(self) -> None:
        # As uvicorn's own bound, which answers with plain text.
        self.app = self._crowded() or self.config.loaded_app
        super().handle_events()

    def _crowded(self) -> ASGIApp | None:
        if len(self.connections) > MAX_CONNECTIONS:
            said = f"there are more than {MAX_CONNECTIONS} connections"
        elif len(self.tasks) >= MAX_REQUESTS:
            said = f"{MAX_REQUESTS} requests are being answered already"
        else:
            return None
        self.logger.warning("refused a request: %s", said)
        return refusal(503, said, "come back later", _LATER)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is under way already
            return
        answer = refusal(400, "this is no HTTP request, or its head is too long")
        headers = [*answer.raw_headers, (b"connection", b"close")]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class JoinedWrites:
    """A transport that writes at once what it was given in one turn of the event loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        if data:
            if not self._held:
                self._loop.call_soon(self._flush)
            self._held.append(data)

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held:
            self._transport.write(b"".join(held))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
