"""What penstock's clients ask of its servers beyond Kafka's protocol, as bytes.

A request has Kafka's header, then a JSON object with its length before it, then data. The answer is
a JSON object behind the correlation id: what was asked for, or an error by its name in the tree.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

from penstock import errors
from penstock.errors import InvalidInput, LogError, PenstockError
from penstock.log.writer import Expected

API_KEY = 20_000
VERSION = 0
CHUNK_BYTES = 1024 * 1024  # of data in one request

_REQUEST = struct.Struct(
    ">ihhihi"
)  # size, key, version, correlation, no client's name, JSON's size
_ANSWER = struct.Struct(">ii")

Buffer = bytes | bytearray | memoryview


def request(correlation_id: int, question: Mapping[str, Any], data: Buffer = b"") -> list[Buffer]:
    asked = json.dumps(question).encode()
    size = _REQUEST.size - 4 + len(asked) + len(data)
    head = _REQUEST.pack(size, API_KEY, VERSION, correlation_id, -1, len(asked))
    return [head + asked, data]


def read_request(frame: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The question and its data, a view of the frame. Raises InvalidInput."""
    at = _REQUEST.size
    if len(frame) + 4 < at:
        raise InvalidInput("half a request")
    *_, name, size = _REQUEST.unpack_from(b"\0\0\0\0" + bytes(frame[: at - 4]))
    if name != -1 or not 0 <= size <= len(frame) + 4 - at:
        raise InvalidInput("a request whose lengths do not add up")
    try:
        question = json.loads(bytes(frame[at - 4 : at - 4 + size]))
    except ValueError as broken:
        raise InvalidInput(f"a request that is not JSON: {broken}") from None
    if not isinstance(question, dict):
        raise InvalidInput("a request that is not a JSON object")
    return question, frame[at - 4 + size :]


def answer(correlation_id: int, content: Mapping[str, Any]) -> bytes:
    body = json.dumps(content).encode()
    return _ANSWER.pack(4 + len(body), correlation_id) + body


def refusal(error: PenstockError) -> dict[str, Any]:
    return {"error": type(error).__name__, **vars(error)}


def check_answer(content: dict[str, Any]) -> dict[str, Any]:
    """The answer, or the error that it is raised again."""
    if "error" not in content:
        return content
    facts = {name: fact for name, fact in content.items() if name not in ("error", "message")}
    kind = getattr(errors, content["error"], None)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        raise LogError(content["message"], hint=content["hint"])
    raise kind(content["message"], **facts)


def write_expected(expected: Expected | None) -> Any:
    if isinstance(expected, Mapping):
        return {key.decode("latin-1"): offset for key, offset in expected.items()}
    return expected


def read_expected(given: Any) -> Expected | None:
    if isinstance(given, dict):
        return {key.encode("latin-1"): int(offset) for key, offset in given.items()}
    return None if given is None else int(given)
