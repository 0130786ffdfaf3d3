"""What is told of nodes while their first batch runs: nothing was read, and all of it waits."""

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.runtime.status import AppStatus, NodeStatus
from penstock.runtime.why import explain
from penstock.testing import Run


def test_what_waits_is_told_before_the_first_batch_ends(spark: SparkSession) -> None:
    app = ps.App("shop")
    app.stream("orders", "id long, customer long", partitions=1)

    @app.derive("copies")
    def copies(orders: DataFrame) -> DataFrame:
        return orders

    @app.derive("totals", key="customer")
    def totals(copies: DataFrame) -> DataFrame:
        return ps.aggregate(copies, by="customer", n=ps.count())

    def why(node: NodeStatus, nodes: list[NodeStatus]) -> list[str]:
        status = AppStatus("shop", 1, 1_000, 1_000, nodes)
        return explain(status, node, life="running", now=1_000)

    with Run(app, spark=spark) as run:
        run.feed("orders", [{"id": n, "customer": n % 7} for n in range(300)])
        (watch,) = run._fresh_watches()
        for whole in (False, True):  # as nodes are built, and when they start again
            watch._building = set() if whole else {"copies", "totals"}
            watch._engine = run._installed().open_engine(watch.query)
            watch.note()
            first, second = watch.statuses
            assert first.lag == 300
            assert [each.state for each in watch.statuses] == (
                ["running", "running"] if whole else ["building", "building"]
            )
            for node in watch.statuses:
                said = why(node, watch.statuses)
                assert not any("have been read" in each for each in said), said
            assert "It is 300 records behind in orders." in why(first, watch.statuses)
            assert "copies, which it reads, is itself 300 records behind." in why(
                second, watch.statuses
            )
            watch._close()
        run.drain()
        watch.stop(0.0)
        (watch,) = run._watches
        watch.note()
        assert {each.state for each in watch.statuses} == {"waiting"}
