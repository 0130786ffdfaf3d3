"""A value that cannot be computed rejects the rows that cause it, and the others go on."""

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.errors import CyclicNodes, UnknownName
from penstock.testing import Run


def test_rows_of_which_a_value_cannot_be_computed_are_rejected(spark: SparkSession) -> None:
    app = ps.App("shop")
    app.stream("orders", "id long, customer string, amount long, n long", partitions=1)
    each = "SELECT customer, sum(amount / n) AS total FROM orders GROUP BY customer"
    app.view("each", sql=each)
    app.view("ratio", sql="SELECT customer, 100 / sum(amount) AS r FROM orders GROUP BY customer")
    app.view("last", sql="SELECT customer, max(id) AS id FROM orders GROUP BY customer")

    def order(number: int, customer: str, amount: int, n: int) -> dict[str, object]:
        return {"id": number, "customer": customer, "amount": amount, "n": n}

    with Run(app, spark=spark) as run:
        run.feed("orders", [order(1, "ada", 2, 1), order(2, "ada", -2, 0), order(3, "bob", 5, 1)])
        run.drain()
        assert run.view("each") == [
            {"customer": "ada", "total": 2.0},
            {"customer": "bob", "total": 5.0},
        ]
        assert run.view("ratio") == [{"customer": "bob", "r": 20.0}]
        assert [row["id"] for row in run.view("last")] == [2, 3]

        # What could not be computed is retracted without a word, and what can be now is there.
        run.crash("before-commit", "ratio")
        run.feed("orders", [order(4, "ada", 4, 2)])
        run.drain()
        assert run.view("each")[0] == {"customer": "ada", "total": 4.0}
        assert run.view("ratio")[0] == {"customer": "ada", "r": 25.0}

        (rejected,) = run.rejected("each")
        assert rejected["reason"] == "division by zero"
        assert rejected["detail"].startswith("division by zero in `")
        assert (rejected["topic"], rejected["partition"], rejected["offset"]) == ("orders", 0, 1)
        assert (rejected["operator"], rejected["batch"]) == (None, 0)
        assert json.loads(rejected["row"]) == order(2, "ada", -2, 0)
        (made,) = run.rejected("ratio")  # of a row that an operator has made
        assert (made["topic"], made["offset"], made["batch"]) == (None, None, 0)
        assert made["operator"].endswith("-aggregate")
        assert run.rejected("last") == []
        (watch,) = run._watches
        told = {status.name: status.uncomputable for status in watch.statuses}
        once = {"division by zero": 1}
        assert told == {"each": once, "ratio": once, "last": {}}


def test_a_node_reads_the_rejected_rows_of_another(spark: SparkSession) -> None:
    app = ps.App("shop")
    app.stream("orders", "id long, amount long, n long", partitions=1)
    app.stream("names", "id long", partitions=1)
    app.view("each", sql="SELECT id, sum(amount / n) AS total FROM orders GROUP BY id")
    app.rejected("each")

    @app.derive("alarms")
    def alarms(rejected_each: DataFrame, names: DataFrame) -> DataFrame:
        found = rejected_each.select("reason", "topic", "partition", "offset", "row")
        return found.where("offset > 0")

    @app.view("reasons", key="reason")
    def reasons(rejected_each: DataFrame) -> DataFrame:
        return ps.aggregate(rejected_each, by="reason", n=ps.count())

    def orders(*ids: int) -> list[dict[str, int]]:
        return [{"id": n, "amount": 6, "n": n % 3} for n in ids]

    with Run(app, spark=spark, max_rows=3) as run:
        run.drain()
        assert "each-rejected" in run.log.topics()  # before there is anything in it
        run.feed("orders", orders(*range(8)))
        run.crash("after-commit", "each")
        run.drain()
        assert run.crashes == 1
        found = sorted(run.topic("alarms"), key=lambda row: row["offset"])
        assert [row["offset"] for row in found] == [3, 6]
        assert found[0] == {
            "reason": "division by zero",
            "topic": "orders",
            "partition": 0,
            "offset": 3,
            "row": '{"id": 3, "amount": 6, "n": 0}',
        }
        assert run.view("reasons") == [{"reason": "division by zero", "n": 3}]
        assert run.batch("reasons") == run.view("reasons")
        assert sorted(map(str, run.batch("alarms"))) == sorted(map(str, run.topic("alarms")))

        # To the present end: what is rejected on the way there belongs to it.
        run.feed("orders", orders(9, 10))
        (watch,) = run._watches
        assert watch.drain(at_present=True)
        assert run.view("reasons") == [{"reason": "division by zero", "n": 4}]


def test_nodes_that_read_what_comes_of_their_own_rejected_rows() -> None:
    app = ps.App("shop")
    app.stream("orders", "id long")

    @app.derive("checked")
    def checked(orders: DataFrame, alarms: DataFrame) -> DataFrame:
        return orders

    app.rejected("checked")

    @app.derive("alarms")
    def alarms(rejected_checked: DataFrame) -> DataFrame:
        return rejected_checked

    with pytest.raises(CyclicNodes):
        app.ordered_nodes()
    with pytest.raises(UnknownName, match="rejected rows are asked for of 'nobody'"):
        app.rejected("nobody")
