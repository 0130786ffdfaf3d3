import re
from pathlib import Path

import pytest

from penstock.errors import LogUnreachable
from penstock.testing import spark_kafka_jars, spark_kafka_missing
from penstock.testing.spark_kafka import SPARK_KAFKA_VERSION
from tests.conftest import without_peer

POM = Path(__file__).parents[1] / "peers" / "spark-kafka" / "pom.xml"


def test_the_jars_fetched_are_the_jars_looked_for() -> None:
    version = f"<spark-kafka.version>{SPARK_KAFKA_VERSION}</spark-kafka.version>"

    assert version in POM.read_text()


@pytest.mark.peer
def test_the_jars_are_the_connector_and_what_spark_lacks() -> None:
    if missing := spark_kafka_missing():
        without_peer(missing)

    names = [re.split(r"_|-\d+\.\d+\.", jar.name)[0] for jar in spark_kafka_jars()]

    assert names == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10",
        "spark-token-provider-kafka-0-10",
    ]


def test_missing_jars_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert str(tmp_path) in spark_kafka_missing()
    with pytest.raises(LogUnreachable, match="make peers"):
        spark_kafka_jars()
