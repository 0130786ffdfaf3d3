import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer

from penstock.errors import LogUnreachable
from penstock.testing import KafkaProcess, kafka_missing, run_kafka_tool
from penstock.testing.kafka import KAFKA_VERSION

POM = Path(__file__).parents[1] / "peers" / "kafka" / "pom.xml"


def test_the_jars_fetched_are_the_jars_looked_for() -> None:
    assert f"<kafka.version>{KAFKA_VERSION}</kafka.version>" in POM.read_text()


def test_missing_jars_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/java")

    assert str(tmp_path) in kafka_missing()
    with pytest.raises(LogUnreachable, match="make peers"), KafkaProcess():
        pass


def test_missing_java_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    assert "Java" in kafka_missing()


def test_kafka_gives_back_what_it_was_given(kafka: KafkaProcess) -> None:
    topic = f"kit-{uuid4().hex}"
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0

    consumer = Consumer(
        {"bootstrap.servers": kafka.address, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()

    assert message is not None
    assert message.value() == b"hello"
    assert 0 < kafka.startup_seconds < 60
    assert kafka.resident_bytes > 50_000_000


def test_a_setting_that_kafka_refuses_is_reported(kafka: KafkaProcess) -> None:
    refused = {"log.flush.interval.messages": -5}

    with (
        pytest.raises(LogUnreachable, match=r"log\.flush\.interval\.messages"),
        KafkaProcess(properties=refused),
    ):
        pass


def test_console_tools(kafka: KafkaProcess) -> None:
    topic = f"kit-{uuid4().hex}"
    at = ("--bootstrap-server", kafka.address)

    made = run_kafka_tool("kafka-topics", *at, "--create", "--topic", topic, "--partitions", "2")
    assert made.stdout == f"Created topic {topic}.\n"

    sent = run_kafka_tool("kafka-console-producer", *at, "--topic", topic, stdin="a\nb\n")
    assert sent.returncode == 0, sent.stderr

    reading = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "2")
    read = run_kafka_tool("kafka-console-consumer", *at, *reading)
    assert sorted(read.stdout.split()) == ["a", "b"]

    described = run_kafka_tool("kafka-consumer-groups", *at, "--describe", "--group", topic)
    assert described.stdout.count(topic) == 4, described.stderr


def test_a_tool_that_fails_says_so(kafka: KafkaProcess) -> None:
    arguments = ("--bootstrap-server", kafka.address, "--describe", "--topic", "no-such-topic")

    assert run_kafka_tool("kafka-topics", *arguments).returncode == 1
