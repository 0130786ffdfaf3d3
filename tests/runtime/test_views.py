"""Reading the views of an app, from its own process or another one."""

import os
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock import App, Log, Position, Record
from penstock.errors import AppError, InvalidInput, UnknownName, ViewBehind
from penstock.events.schema import parse_schema
from penstock.runtime.status import AppStatus, InputStatus, NodeStatus
from penstock.runtime.views import Views
from penstock.serve.projector import Projector
from penstock.serve.reading import opened
from penstock.testing import wait_until
from tests.runtime.checkpoints import a_folder, note
from tests.serve.scene import Scene


class Shop(Scene):
    """An app of one node, whose part is played by the test."""

    def __init__(self, log: Log, data: Path) -> None:
        super().__init__(log, data)
        self.node = a_folder(data, "revenue", orders="orders")
        self.batches = self.node
        self.views = Views(data, "shop")
        log.create("orders", partitions=1)
        self.tell()

    def tell(self, *, starting: bool = False, **facts: Any) -> None:
        now = int(datetime.now(UTC).timestamp() * 1_000)
        orders = InputStatus("orders", "orders", source={"log": str(self.folder)})
        inputs = [] if starting else [orders]
        nodes = [NodeStatus("revenue", "running", inputs=inputs, output="revenue")]
        whole: dict[str, Any] = {"stopped": False, **facts}
        AppStatus("shop", os.getpid(), now, now, nodes, **whole).write(self.path.parent)

    def order(self) -> Position:
        return self.log.append("orders", [Record(value=b"{}")])[0]

    def process(self, batch: int, until: int, rows: Any) -> None:
        self.publish(batch, rows)
        note(self.node, batch, {"orders": {0: (0, until)}})


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Log.open(tmp_path) as log:
        yield Shop(log, tmp_path)


def test_rows_by_their_key(shop: Shop) -> None:
    shop.process(0, 0, {"NL": {"total": 2.5, "orders": 1}, "NO": {"total": 1.0}})
    shop.project()
    revenue = shop.views["revenue"]
    assert revenue.get("NL") == {"country": "NL", "total": 2.5, "orders": 1}
    assert revenue.get({"country": "NO"}) == {"country": "NO", "total": 1.0, "orders": None}
    assert revenue.get("SE") is None
    assert [row["country"] for row in revenue.rows()] == ["NL", "NO"]
    assert list(revenue.rows(country="NO", total=1.0)) == [revenue.get("NO")]
    assert App("shop", data=shop.folder).views["revenue"].get("NL") == revenue.get("NL")


@pytest.mark.parametrize(
    ("ask", "error", "told"),
    [
        (lambda views: views["revenu"], UnknownName, "did you mean 'revenue'"),
        (lambda views: views["revenue"].get(7), InvalidInput, "7 is no key"),
        (lambda views: views["revenue"].get({"land": 1}), InvalidInput, "it is made of: country"),
        (lambda views: views["revenue"].get("NL", as_of="noon"), InvalidInput, "neither a time"),
        (lambda views: views["revenue"].get("NL", as_of=0), InvalidInput, "keeps no versions"),
        (lambda views: views["revenue"].get("NL", after="x@1"), InvalidInput, "no position"),
        (lambda views: list(views["revenue"].rows(land=1)), InvalidInput, "no column 'land'"),
    ],
)
def test_what_cannot_be_asked(shop: Shop, ask: Any, error: type[Exception], told: str) -> None:
    shop.process(0, 0, {"NL": {"total": 2.5, "orders": 1}})
    shop.project()
    with pytest.raises(error, match=told):
        ask(shop.views)


def test_an_app_that_has_kept_nothing(tmp_path: Path) -> None:
    views = Views(tmp_path, "shop")
    assert list(views) == []
    with pytest.raises(UnknownName, match="no view is kept yet"):
        views["revenue"]
    with pytest.raises(AppError, match="has not run"):
        views.status()


def test_every_type_comes_back(shop: Shop) -> None:
    schema = parse_schema(
        "country string, flag boolean, day date, price decimal(9,2), at timestamp, "
        "local timestamp_ntz, tags array<string>"
    )
    row = {
        "flag": True,
        "day": "2026-01-31",
        "price": 12.5,
        "at": "2026-01-31T10:00:00.5+01:00",
        "local": "2026-01-31T10:00:00",
        "tags": ["a"],
    }
    shop.process(0, 0, {"NL": row})
    shop.project(schema=schema)
    assert shop.views["revenue"].get("NL") == {
        "country": "NL",
        "flag": True,
        "day": date(2026, 1, 31),
        "price": Decimal("12.50"),
        "at": datetime(2026, 1, 31, 9, 0, 0, 500_000, UTC),
        "local": datetime(2026, 1, 31, 10),  # noqa: DTZ001
        "tags": ["a"],
    }


def test_rows_with_null_and_with_bytes(shop: Shop) -> None:
    schema = parse_schema("country string, note binary, day date")
    row = {"note": "AP8=", "day": "2026-01-31"}
    shop.process(0, 0, {"NL": row, "NO": {}, "None": row})
    shop.project(schema=schema)
    revenue = shop.views["revenue"]
    assert [row["country"] for row in revenue.rows(note=None)] == ["NO"]
    assert [row["country"] for row in revenue.rows(country=None)] == []
    found = list(revenue.rows(note=b"\x00\xff", day=date(2026, 1, 31)))
    assert [row["country"] for row in found] == ["NL", "None"]


