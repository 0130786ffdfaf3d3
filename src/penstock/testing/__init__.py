"""The test kit: real servers as child processes, and waiting without sleeping."""

from penstock.testing.kafka import KafkaProcess, kafka_missing, run_kafka_tool
from penstock.testing.log_server import LogServerProcess
from penstock.testing.spark_cluster import SparkCluster
from penstock.testing.spark_kafka import spark_kafka_jars, spark_kafka_missing
from penstock.testing.waiting import wait_until

__all__ = [
    "KafkaProcess",
    "LogServerProcess",
    "SparkCluster",
    "kafka_missing",
    "run_kafka_tool",
    "spark_kafka_jars",
    "spark_kafka_missing",
    "wait_until",
]
