"""Stream equals batch, for rows, lateness, partitions and cuts that nobody chose.

EXAMPLES says how many are tried; each of them starts Spark's queries, so they are few.
"""

import itertools
import math
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import App
from penstock.streams.spark.crash import POINTS
from penstock.testing.equality import _counted, _deal, _pieces, assert_stream_equals_batch

EXAMPLES = int(os.environ.get("EXAMPLES", "4"))
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

pytestmark = pytest.mark.timeout(120 + 240 * EXAMPLES)


def app() -> App:
    app = App("equal")
    app.stream(
        "orders",
        "customer string, amount double, units long, at timestamp",
        event_time=ps.EventTime("at", wait="20s", correct_for="40s"),
    )

    @app.derive("kept", partitions=3)
    def kept(orders: DataFrame) -> DataFrame:
        return orders.where("units IS NULL OR units <> 7")

    @app.derive("totals", key="customer")
    def totals(kept: DataFrame) -> DataFrame:
        return ps.aggregate(
            kept,
            by="customer",
            n=ps.count(),
            total=ps.sum("amount"),
            mean=ps.mean("units"),
            least=ps.min("amount"),
            most=ps.max("units"),
            last=ps.last("units"),
        )

    return app


orders = st.fixed_dictionaries(
    {
        "customer": st.none() | st.sampled_from(["Ada", "Bo", "", "Zoë"]),
        "amount": st.none() | st.floats(-1e6, 1e6).map(lambda number: round(number, 3)),
        "units": st.none() | st.integers(0, 9),
        # Up to two minutes behind the latest one: on time, a straggler, or rejected.
        "at": st.none() | st.integers(0, 120).map(lambda late: NOON - timedelta(seconds=late)),
    }
)
rows = st.lists(orders | st.sampled_from([b"", b"{", b'{"at": 1e99}']), min_size=5, max_size=60)


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # Each attempt at a smaller example takes seconds.
    phases=[phase for phase in settings().phases if phase.name != "shrink"],
)
@given(
    rows=rows,
    partitions=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    crash=st.none() | st.sampled_from(POINTS),
)
def test_whatever_comes(
    spark: SparkSession, rows: list[Any], partitions: int, seed: int, crash: str | None
) -> None:
    assert_stream_equals_batch(
        app(),
        {"orders": rows},
        spark=spark,
        partitions=partitions,
        variants=1,
        seed=seed,
        crash=crash,
    )


@pytest.mark.slow
def test_a_node_that_sees_batches_is_found_out(spark: SparkSession) -> None:
    wrong = App("wrong")
    wrong.stream("orders", "id long")

    @wrong.derive("firsts")
    def firsts(orders: DataFrame) -> DataFrame:
        def first(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                yield batch.slice(0, 1)  # of each batch, wherever it was cut

        return orders.mapInArrow(first, orders.schema)

    numbered = [{"id": number} for number in range(40)]
    with pytest.raises(AssertionError, match="not the same as a stream and as a batch"):
        assert_stream_equals_batch(wrong, {"orders": numbered}, spark=spark, variants=2, seed=3)


@given(st.lists(st.integers()), st.integers(1, 4), st.integers(1, 5), st.integers())
def test_pieces_hold_every_row_in_its_order(
    numbers: list[int], partitions: int, pieces: int, seed: int
) -> None:
    dealt = _deal([{"id": number} for number in numbers], partitions)
    cut = _pieces({"orders": dealt}, random.Random(seed), pieces=pieces)

    assert len(cut) == pieces
    together = [
        list(itertools.chain(*(some for piece in cut for _, at, some in piece if at == number)))
        for number in range(partitions)
    ]
    assert together == dealt


def test_rows_are_dealt_in_turn_unless_they_say_where() -> None:
    assert _deal([{"id": 0}, {"id": 1, "_partition": 0}, b"x", {"id": 3}], 2) == [
        [{"id": 0}, {"id": 1, "_partition": 0}, b"x"],
        [{"id": 3}],
    ]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        (0.3000001, 0.3, False),
        (math.nan, math.nan, True),
        (-0.0, 0.0, True),
        ([{"a": 0.1 + 0.2}], [{"a": 0.3}], True),
        (None, 0, False),
        ("1", 1, False),
    ],
)
def test_what_counts_as_the_same(left: Any, right: Any, same: bool) -> None:
    assert (_counted([{"value": left}]) == _counted([{"value": right}])) == same
