"""Requests from bytes and responses to bytes, one codec for each API and version, loaded on demand.

A handler writes one response for all versions: `entity` drops the fields that a version lacks.
"""

import importlib
import struct
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from functools import cache
from io import BytesIO
from typing import Any

from kio.serial import entity_reader, entity_writer

from penstock.log.server.skim import skimmer

API_VERSIONS = 18
_CORRELATION = struct.Struct(">ii")
_NO_THROTTLE = timedelta(0)


class Codec:
    def __init__(self, api_key: int, schema: str, version: int) -> None:
        title = schema.title().replace("_", "")
        requests = importlib.import_module(f"kio.schema.{schema}.v{version}.request")
        self._responses = importlib.import_module(f"kio.schema.{schema}.v{version}.response")
        request = getattr(requests, f"{title}Request")
        response = getattr(self._responses, f"{title}Response")
        self._skim = skimmer(request)
        self._read_header = entity_reader(request.__header_schema__)
        self._read = entity_reader(request)
        self._write = entity_writer(response)
        # A client asks for versions before it knows which it shares, so that one answer never
        # has the flexible header.
        self.flexible_header = response.__flexible__ and api_key != API_VERSIONS
        self._title = f"{title}Response"
        self._shapes: dict[str, tuple[Callable[..., Any], frozenset[str]]] = {}

    def read(self, frame: bytes) -> tuple[str | None, Any]:
        """The client's name and the request; raises whatever kio makes of broken bytes."""
        frame = self._skim(frame)
        header, size = self._read_header(frame, 0)
        request, _ = self._read(frame, size)
        return header.client_id, request

    def entity(self, part: str, /, **values: Any) -> Any:
        """The response's part of this name in this version, from the values that it knows.

        An empty name is the response itself.
        """
        shape = self._shapes.get(part)
        if shape is None:
            kind = getattr(self._responses, part or self._title)
            shape = self._shapes[part] = (kind, frozenset(f.name for f in fields(kind)))
        kind, known = shape
        kept = {field: value for field, value in values.items() if field in known}
        if not part and "throttle_time" in known:
            kept.setdefault("throttle_time", _NO_THROTTLE)
        return kind(**kept)

    def write(self, correlation_id: int, response: Any) -> bytes:
        """The whole frame, its size in front."""
        out = BytesIO()
        out.write(b"\0\0\0\0" + correlation_id.to_bytes(4, "big", signed=True))
        if self.flexible_header:
            out.write(b"\0")
        self._write(out, response)
        frame = out.getbuffer()
        _CORRELATION.pack_into(frame, 0, len(frame) - 4, correlation_id)
        return bytes(frame)


@cache
def codec(api_key: int, schema: str, version: int) -> Codec:
    return Codec(api_key, schema, version)
