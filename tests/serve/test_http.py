"""Views over HTTP, by a client that knows nothing of penstock."""

import http.client
import json
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from fastapi import FastAPI

from penstock.errors import ViewBehind
from penstock.serve.http import _parcels, web_app
from penstock.serve.listening import listening
from penstock.serve.subscription import Event, Subscription
from penstock.testing import wait_until
from tests.serve.scene import Scene

ROWS = {f"C{n:02}": {"total": n / 2, "orders": n} for n in range(30)}


class Client:
    def __init__(
        self, scene: Scene, address: str, waited: list[Any], arrived: threading.Event
    ) -> None:
        self.scene = scene
        self.waited = waited
        self.arrived = arrived  # what lets those go on that wait for orders/0@50
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
    arrived = threading.Event()

    def wait(view: str, position: str, timeout: str) -> None:
        waited.append((view, position, timeout))
        if position == "orders/0@50":
            assert arrived.wait(30)
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
        yield Client(scene, address, waited, arrived)


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


def test_those_who_wait_hold_up_nobody_else(client: Client) -> None:
    slow = "/views/revenue?country=C07&position=orders/0@50&timeout=30s"
    with ThreadPoolExecutor(50) as pool:
        try:
            answers = [pool.submit(client.get, slow) for _ in range(50)]
            wait_until(lambda: len(client.waited) >= 16, within=30, what="those who wait")
            assert client.countries("/views/revenue?country=C08") == ["C08"]
            status, content = client.get("/views/revenue?position=orders/0@51&timeout=0s")
            assert (status, "others wait" in content["error"]) == (504, True)
            assert len(client.waited) == 16
        finally:
            client.arrived.set()
        assert {each.result()[0] for each in answers} == {200}


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
        (f"/views/revenue?orders={2**63}", 400, f"'{2**63}' is not a value"),
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


@pytest.mark.parametrize("text", ["x", "1", f"{'9' * 5_000}:", f"1:0={10**18}", "1:0=1,"])
def test_what_is_no_id(client: Client, text: str) -> None:
    status, content = client.get("/views/revenue/changes", **{"Last-Event-ID": text})
    assert (status, "no id of an event" in content["error"]) == (400, True)


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


def test_one_who_follows_no_more_leaves_nothing_open(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Subscription] = []
    monkeypatch.setattr(Subscription, "close", lambda each: closed.append(each))
    with client.changes() as events:
        client.scene.commit(1, {"C00": {"total": 9.0, "orders": 1}})
        client.scene.project(versions_ms=60_000)
        assert events.next()[1] == "upsert"
        assert not closed
    wait_until(lambda: len(closed) == 1, within=30, what="the subscription to end")


def test_a_change_to_nan_is_json(client: Client) -> None:
    with client.changes() as events:
        client.scene.commit(1, {"C00": {"total": "NaN", "orders": 1}})
        client.scene.project(versions_ms=60_000)
        assert events.next()[2] == {"country": "C00", "total": "NaN", "orders": 1}
    for asked in ("country=C00", "total=NaN", "country=C00&total.gt=1e308"):
        status, page = client.get(f"/views/revenue?{asked}")
        assert (status, page["rows"][0]["total"]) == (200, "NaN")


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


def test_so_many_may_follow_a_view(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those count who have asked, whether or not they have been answered yet."""
    monkeypatch.setattr("penstock.serve.http._MAX_SUBSCRIBERS", 3)
    gate = threading.Event()

    class Slow(Subscription):
        def __init__(self, *arguments: Any, **facts: Any) -> None:
            assert gate.wait(30)
            super().__init__(*arguments, **facts)

    monkeypatch.setattr("penstock.serve.http.Subscription", Slow)
    path = "/views/revenue/changes"
    asking = [client.connect() for _ in range(6)]
    for each in asking:
        each.request("GET", path)
    sockets = [each.sock for each in asking]
    wait_until(
        lambda: len(select.select(sockets, [], [], 0)[0]) == 3, within=30, what="three refusals"
    )
    told = select.select(sockets, [], [], 0)[0]
    gate.set()
    refused = [each for each in asking if each.sock in told]
    for each in refused:
        answer = each.getresponse()
        assert (answer.status, b"3 follow views already" in answer.read()) == (503, True)
    for each in asking:
        each.close()

    def is_free() -> bool:
        connection = client.connect()
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status == 200

    wait_until(is_free, within=30, what="a place of one who has gone")
    for _ in range(4):  # a refused one takes no place
        assert client.get("/views/revenu/changes")[0] == 404
    wait_until(is_free, within=30, what="a place")


def test_events_go_out_in_parcels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.http._PARCEL", 100)
    events = [Event(f"1:0={n}", "upsert", "x" * n) for n in (10, 200, 10, 10, 90, 0)]
    parcels = list(_parcels(events))
    assert b"".join(parcels) == b"".join(each.encode() for each in events)
    assert [parcel.count(b"id: ") for parcel in parcels] == [2, 3, 1]


def test_a_port_that_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with listening(lambda stop: FastAPI(), port) as address:
            assert address != f"http://127.0.0.1:{port}"
    assert f"port {port} is taken" in caplog.text
