"""A client without a mind of its own: it sends the request it is given and returns the answer."""

import dataclasses
import importlib
import socket
import typing
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from functools import cache
from io import BytesIO
from types import TracebackType
from typing import Any, Self

from kio.serial import entity_reader, entity_writer

from penstock.events.batch import encode
from penstock.events.record import Record

MAX_BYTES = 50_000_000


class PlainClient:
    """Requests are written, and answers read, by kio: nothing here is the server's own code.

    A request is given as plain values for all its versions at once: `fill` takes those that a
    version knows.
    """

    def __init__(self, address: str, *, receive_buffer: int = 0) -> None:
        """`receive_buffer` bounds what the system takes in while nobody reads, in bytes."""
        host, _, port = address.rpartition(":")
        self._socket = socket.socket()
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(40)
        self._socket.connect((host, int(port)))
        self._sent = 0
        self._asked: dict[int, type[Any]] = {}

    def send(self, schema: str, version: int, /, **values: Any) -> int:
        """Sends without waiting; returns the number by which the answer can be known."""
        self.send_bytes(self.frame(schema, version, **values))
        return self._sent

    def frame(self, schema: str, version: int, /, **values: Any) -> bytes:
        """The bytes of a request, whose answer may be received once they have been sent."""
        request, response = _kinds(schema, version)
        self._sent += 1
        out = BytesIO()
        header = {
            "request_api_key": request.__api_key__,
            "request_api_version": version,
            "correlation_id": self._sent,
            "client_id": "plain",
        }
        entity_writer(request.__header_schema__)(out, fill(request.__header_schema__, header))
        entity_writer(request)(out, fill(request, values))
        self._asked[self._sent] = response
        return len(out.getbuffer()).to_bytes(4, "big") + out.getvalue()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> tuple[int, Any]:
        """The next answer and the number of its request. Raises ConnectionError at the end."""
        frame = memoryview(self.receive_bytes(int.from_bytes(self.receive_bytes(4), "big")))
        number = int.from_bytes(frame[:4], "big")
        response = self._asked.pop(number)
        # The answer about versions never has the flexible header.
        flexible = response.__flexible__ and "api_versions" not in response.__module__
        answer, size = entity_reader(response)(frame, 5 if flexible else 4)
        assert size == len(frame) - (5 if flexible else 4), "bytes are left over after the answer"
        return number, answer

    def await_answer(self) -> None:
        """Waits for the first byte of an answer, and leaves it where it is."""
        self._socket.recv(1, socket.MSG_PEEK)

    def receive_bytes(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return bytes(data)

    def ask(self, schema: str, version: int, /, **values: Any) -> Any:
        number = self.send(schema, version, **values)
        answered, answer = self.receive()
        assert answered == number
        return answer

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # The requests that most tests need

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> Any:
        """Settings with underscores for dots."""
        configs = [
            {"name": setting.replace("_", "."), "value": str(value)}
            for setting, value in settings.items()
        ]
        made = self.ask("create_topics", 7, **creation(name, partitions, configs=configs))
        assert made.topics[0].error_code == 0, made.topics[0].error_message
        return made.topics[0].topic_id

    def produce(
        self,
        topic: str,
        records: bytes | None,
        partition: int = 0,
        *,
        version: int = 11,
        acks: int = -1,
    ) -> Any:
        """Sends batches as they are; returns the partition's part of the answer."""
        answer = self.ask("produce", version, **production(topic, records, partition, acks=acks))
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic_id: Any, offset: int = 0, partition: int = 0, **values: Any) -> Any:
        """The partition's part of the answer; by topic id, so from version 13 on."""
        answer = self.ask("fetch", 16, **fetching({topic_id: {partition: offset}}, **values))
        return answer.responses[0].partitions[0]


def creation(name: str, partitions: int = 1, **values: Any) -> dict[str, Any]:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    return {"topics": [topic | values], "timeout": timedelta(seconds=30)}


def production(
    topic: str, records: bytes | None, partition: int = 0, *, acks: int = -1
) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timedelta(seconds=30),
        "topic_data": [
            {"name": topic, "partition_data": [{"index": partition, "records": records}]}
        ],
    }


def fetching(
    wanted: Mapping[Any, Mapping[int, int]],
    *,
    min_bytes: int = 1,
    max_bytes: int = MAX_BYTES,
    partition_max_bytes: int = MAX_BYTES,
    max_wait: float = 0.0,
    **values: Any,
) -> dict[str, Any]:
    """A fetch of `{topic: {partition: offset}}`, by name or by id; `max_wait` in seconds."""
    return {
        "replica_id": -1,
        "replica_state": {},
        "max_wait": timedelta(seconds=max_wait),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": topic,
                "topic_id": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": partition_max_bytes,
                    }
                    for partition, offset in partitions.items()
                ],
            }
            for topic, partitions in wanted.items()
        ],
        "forgotten_topics_data": (),
        "rack_id": "",
    } | values


def batch(*values: bytes, producer: tuple[int, int, int] = (-1, -1, -1), codec: int = 0) -> bytes:
    """One batch of these values; `producer` is id, epoch and first sequence."""
    return encode([Record(value=value) for value in values], producer=producer, codec=codec)


# Building and taking apart what kio knows by types


@cache
def _kinds(schema: str, version: int) -> tuple[type[Any], type[Any]]:
    title = schema.title().replace("_", "")
    module = f"kio.schema.{schema}.v{version}"
    request = importlib.import_module(f"{module}.request")
    response = importlib.import_module(f"{module}.response")
    return getattr(request, f"{title}Request"), getattr(response, f"{title}Response")


def _fields(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def fill(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """The entity of this kind, from the values that it knows; nested ones come as mappings."""
    known = {name: hint for name, hint in _fields(kind).items() if name in values}
    return kind(**{name: _value(hint, values[name]) for name, hint in known.items()})


def _value(hint: Any, value: Any) -> Any:
    choices = typing.get_args(hint)
    if isinstance(value, Mapping):
        entity = next(each for each in (hint, *choices) if dataclasses.is_dataclass(each))
        return fill(typing.cast(type[Any], entity), value)
    if isinstance(value, list | tuple):
        if typing.get_origin(hint) is not tuple:  # optional
            choices = typing.get_args(choices[0])
        return tuple(_value(choices[0], each) for each in value)
    return value


def plain(answer: Any) -> Any:
    """An answer as mappings, lists and numbers, to be compared."""
    if dataclasses.is_dataclass(answer):
        return {name: plain(getattr(answer, name)) for name in _fields(type(answer))}
    if isinstance(answer, dict):
        return {name: plain(part) for name, part in answer.items()}
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    return answer.value if isinstance(answer, Enum) else answer
