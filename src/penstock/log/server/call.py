"""One request on its way through a handler, and the table of handlers.

A handler is a plain function of a call. It returns the response, or an awaitable of it when it must
wait (for a rebalance, for the disk). Produce and Fetch have paths of their own, past the handlers.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.log.server.codec import Codec

if TYPE_CHECKING:
    from penstock.log.server.broker import Broker

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18

Handler = Callable[["Call"], Any | Awaitable[Any]]


@dataclass(slots=True)
class Call:
    broker: "Broker"
    codec: Codec
    version: int
    client_id: str
    client_host: str
    request: Any

    def entity(self, part: str, /, **values: Any) -> Any:
        return self.codec.entity(part, **values)

    def response(self, **values: Any) -> Any:
        return self.codec.entity("", **values)


class Api(NamedTuple):
    key: int
    schema: str
    oldest: int
    newest: int
    handler: Handler


def _past_the_handlers(call: Call) -> Any:
    raise AssertionError("Produce and Fetch are answered by their own modules")


# Newer versions of Produce belong to the second form of transactions.
APIS: dict[int, Api] = {
    PRODUCE: Api(PRODUCE, "produce", 3, 11, _past_the_handlers),
    FETCH: Api(FETCH, "fetch", 4, 16, _past_the_handlers),
}


def api(key: int, schema: str, oldest: int, newest: int) -> Callable[[Handler], Handler]:
    """Enters a handler in the table, under its key and kio's name for its schema."""

    def enter(handler: Handler) -> Handler:
        APIS[key] = Api(key, schema, oldest, newest, handler)
        return handler

    return enter
