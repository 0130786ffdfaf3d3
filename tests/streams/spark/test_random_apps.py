"""Stream equals batch, whatever nodes an app has, however rows are cut, wherever it crashes."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.streams.spark.crash import AFTER_COMMIT, BEFORE_COMMIT, IN_WORKER
from penstock.streams.spark.query import job
from penstock.testing import assert_stream_equals_batch
from tests.streams.spark.random_apps import ORDER, random_apps

EXAMPLES = int(os.environ.get("EXAMPLES", "3"))  # each runs an app twice as a stream
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 120 * EXAMPLES)]

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

orders = st.builds(
    lambda number, customer, amount, second: {
        "id": number,
        "customer": customer,
        "amount": amount,
        "at": NOON + timedelta(seconds=second),
    },
    st.integers(0, 50),
    st.integers(0, 4),
    st.integers(-5, 20),
    st.integers(0, 40),
)
# All rows of a key in one partition: elsewhere they have no order.
customers = st.builds(
    lambda number, region: {"id": number, "region": region, "_partition": number % 2},
    st.integers(0, 4),
    st.sampled_from(["north", "south", None]),
)


@pytest.fixture(autouse=True, scope="module")
def small_batches_in_several_tasks() -> Iterator[None]:
    """As in apps with many more nodes than these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "WORTH_A_TASK", 2)
        yield


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_functions_of_users_follow_each_other(spark: SparkSession) -> None:
    """What one leaves for the next, and for operators, by more tasks than there are buckets."""
    app = ps.App("random")
    app.stream("orders", ORDER, event_time=ps.EventTime("at", wait="5s", correct_for="1h"))
    app.stream("refunds", ORDER)

    @app.derive("first")
    def first(orders: DataFrame) -> DataFrame:
        return orders.mapInArrow(_same, orders.schema)

    @app.derive("back")
    def back(refunds: DataFrame) -> DataFrame:
        return refunds.mapInArrow(_same, refunds.schema)

    @app.derive("some")
    def some(first: DataFrame) -> DataFrame:
        return first.where("amount > 2")

    @app.derive("second")
    def second(some: DataFrame) -> DataFrame:
        return some.mapInArrow(_same, some.schema)

    @app.derive("third")
    def third(second: DataFrame) -> DataFrame:
        return second.mapInArrow(_same, second.schema)

    app.view("totals", sql="SELECT customer, sum(amount) AS total FROM some GROUP BY customer")
    app.view("numbers", sql="SELECT customer, count(*) AS n FROM third GROUP BY customer")
    rows = [
        {"id": n, "customer": n % 3, "amount": n, "at": NOON + timedelta(seconds=n)}
        for n in range(12)
    ]

    assert_stream_equals_batch(
        app, {"orders": rows, "refunds": rows}, spark=spark, variants=2, seed=1
    )


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=[phase for phase in settings().phases if phase.name != "shrink"],
)
@given(
    app=random_apps(),
    rows=st.fixed_dictionaries(
        {
            "orders": st.lists(orders, max_size=20),
            "refunds": st.lists(orders, max_size=10),
            "customers": st.lists(customers, max_size=8),
        }
    ),
    crash=st.sampled_from([None, BEFORE_COMMIT, AFTER_COMMIT, IN_WORKER]),
    seed=st.integers(0, 1_000),
)
def test_every_node_is_what_a_batch_gives(
    spark: SparkSession,
    app: ps.App,
    rows: dict[str, list[dict[str, Any]]],
    crash: str | None,
    seed: int,
) -> None:
    assert_stream_equals_batch(app, rows, spark=spark, variants=2, seed=seed, crash=crash)