def test_a_key_of_several_columns(shop: Shop) -> None:
    schema = parse_schema("country string, at timestamp, n long")
    at = datetime(2026, 1, 31, 10, tzinfo=UTC)
    key = b'{"country":"NL","at":"2026-01-31T10:00:00Z"}'
    value = b'{"country":"NL","at":"2026-01-31T10:00:00Z","n":3}'
    shop._writer.append("revenue", {0: [Record(key=key, value=value)]}, batch=0)
    note(shop.node, 0, {})
    shop.project(schema=schema, key=("country", "at"))
    revenue = shop.views["revenue"]
    for asked in ({"country": "NL", "at": at}, ("NL", at), ["NL", at]):
        found = revenue.get(asked)
        assert found is not None
        assert found["n"] == 3


def test_reading_ones_own_write(shop: Shop) -> None:
    """The answer waits for the node and then for the table."""
    shop.process(0, 0, {"NL": {"orders": 0}})
    position = shop.order()
    answers: list[Any] = []

    def ask() -> None:
        answers.append(shop.views["revenue"].get("NL", after=position, timeout="60s"))

    with Projector(shop.path, [shop.source()], lambda view: None) as projector:
        projector.catch_up()
        reader = threading.Thread(target=ask)
        reader.start()
        shop.process(1, 1, {"NL": {"orders": 1}})
        projector.start()
        wait_until(lambda: bool(answers), within=30, what="the answer")
        reader.join()
    assert answers[0]["orders"] == 1


def test_a_write_that_does_not_arrive(shop: Shop) -> None:
    shop.process(0, 0, {"NL": {"orders": 0}})
    shop.project()
    position = shop.order()
    revenue = shop.views["revenue"]
    with pytest.raises(ViewBehind, match=r"orders/0@0 has not been seen within 0\.05 s") as behind:
        revenue.get("NL", after=position, timeout="50ms")
    assert "node 'revenue' has read orders/0 up to 0, 1 record short" in behind.value.message
    assert "penstock why revenue" in behind.value.hint

    shop.tell(stopped=True)
    with pytest.raises(ViewBehind, match="app 'shop' does not run"):
        revenue.get("NL", after=position, timeout="60s")

    shop.process(1, 1, {"NL": {"orders": 1}})
    with pytest.raises(ViewBehind, match="the table of view 'revenue' has read revenue/"):
        revenue.get("NL", after=str(position))
    shop.project()
    found = revenue.get("NL", after=[position])
    assert found is not None
    assert found["orders"] == 1


@pytest.mark.parametrize(
    ("after", "told"),
    [("payments/0@0", "nothing of topic 'payments' gets into revenue"), ("orders/0@7", "ends at")],
)
def test_positions_that_lead_nowhere(shop: Shop, after: str, told: str) -> None:
    shop.process(0, 0, {})
    shop.project()
    with pytest.raises(InvalidInput, match=told):
        shop.views["revenue"].get("NL", after=after)


def test_an_app_that_starts_is_waited_for(shop: Shop) -> None:
    """It does not tell yet what its nodes read."""
    position = shop.order()
    shop.process(0, 1, {"NL": {"orders": 1}})
    shop.project()
    shop.tell(starting=True)
    with pytest.raises(ViewBehind, match="app 'shop' is still starting"):
        shop.views["revenue"].get("NL", after=position, timeout="0s")
    shop.tell()
    assert shop.views["revenue"].get("NL", after=position) is not None


def test_as_it_was(shop: Shop) -> None:
    positions = []
    for batch in range(3):
        positions.append(shop.order())
        shop.publish(batch, {"NL": {"orders": batch}})
        note(shop.node, batch, {"orders": {0: (batch, batch + 1)}})
    shop.project(versions_ms=60_000)
    revenue = shop.views["revenue"]
    found = [revenue.get("NL", as_of=position) for position in positions]
    assert [row and row["orders"] for row in found] == [0, 1, 2]
    assert revenue.get("NL", as_of="2020-01-01") is None
    assert revenue.get("NL", as_of=datetime.now(UTC)) == revenue.get("NL")
    assert revenue.get("NL", as_of="0s") == revenue.get("NL")
    assert revenue.get("NL", as_of="1h") is None
    with pytest.raises(ViewBehind, match="has not been seen yet"):
        revenue.get("NL", as_of=shop.order())


def test_a_position_that_came_after_the_reader_was_opened(shop: Shop) -> None:
    shop.order()
    shop.process(0, 1, {"NL": {"orders": 1}})
    shop.project(versions_ms=60_000)
    with opened(shop.path) as reader:
        kept = reader.find("revenue")
        position = shop.order()
        shop.process(1, 2, {"NL": {"orders": 2}})
        shop.project(versions_ms=60_000)
        with pytest.raises(ViewBehind, match="the table of view 'revenue' has read revenue/"):
            shop.views.batch_at(reader, kept, position)
    found = shop.views["revenue"].get("NL", as_of=position)
    assert found is not None
    assert found["orders"] == 2
