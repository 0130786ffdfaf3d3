"""The test kit: real servers as child processes, and waiting without sleeping."""

from penstock.testing.kafka import KafkaProcess, kafka_missing, run_kafka_tool
from penstock.testing.log_server import LogServerProcess
from penstock.testing.waiting import wait_until

__all__ = ["KafkaProcess", "LogServerProcess", "kafka_missing", "run_kafka_tool", "wait_until"]
