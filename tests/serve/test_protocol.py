"""How answers are written, and what the server says where no route is asked."""

import http.client
import json
import socket
import threading
from asyncio import selector_events
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI

from penstock.serve import protocol
from penstock.serve.listening import listening
from penstock.serve.refusals import OwnHosts, refuse_in_json
from penstock.testing import wait_until

LARGE = "x" * 3_000_000


class Write(NamedTuple):
    content: bytes
    has_no_delay: bool


class Site:
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = 0

    def web(self, stop: threading.Event) -> FastAPI:
        web = FastAPI()
        web.add_middleware(OwnHosts)
        refuse_in_json(web)

        @web.get("/small")
        def small() -> dict[str, str]:
            return {"says": "hello"}

        @web.get("/large")
        def large() -> dict[str, str]:
            return {"says": LARGE}

        @web.get("/slow")
        def slow() -> None:
            self.asked += 1
            assert self.gate.wait(30)

        @web.get("/broken")
        def broken() -> None:
            raise RuntimeError("this is secret")

        return web


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def place(site: Site) -> Iterator[tuple[str, int]]:
    with listening(site.web, 0) as address:
        found = urlsplit(address)
        assert found.hostname is not None
        assert found.port is not None
        yield found.hostname, found.port


@pytest.fixture
def connection(place: tuple[str, int]) -> Iterator[http.client.HTTPConnection]:
    found = http.client.HTTPConnection(*place, timeout=30)
    yield found
    found.close()


def get(connection: http.client.HTTPConnection, path: str, method: str = "GET") -> tuple[int, Any]:
    connection.request(method, path)
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "application/json"
    return answer.status, json.loads(answer.read())


def told(connection: http.client.HTTPConnection, path: str, method: str = "GET") -> tuple[int, str]:
    """The status and the error, which has a hint beside it and nothing else."""
    status, content = get(connection, path, method)
    assert set(content) == {"error", "hint"}
    return status, content["error"]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    """What is written to the sockets that the server accepted, write by write."""
    found: list[Write] = []
    kind = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    write = kind.write

    def noted(transport: Any, data: bytes) -> None:
        place = transport.get_extra_info("socket")
        option = place.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if transport.get_extra_info("peername"):  # and not the loop's own pipe
            found.append(Write(bytes(data), bool(option)))
        write(transport, data)

    monkeypatch.setattr(kind, "write", noted)
    return found


def test_an_answer_is_one_write_that_waits_for_nobody(
    writes: list[Write], connection: http.client.HTTPConnection
) -> None:
    """On a connection that is kept open, also after the first request."""
    for number in range(1, 4):
        assert get(connection, "/small") == (200, {"says": "hello"})
        assert len(writes) == number
    assert all(each.has_no_delay for each in writes)
    assert all(each.content.endswith(b'{"says":"hello"}') for each in writes)


def test_a_large_answer_is_whole(connection: http.client.HTTPConnection) -> None:
    for _ in range(3):
        assert get(connection, "/large") == (200, {"says": LARGE})


def test_errors_of_no_route(connection: http.client.HTTPConnection) -> None:
    assert told(connection, "/") == (404, "there is nothing at /")
    assert told(connection, "/views/x/y/z") == (404, "there is nothing at /views/x/y/z")
    assert told(connection, "/small", "POST") == (405, "POST is not for /small")
    assert told(connection, "/small", "DELETE") == (405, "DELETE is not for /small")


def test_a_method_that_is_refused_says_which_are_not(
    connection: http.client.HTTPConnection,
) -> None:
    connection.request("PUT", "/small")
    assert connection.getresponse().getheader("allow") == "GET"


def test_what_fails_says_no_more_than_that(
    connection: http.client.HTTPConnection, caplog: pytest.LogCaptureFixture
) -> None:
    assert told(connection, "/broken") == (500, "the answer failed")
    wait_until(lambda: "this is secret" in caplog.text, what="the log to say it")


def test_pages_from_elsewhere(connection: http.client.HTTPConnection) -> None:
    for host in ("evil.example", "localhost:x", "", "localhost.evil.example:80"):
        connection.request("GET", "/small", headers={"host": host})
        answer = connection.getresponse()
        assert answer.status == 400
        assert json.loads(answer.read())["error"] == f"there is no host {host!r} here"


@pytest.mark.parametrize(
    "request_", [b"HELLO\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n"]
)
def test_what_is_no_request(place: tuple[str, int], request_: bytes) -> None:
    with socket.create_connection(place, timeout=30) as plain:
        plain.sendall(request_)
        answer = http.client.HTTPResponse(plain)
        answer.begin()
        assert answer.status == 400
        assert set(json.loads(answer.read())) == {"error", "hint"}


def test_too_many_requests(
    site: Site, place: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_REQUESTS", 3)
    others = [http.client.HTTPConnection(*place, timeout=30) for _ in range(3)]
    for other in others:
        other.request("GET", "/slow")
    wait_until(lambda: site.asked == 3, within=30, what="three requests")
    one_more = http.client.HTTPConnection(*place, timeout=30)
    assert told(one_more, "/small") == (503, "3 requests are being answered already")
    site.gate.set()
    assert [other.getresponse().status for other in others] == [200, 200, 200]
    assert get(one_more, "/small")[0] == 200
    for each in (one_more, *others):
        each.close()


def test_too_many_connections(place: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 2)
    others = [http.client.HTTPConnection(*place, timeout=30) for _ in range(2)]
    for other in others:
        assert get(other, "/small")[0] == 200
    one_more = http.client.HTTPConnection(*place, timeout=30)
    one_more.request("GET", "/small")
    answer = one_more.getresponse()
    assert (answer.status, answer.getheader("connection")) == (503, "close")
    assert json.loads(answer.read())["error"] == "there are more than 2 connections"
    others[0].close()

    def is_let_in() -> bool:
        status, _ = get(one_more, "/small")
        return status == 200

    wait_until(is_let_in, within=30, what="the place of one who has gone")
    for each in (one_more, *others):
        each.close()


def test_two_hundred_readers_are_all_answered(place: tuple[str, int]) -> None:
    readers = [http.client.HTTPConnection(*place, timeout=60) for _ in range(200)]
    for _ in range(2):
        for reader in readers:
            reader.request("GET", "/small")
        assert {reader.getresponse().read() for reader in readers} == {b'{"says":"hello"}'}
    for reader in readers:
        reader.close()
