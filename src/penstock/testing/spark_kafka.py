"""Spark's own connector to Kafka, the yardstick of penstock's source.

Its jars are kept in `penstock/spark-kafka-VERSION` of the user's cache folder; `make peers` puts
them there.
"""

from pathlib import Path

from penstock.errors import LogUnreachable
from penstock.testing.kafka import jars_folder

SPARK_KAFKA_VERSION = "4.2.0"


def spark_kafka_missing() -> str:
    """What the connector lacks, in one line; empty when nothing is missing."""
    folder = jars_folder("spark-kafka", SPARK_KAFKA_VERSION)
    return "" if folder.is_dir() else f"Spark's connector to Kafka is not in {folder}"


def spark_kafka_jars() -> list[Path]:
    """What a session's `spark.jars` must list. Raises LogUnreachable when they are not there."""
    if missing := spark_kafka_missing():
        raise LogUnreachable(missing, hint="run `make peers` in penstock's repository")
    return sorted(jars_folder("spark-kafka", SPARK_KAFKA_VERSION).glob("*.jar"))
