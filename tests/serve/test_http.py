"""Views over HTTP, by a client that knows nothing of penstock."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from fastapi import FastAPI

from penstock.errors import ViewBehind
from penstock.serve.http import web_app
from penstock.serve.listening import listening
from tests.serve.scene import Scene

ROWS = {f"C{n:02}": {"total": n / 2, "orders": n} for n in range(30)}


class Client:
    def __init__(self, scene: Scene, address: str, waited: list[Any]) -> None:
        self.scene = scene
        self.waited = waited
        self.place = urlsplit(address)

    def connect(self) -> http.client.HTTPConnection:
        assert self.place.hostname is not None
        return http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=30)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        connection = self.connect()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            is_json = (answer.getheader("content-type") or "").startswith("application/json")
            return answer.status, json.loads(content) if is_json else content
        finally:
            connection.close()

    def countries(self, path: str) -> list[str]:
        status, content = self.get(path)
        assert status == 200, content
        return [row["country"] for row in content["rows"]]

    @contextmanager
    def changes(self, path: str = "/views/revenue/changes", **headers: str) -> Iterator["Events"]:
        connection = self.connect()
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        events = Events(answer)
        assert events.line() == ": connected"
        try:
            yield events
        finally:
            answer.close()
            connection.close()


class Events:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer

    def line(self) -> str:
        return self._answer.readline().decode().rstrip()

    def next(self) -> tuple[str, str, Any]:
        """The id, the kind and the content of the next event."""
        fields: dict[str, str] = {}
        while line := self.line() or not fields:
            if isinstance(line, str) and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
        return fields["id"], fields["event"], json.loads(fields["data"])


@pytest.fixture
def client(scene: Scene) -> Iterator[Client]:
    scene.commit(0, ROWS)
    scene.project(versions_ms=60_000)
    waited: list[Any] = []

    def wait(view: str, position: str, timeout: str) -> None:
        waited.append((view, position, timeout))
        if position == "orders/0@99":
            raise ViewBehind("it has not been seen", hint="wait longer")

    def make(stop: threading.Event) -> Any:
        return web_app(
            "shop",
            scene.path,
            str(scene.folder),
            wait=wait,
            batch_at=lambda reader, kept, when: reader.batch_at(kept, int(when)),
            stop=stop,
        )

    with listening(make, 0) as address:
        yield Client(scene, address, waited)


def test_which_views_there_are(client: Client) -> None:
    status, (view,) = client.get("/views")
    assert status == 200
    assert (view["name"], view["key"], view["batch"]) == ("revenue", ["country"], 0)
    assert view["columns"][1] == {"name": "total", "type": "double"}


def test_rows_by_pages(client: Client) -> None:
    found: list[str] = []
    after = ""
    for _ in range(4):
        status, page = client.get(f"/views/revenue?limit=8{after}")
        assert status == 200
        found += [row["country"] for row in page["rows"]]
        # What comes or goes between two pages changes nothing for what lies after.
        client.scene.commit(client.scene.batches.committed + 1, {"B": {}, found[0]: None})
        client.scene.project(versions_ms=60_000)
        after = f"&after={page['next']}"
    assert page["next"] is None
    assert found == sorted(ROWS)


def test_filters(client: Client) -> None:
    assert client.countries("/views/revenue?country=C07") == ["C07"]
    assert client.countries("/views/revenue?country.eq=C07&orders=8") == []
    assert client.countries("/views/revenue?total.gte=1.5&total.lt=2.5") == ["C03", "C04"]
    assert client.countries("/views/revenue?orders.gt=27&orders.lte=28") == ["C28"]
    assert len(client.countries("/views/revenue?limit=10000")) == 30


def test_reading_ones_own_write(client: Client) -> None:
    assert client.countries("/views/revenue?country=C07&position=orders/0@5") == ["C07"]
    assert client.waited == [("revenue", "orders/0@5", "10s")]
    status, content = client.get("/views/revenue?position=orders/0@99&timeout=1s")
    assert (status, content["error"]) == (504, "it has not been seen")


def test_as_it_was(client: Client) -> None:
    assert client.countries("/views/revenue?as_of=0") == []
    assert len(client.countries("/views/revenue?as_of=9999999999999")) == 30


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/views/revenu", 404, "no view 'revenu'"),
        ("/views/revenue?land=NL", 400, "no column 'land'"),
        ("/views/revenue?total.like=1", 400, "no comparison 'like'"),
        ("/views/revenue?total=many", 400, "'many' is not a value"),
        ("/views/revenue?limit=10001", 400, "limit: Input should be less than"),
        ("/views/revenue?limit=0", 400, "limit: Input should be greater"),
        ("/views/revenue?after=x", 400, "no place between two pages"),
        ("/views/revenue?position=orders/0@1&timeout=2m", 400, "nobody waits for 2m"),
        ("/views/revenue/changes?start=never", 400, "no start 'never'"),
        ("/views/revenu/changes", 404, "no view 'revenu'"),
        (f"/views/{quote('x; drop table')}", 404, "no view 'x; drop table'"),
    ],
)
def test_what_is_refused(client: Client, path: str, status: int, told: str) -> None:
    found, content = client.get(path)
    assert found == status
    assert told in content["error"]


def test_pages_from_elsewhere_and_endless_addresses(client: Client) -> None:
    assert client.get("/views", host="evil.example")[0] == 400
    assert client.get(f"/views/revenue?country={'x' * 20_000}")[0] == 400


def test_changes_as_they_come(client: Client) -> None:
    with client.changes() as events:
        client.scene.commit(1, {"C00": {"total": 9.0, "orders": 1}})
        client.scene.project(versions_ms=60_000)
        first, *told = events.next()
        assert told == ["upsert", {"country": "C00", "total": 9.0, "orders": 1}]
    client.scene.publish(2, {"C00": None})
    client.scene.project(versions_ms=60_000)
    with client.changes(**{"Last-Event-ID": first}) as events:
        client.scene.commit(2)  # what is not in the table is not told
        client.scene.project(versions_ms=60_000)
        second, *told = events.next()
        assert told == ["delete", {"country": "C00"}]
    with client.changes("/views/revenue/changes?start=beginning") as events:
        found = [events.next()[2]["country"] for _ in range(32)]
    assert sorted(found) == sorted([*ROWS, "C00", "C00"])
    assert first != second


def test_subscribers_are_told_of_a_rebuild(client: Client) -> None:
    with client.changes() as events:
        client.scene.log.delete("revenue")
        again = Scene(client.scene.log, client.scene.folder)
        again.commit(0, {"NL": {"total": 1.0}})
        again.project(versions_ms=60_000)
        assert events.next()[1:] == ("rebuilt", {"view": "revenue"})
        again.commit(1, {"NO": {"total": 1.0}})
        again.project(versions_ms=60_000)
        while (event := events.next())[2]["country"] != "NO":
            assert event[2]["country"] == "NL"


def test_a_port_that_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with listening(lambda stop: FastAPI(), port) as address:
            assert address != f"http://127.0.0.1:{port}"
    assert f"port {port} is taken" in caplog.text
