"""Stream equals batch, whatever nodes an app has, however rows are cut, wherever it crashes."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock as ps
from penstock.streams.spark.crash import AFTER_COMMIT, BEFORE_COMMIT, IN_WORKER
from penstock.testing import assert_stream_equals_batch
from tests.streams.spark.random_apps import random_apps

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
