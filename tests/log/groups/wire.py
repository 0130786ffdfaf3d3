"""Requests as a client writes them and answers as it reads them, in any version, by kio."""

import asyncio
import importlib
from collections.abc import Awaitable, Mapping
from dataclasses import fields, is_dataclass
from io import BytesIO
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin

from kio.serial import entity_reader, entity_writer

from penstock.log.groups.coordinator import Coordinator
from penstock.log.groups.settings import GroupSettings
from penstock.log.server.apis import groups, offsets
from penstock.log.server.call import APIS, Api, Call
from penstock.log.server.codec import codec
from tests.log.groups.fakes import FakeJournal

MODULES = (groups, offsets)  # importing them enters their handlers
CLIENT = "app"
WITHIN = 5.0
CORRELATION = 7


def api_of(schema: str) -> Api:
    return next(api for api in APIS.values() if api.schema == schema)


def versions(*schemas: str) -> list[tuple[str, int]]:
    """Every version of these that is offered, with its schema's name."""
    apis = [api_of(schema) for schema in schemas]
    return [(a.schema, version) for a in apis for version in range(a.oldest, a.newest + 1)]


def _kind(schema: str, version: int, part: str) -> Any:
    module = importlib.import_module(f"kio.schema.{schema}.v{version}.{part}")
    return getattr(module, schema.title().replace("_", "") + part.title())


def build(kind: Any, values: Mapping[str, Any]) -> Any:
    """An entity from plain values, without those that its version lacks."""
    known = {field.name: field.type for field in fields(kind)}
    return kind(**{name: _convert(known[name], v) for name, v in values.items() if name in known})


def _convert(kind: Any, value: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        kind = get_args(kind)[0]
    if value is None or get_origin(kind) is not tuple:
        return value
    inner = get_args(kind)[0]
    return tuple(build(inner, each) if is_dataclass(inner) else each for each in value)


def write_request(schema: str, version: int, values: Mapping[str, Any]) -> bytes:
    """The frame without its size."""
    kind = _kind(schema, version, "request")
    header = kind.__header_schema__
    head = {
        "request_api_key": kind.__api_key__,
        "request_api_version": version,
        "correlation_id": CORRELATION,
        "client_id": CLIENT,
    }
    out = BytesIO()
    entity_writer(header)(out, build(header, head))
    entity_writer(kind)(out, build(kind, values))
    return out.getvalue()


def read_response(schema: str, version: int, frame: bytes) -> Any:
    """The response in a frame without its size; all of it must be used."""
    kind = _kind(schema, version, "response")
    header, size = entity_reader(kind.__header_schema__)(frame, 0)
    assert header.correlation_id == CORRELATION
    response, rest = entity_reader(kind)(frame, size)
    assert size + rest == len(frame)
    return response


class Wire:
    """The handlers over a coordinator of their own, in a log with topic `t` of two partitions.

    To be made on the event loop.
    """

    def __init__(self, settings: GroupSettings | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.journal = FakeJournal()
        self.groups = Coordinator(
            self.journal,
            schedule=loop.call_later,
            post=loop.call_soon_threadsafe,
            settings=settings,
        )
        topic = SimpleNamespace(name="t", partitions=[object(), object()])
        self.broker: Any = SimpleNamespace(
            groups=self.groups,
            topics=SimpleNamespace(find={"t": topic}.get),
            node_id=1,
            advertised=("127.0.0.1", 9092),
        )

    def start(self, schema: str, version: int, **values: Any) -> Awaitable[Any]:
        """Puts the request to its handler now, as the server does; the answer is to be awaited."""
        api = api_of(schema)
        form = codec(api.key, schema, version)
        client_id, request = form.read(write_request(schema, version, values))
        assert client_id == CLIENT
        result = api.handler(Call(self.broker, form, version, client_id, "127.0.0.1", request))

        async def answer() -> Any:
            response = result
            if isinstance(result, Awaitable):
                response = await asyncio.wait_for(result, WITHIN)
            frame = form.write(CORRELATION, response)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            return read_response(schema, version, frame[4:])

        return answer()

    async def ask(self, schema: str, version: int, **values: Any) -> Any:
        return await self.start(schema, version, **values)
