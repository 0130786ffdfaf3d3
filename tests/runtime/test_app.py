"""What an app refuses before Spark starts, and what its declarations come to."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import (
    CyclicNodes,
    DuplicateName,
    InvalidInput,
    InvalidSchema,
    InvalidTopic,
    MissingSchema,
    PenstockError,
    UnknownName,
)
from penstock.runtime.app import App
from penstock.runtime.declarations import Topic
from penstock.sinks.functions import console
from penstock.streams.source.event_time import EventTime

ORDERS = "id long, customer long, at timestamp"


@pytest.fixture
def app(tmp_path: Path) -> App:
    app = App("shop", data=tmp_path)
    app.stream("orders", ORDERS, event_time=EventTime("at", wait="10s"))
    return app


def any_of(orders: Any) -> Any: ...


def test_declarations(app: App) -> None:
    table = app.table("customers", "id long, name string", key="id", topic="crm.customers")
    assert (table.topic, table.key, table.rule) == ("crm.customers", ("id",), None)
    orders = app.declared["orders"]
    assert isinstance(orders, Topic)
    assert orders.rule == EventTime("at", wait="10s").rule()
    assert orders.schema.names == ["id", "customer", "at"]
    assert app.stream("lines", format="text").schema == pa.schema({"value": pa.string()})


@pytest.mark.parametrize(
    ("start", "text"),
    [("latest", "latest"), (1_767_268_800_000, "1767268800000"), ({0: 7}, '{"0": 7}')],
)
def test_where_a_stream_starts(app: App, start: Any, text: str) -> None:
    assert app.stream("more", "id long", start=start).start == text


@pytest.mark.parametrize(
    ("declare", "error", "told"),
    [
        (lambda app: App("a b"), InvalidTopic, "'a b'"),
        (lambda app: App("shop", buckets=0), InvalidInput, "0 buckets"),
        (lambda app: app.stream("orders", ORDERS), DuplicateName, "two things called 'orders'"),
        (lambda app: app.stream("more"), MissingSchema, "'more'"),
        (lambda app: app.stream("more", "id lnog"), InvalidSchema, "lnog"),
        (lambda app: app.stream("more", "id long, _x long"), InvalidInput, "'_x'"),
        (
            lambda app: app.stream("more", "id long", event_time=EventTime("at")),
            UnknownName,
            "no column 'at'",
        ),
        (lambda app: app.stream("more", "id long", metadata=["time"]), InvalidInput, "'time'"),
        (lambda app: app.table("more", "id long", key="nr"), UnknownName, "no column 'nr'"),
        (lambda app: app.stream("more", "id long", topic="a b"), InvalidTopic, "'a b'"),
        (lambda app: app.stream("more", "id long", rate=0), InvalidInput, "rate=0"),
        (lambda app: app.stream("more", "id long", max_rows=-1), InvalidInput, "max_rows=-1"),
        (lambda app: app.stream("more", "id long", start="newest"), InvalidInput, "'newest'"),
        (lambda app: app.stream("more", "id long", format="jsn"), InvalidInput, "'jsn'"),
        (
            lambda app: app.stream("more", "id long", format_options={"sep": ";"}),
            InvalidInput,
            "'sep' of the format json",
        ),
        (lambda app: app.stream("more", "id long", partitions=0), InvalidInput, "0 partitions"),
        (lambda app: app.rejected("order"), UnknownName, "'order'"),
        (lambda app: app.derive("orders")(any_of), DuplicateName, "'orders'"),
        (lambda app: app.derive("x")(lambda: None), InvalidInput, "reads nothing"),
        (lambda app: app.sink("orders", console(), name="orders"), DuplicateName, "'orders'"),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(
    app: App, declare: Any, error: type[PenstockError], told: str
) -> None:
    with pytest.raises(error) as refused:
        declare(app)
    assert told in refused.value.message
    assert refused.value.hint


def test_the_graph_is_checked_before_anything_starts(app: App) -> None:
    with pytest.raises(InvalidInput, match="has no nodes"):
        app.run()

    @app.derive("totals")
    def totals(order: Any) -> Any: ...

    with pytest.raises(UnknownName, match="node 'totals' asks for 'order'"):
        app.run()
    assert list(app.data.iterdir()) == []


def test_a_cycle_is_refused(app: App) -> None:
    @app.derive("a")
    def a(b: Any) -> Any: ...

    @app.derive("b")
    def b(a: Any) -> Any: ...

    with pytest.raises(CyclicNodes):
        app.run()
    assert list(app.data.iterdir()) == []


def test_nodes_in_their_order(app: App) -> None:
    app.sink("b", console())

    @app.derive("b")
    def b(a: Any) -> Any: ...

    @app.derive("a")
    def a(orders: Any) -> Any: ...

    assert [node.name for node in app.ordered_nodes()] == ["a", "b", "b_to_console"]


def test_rejected_rows_are_one_stream(app: App) -> None:
    rejected = app.rejected("orders")
    assert rejected.name == "rejected_orders"
    assert app.rejected("orders") is rejected

    @app.derive("bad")
    def bad(rejected_orders: Any) -> Any: ...

    assert [node.name for node in app.ordered_nodes()] == ["bad"]
