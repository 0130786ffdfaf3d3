"""What a node may do with the output of an operator, and what a sink may leave unread."""

import shutil

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.errors import DataLost, ForeignCheckpoint, NodeFailed
from penstock.testing.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def orders_app() -> ps.App:
    app = ps.App("shapes")
    app.stream("orders", "customer string, amount long")
    return app


def test_buckets_may_be_merged_united_or_left_unread(spark: SparkSession) -> None:
    app = orders_app()
    seen: list[int] = []

    @app.derive("merged")
    def merged(orders: DataFrame) -> DataFrame:
        counted = ps.aggregate(orders, by="customer", n=ps.count())
        return counted.where("_weight > 0").drop("_weight").coalesce(1)

    @app.derive("united")
    def united(orders: DataFrame) -> DataFrame:
        counted = ps.aggregate(orders, by="customer", n=ps.count())
        summed = ps.aggregate(orders, by="customer", n=ps.sum("amount"))
        return counted.union(summed).where("_weight > 0").drop("_weight")

    @app.derive("totals", key="customer")
    def totals(orders: DataFrame) -> DataFrame:
        return ps.aggregate(orders, by="customer", n=ps.count())

    @app.derive("sizes", key="n")
    def sizes(totals: DataFrame) -> DataFrame:
        return ps.aggregate(totals, by="n", customers=ps.count())

    app.sink("orders", ps.each_batch(lambda rows, batch: seen.append(len(rows.limit(1).collect()))))

    rows = [{"customer": name, "amount": 10} for name in "abcdefgh"] + [{"amount": 10}]
    with Run(app, spark=spark) as run:
        for _ in range(3):
            run.feed("orders", rows, partition=0)
            run.feed("orders", rows, partition=1)
            run.drain()
        names = [*"abcdefgh", None]
        for name in names:
            own = [row["n"] for row in run.topic("merged") if row["customer"] == name]
            assert own[-1] == 6, name
            both = [row["n"] for row in run.topic("united") if row["customer"] == name]
            assert {6, 60} <= set(both), name
        assert run.view("totals") == [{"customer": name, "n": 6} for name in [None, *"abcdefgh"]]
        assert run.view("sizes") == [{"n": 6, "customers": 9}]
        assert seen
        assert set(seen) == {1}


def test_a_checkpoint_and_a_topic_that_do_not_belong_together(spark: SparkSession) -> None:
    app = orders_app()

    @app.derive("copy")
    def copy(orders: DataFrame) -> DataFrame:
        return orders

    with Run(app, spark=spark) as run:
        for _ in range(2):
            run.feed("orders", [{"customer": "a", "amount": 1}])
            run.drain()
        (watch,) = run._watches
        watch.stop(patience=10)
        shutil.rmtree(run.app.data / "apps")
        run.feed("orders", [{"customer": "b", "amount": 1}])

        with pytest.raises(NodeFailed, match=ForeignCheckpoint.__name__):
            run.drain()
        assert len(run.topic("copy")) == 2


def test_a_topic_that_is_gone_is_not_made_again_empty(spark: SparkSession) -> None:
    app = orders_app()

    @app.derive("copy")
    def copy(orders: DataFrame) -> DataFrame:
        return orders

    with Run(app, spark=spark) as run:
        run.feed("orders", [{"customer": "a", "amount": 1}])
        run.drain()
        run._watches[0].stop(patience=10)
        run.log.delete("copy")
        run.app.spark = spark

        with pytest.raises(DataLost, match="'copy'"):
            run.app.run(once=True)
