"""The test kit: apps run on rows, real servers as child processes, and waiting without sleeping."""

from typing import TYPE_CHECKING, Any

from penstock.testing.kafka import KafkaProcess, kafka_missing, run_kafka_tool
from penstock.testing.log_server import LogServerProcess
from penstock.testing.spark_cluster import SparkCluster
from penstock.testing.spark_kafka import spark_kafka_jars, spark_kafka_missing
from penstock.testing.waiting import wait_until

if TYPE_CHECKING:
    from penstock.testing.equality import assert_stream_equals_batch
    from penstock.testing.run import Run

__all__ = [
    "KafkaProcess",
    "LogServerProcess",
    "Run",
    "SparkCluster",
    "assert_stream_equals_batch",
    "kafka_missing",
    "run_kafka_tool",
    "spark_kafka_jars",
    "spark_kafka_missing",
    "wait_until",
]


def __getattr__(name: str) -> Any:
    """Brings what needs Spark when it is first asked for."""
    if name == "Run":
        from penstock.testing.run import Run

        return Run
    if name == "assert_stream_equals_batch":
        from penstock.testing.equality import assert_stream_equals_batch

        return assert_stream_equals_batch
    raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
