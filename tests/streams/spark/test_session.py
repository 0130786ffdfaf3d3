"""The settings as they reach a running Spark; what the tests share is such a session."""

import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import InvalidInput
from penstock.streams.spark.session import check_session, open_session, settings_for


def test_a_session_runs_python_of_this_interpreter(spark: SparkSession) -> None:
    def interpreter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    found = spark.range(1).mapInArrow(interpreter, "python string").collect()

    assert {row.python for row in found} == {sys.executable}


def test_settings_reach_spark_and_those_given_go_first(spark: SparkSession) -> None:
    context = spark.sparkContext

    assert context.master == "local[2,4]"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.memory") == "1g"  # as the fixture asks
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


def test_a_second_session_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match="already") as raised:
        open_session("another")

    assert "App(spark=session)" in raised.value.hint


def test_a_session_that_would_change_results_is_refused(spark: SparkSession) -> None:
    check_session(spark)
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with pytest.raises(InvalidInput, match="Asia/Tokyo") as raised:
        check_session(other)
    assert "session.conf.set" in raised.value.hint


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local", {}, "local[1,4]"),
        ("local[3]", {}, "local[3,4]"),
        ("local[3,1]", {}, "local[3,1]"),
        ("local[3]", {"spark.task.maxFailures": "2"}, "local[3,2]"),
        (None, {"spark.master": "local[5]"}, "local[5,4]"),
        ("spark://far:7077", {}, "spark://far:7077"),
    ],
)
def test_a_local_master_retries(
    master: str | None, settings: dict[str, str], expected: str
) -> None:
    assert settings_for(master, settings)["spark.master"] == expected


@pytest.mark.parametrize(
    ("master", "loopback"),
    [
        ("local[2]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://127.0.0.1.example:7077", False),
        ("spark://far:7077", False),
    ],
)
def test_a_driver_listens_on_loopback_where_that_is_enough(master: str, loopback: bool) -> None:
    assert ("spark.driver.bindAddress" in settings_for(master, {})) == loopback


def test_the_cores_of_a_cluster_are_not_guessed() -> None:
    assert settings_for("local[7]", {})["spark.sql.shuffle.partitions"] == "7"
    assert "spark.sql.shuffle.partitions" not in settings_for("spark://far:7077", {})
