"""Kafka's own console tools: the Java clients with a command line."""

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.events.record import Header, Record
from penstock.testing import run_kafka_tool
from penstock.testing.kafka import kafka_tool_command
from tests.peers.clients.contract import (
    COOPERATIVE,
    HEARTBEAT_MS,
    RANGE,
    SESSION_MS,
    Client,
    Feed,
    Follower,
    Reading,
    Refused,
    Sending,
)
from tests.peers.clients.program import LineFeed, follow

SEPARATOR, NULL = "\t", "NULL"
ASSIGNORS = {
    RANGE: "org.apache.kafka.clients.consumer.RangeAssignor",
    COOPERATIVE: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
_DESCRIBED = re.compile(r"^Topic: (\S+)\t.*PartitionCount: (\d+)", re.MULTILINE)
_SETTING = re.compile(r"^  ([a-z.]+)=(\S*)", re.MULTILINE)


class Java(Client):
    name = "java"
    cooperates = True
    endures = True
    dates = False

    def _run(self, tool: str, *arguments: str) -> str:
        done = run_kafka_tool(tool, "--bootstrap-server", self.address, *arguments)
        # Some tools print their errors and end as if nothing were.
        if done.returncode or "Error" in done.stdout or "Exception" in done.stderr:
            raise Refused(done.stdout + done.stderr)
        return done.stdout

    def _command(self, tool: str, topic: str, *arguments: str, **settings: object) -> list[str]:
        settings |= {"reconnect_backoff_max_ms": 500, "metadata_max_age_ms": 1_000}
        options = [f"{name.replace('_', '.')}={setting}" for name, setting in settings.items()]
        given = [each for option in options for each in ("--command-property", option)]
        at = ("--bootstrap-server", self.address, "--topic", topic)
        return kafka_tool_command(tool, *at, *given, *arguments)

    # Records

    def feed(self, topic: str, how: Sending) -> Feed:
        parsing = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL}
        command = self._command(
            "kafka-console-producer",
            topic,
            *_properties("--reader-property", parsing),
            *("--compression-codec", how.codec, "--max-block-ms", str(how.patience_ms)),
            acks=how.acks,
            enable_idempotence=str(how.idempotent).lower(),
            max_request_size=how.largest,
            delivery_timeout_ms=how.patience_ms,
            request_timeout_ms=how.patience_ms // 3,
            linger_ms=0,
        )
        return LineFeed(command, _line, "Exception", "ERROR")

    def read(self, topic: str, how: Reading, into: Follower) -> None:
        wanted = ("timestamp", "partition", "offset", "headers", "key", "value")
        printing = {f"print.{each}": "true" for each in wanted} | {"null.literal": NULL}
        settings: dict[str, object] = {
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "partition_assignment_strategy": ASSIGNORS[how.strategy],
            "max_partition_fetch_bytes": 10_000_000,
        }
        if how.instance:
            settings["group_instance_id"] = how.instance
        command = self._command(
            "kafka-console-consumer",
            topic,
            *_properties("--formatter-property", printing),
            *(("--group", how.group) if how.group else ()),
            *(("--from-beginning",) if how.start == "earliest" else ()),
            *(() if how.count is None else ("--max-messages", str(how.count))),
            **settings,
        )
        follow(command, lambda line: _record(topic, line), into)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        place = ("--topic-partitions", f"{topic}:{partition}", "--time", str(timestamp))
        _, _, offset = self._run("kafka-get-offsets", *place).strip().rpartition(":")
        # It prints none when no record is so late.
        return int(offset) if offset else self.offset_at(topic, partition, -1)

    def transact(self, topic: str) -> None:
        done = run_kafka_tool(
            "kafka-producer-perf-test",
            *("--topic", topic, "--num-records", "1", "--record-size", "10", "--throughput", "-1"),
            *("--transactional-id", topic, "--bootstrap-server", self.address),
            within=40,
        )
        if done.returncode:
            raise Refused(done.stderr)

    # Topics

    def topics(self) -> dict[str, int]:
        described = self._run("kafka-topics", "--describe")
        return {name: int(count) for name, count in _DESCRIBED.findall(described)}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        given = _properties("--config", settings)
        count = ("--partitions", str(partitions))
        self._run("kafka-topics", "--create", "--topic", topic, *count, *given)

    def delete(self, topic: str) -> None:
        self._run("kafka-topics", "--delete", "--topic", topic)

    def add_partitions(self, topic: str, total: int) -> None:
        self._run("kafka-topics", "--alter", "--topic", topic, "--partitions", str(total))

    def trim(self, topic: str, partition: int, before: int) -> None:
        place = {"topic": topic, "partition": partition, "offset": before}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "offsets.json"
            path.write_text(json.dumps({"version": 1, "partitions": [place]}))
            self._run("kafka-delete-records", "--offset-json-file", str(path))

    def settings(self, topic: str) -> dict[str, str]:
        described = self._run("kafka-configs", "--describe", "--all", "--topic", topic)
        return dict(_SETTING.findall(described))

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        changes = ",".join(f"{name}={value}" for name, value in settings.items())
        self._run("kafka-configs", "--alter", "--topic", topic, "--add-config", changes)

    # Groups

    def groups(self) -> set[str]:
        return set(self._run("kafka-consumer-groups", "--list").split())

    def members(self, group: str) -> int:
        described = self._run("kafka-consumer-groups", "--describe", "--members", "--group", group)
        return described.count(f"\n{group} ")

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        described = self._run("kafka-consumer-groups", "--describe", "--group", group)
        return {(row[1], int(row[2])): int(row[3]) for row in _rows(described, group)}

    def lag(self, group: str) -> dict[tuple[str, int], int]:
        described = self._run("kafka-consumer-groups", "--describe", "--group", group)
        return {(row[1], int(row[2])): int(row[5]) for row in _rows(described, group)}

    def rewind(self, group: str, topic: str) -> None:
        whole = ("--reset-offsets", "--group", group, "--topic", topic)
        self._run("kafka-consumer-groups", *whole, "--to-earliest", "--execute")

    def delete_group(self, group: str) -> None:
        self._run("kafka-consumer-groups", "--delete", "--group", group)


def _properties(option: str, properties: Mapping[str, str]) -> list[str]:
    return [each for name, value in properties.items() for each in (option, f"{name}={value}")]


def _rows(described: str, group: str) -> list[list[str]]:
    """Group, topic, partition, committed offset, end, lag, and who reads there."""
    lines = [line.split() for line in described.splitlines() if line.startswith(f"{group} ")]
    return [row for row in lines if row[3] != "-"]


def _line(record: Record) -> str:
    headers = ",".join(f"{name}:{_text(value)}" for name, value in record.headers)
    return SEPARATOR.join((headers or NULL, _text(record.key), _text(record.value)))


def _text(content: bytes | None) -> str:
    return NULL if content is None else content.decode()


def _record(topic: str, line: str) -> Record:
    time, partition, offset, headers, key, value = line.split(SEPARATOR, 5)
    return Record(
        value=_bytes(value),
        key=_bytes(key),
        headers=() if headers == "NO_HEADERS" else tuple(map(_header, headers.split(","))),
        timestamp=int(time.partition(":")[2]),
        topic=topic,
        partition=int(partition.partition(":")[2]),
        offset=int(offset.partition(":")[2]),
    )


def _header(text: str) -> Header:
    name, _, value = text.partition(":")
    return name, _bytes(value)


def _bytes(text: str) -> bytes | None:
    return None if text == NULL else text.encode()
