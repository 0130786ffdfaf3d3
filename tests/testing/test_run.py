"""The test kit on small apps; tests/streams/spark/test_node.py runs larger ones with it."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import App
from penstock.errors import InvalidInput, NodeFailed, UnknownName
from penstock.runtime.status import InputStatus, NodeStatus
from penstock.testing.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def shop() -> App:
    app = App("shop")
    app.stream("orders", "id long, customer string")
    app.table("prices", "item string, size int, price decimal(6,2)", key=["item", "size"])

    @app.derive("counts", key="customer")
    def counts(orders: DataFrame) -> DataFrame:
        return ps.aggregate(orders, by="customer", n=ps.count())

    @app.derive("copies")
    def copies(orders: DataFrame) -> DataFrame:
        def through(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                if 13 in batch["id"].to_pylist():
                    raise RuntimeError("13 is not an order")
                yield batch

        return orders.mapInArrow(through, orders.schema)

    return app


def test_rows_in_and_out(spark: SparkSession) -> None:
    with Run(shop(), spark=spark, partitions=3) as run:
        folder = run.app.data
        run.feed(
            "orders",
            [
                {"id": 1, "customer": "Ada", "_partition": 2, "_key": b"k", "_timestamp": 5_000},
                b"junk",
                {"id": 2, "customer": "Ada"},
                {"id": 3},
            ],
            partition=0,
            timestamp=7_000,
        )
        run.upsert("prices", item="tea", size=1, price="2.50")
        run.upsert("prices", item="tea", size=2, price="4")
        run.upsert("prices", item="rice", size=1, price="1.10")
        run.upsert("prices", item="tea", size=1, price="2.60")
        run.delete("prices", {"item": "tea", "size": 2})
        (first,) = run.log.read("orders", 2, 0)
        others = list(run.log.read("orders", 0, 0))
        run.drain()

        assert (first.key, first.timestamp) == (b"k", 5_000)
        assert [each.timestamp for each in others] == [7_000] * 3
        orders = [(2, "Ada"), (3, None), (1, "Ada")]  # partition after partition
        assert [(row["id"], row["customer"]) for row in run.topic("orders")] == orders
        assert sorted(row["id"] for row in run.topic("copies")) == [1, 2, 3]
        assert run.view("counts") == [{"customer": None, "n": 1}, {"customer": "Ada", "n": 2}]
        assert [(row["item"], str(row["price"])) for row in run.view("prices")] == [
            ("rice", "1.10"),
            ("tea", "2.60"),
        ]
        (refused,) = run.rejected("orders")
        assert (refused["reason"], refused["value"]) == ("unparsable", b"junk")

        with pytest.raises(InvalidInput, match="not a table"):
            run.view("copies")
        for what in (
            lambda: run.feed("nothing", []),
            lambda: run.batch("nothing"),
            lambda: run.crash("in-worker", "nothing"),
        ):
            with pytest.raises(UnknownName, match="nothing"):
                what()
        with pytest.raises(InvalidInput, match="after-commit"):
            run.crash("whenever")

        # A node's own failure is raised, with what it said; the one before it went on.
        run.feed("orders", [{"id": 13, "customer": "Bo"}])
        with pytest.raises(NodeFailed, match="13 is not an order"):
            run.drain()
        assert run.view("counts")[-1] == {"customer": "Bo", "n": 1}
        assert run.crashes == 0
    assert not folder.exists()
    assert [query.name for query in spark.streams.active] == []


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (InputStatus("orders", "orders", next={"0": 3}, read=3, kept=2), "lost rows"),
        (InputStatus("orders", "orders", next={"0": 4}, read=3, kept=3), "skipped records"),
    ],
)
def test_rows_that_are_not_accounted_for(told: InputStatus, fault: str) -> None:
    class Watch:
        statuses = (NodeStatus("counts", inputs=[told]),)

    with pytest.raises(AssertionError, match=fault):
        Run(shop())._check_conservation(Watch())  # type: ignore[arg-type]
