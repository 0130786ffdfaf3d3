"""A real Apache Kafka, started from its jars: the yardstick of the log's tests and benchmarks.

The jars are kept in `penstock/kafka-VERSION` of the user's cache folder; `make peers` puts them
there.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock import clock
from penstock.errors import LogUnreachable
from penstock.testing.answering import answers
from penstock.testing.child import Child

KAFKA_VERSION = "4.3.1"

_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_START_WITHIN = 60.0
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
# What Kafka's own start script gives the JVM.
_SERVER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    _QUIET,
)
# A tool lives for a second or two: start quickly, stay small.
_TOOL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", _QUIET)

# Kafka's console tools, by the names of its scripts.
TOOLS = {
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}


def jars_folder(name: str, version: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "penstock" / f"{name}-{version}"


def kafka_jars() -> Path:
    return jars_folder("kafka", KAFKA_VERSION)


def kafka_missing() -> str:
    """What Apache Kafka lacks to run here, in one line; empty when nothing is missing."""
    if shutil.which("java") is None:
        return "Apache Kafka needs Java, which is not installed"
    if not kafka_jars().is_dir():
        return f"Apache Kafka's jars are not in {kafka_jars()}"
    return ""


def kafka_tool_command(tool: str, *arguments: str) -> list[str]:
    """The command that runs one of TOOLS, for who talks to it while it runs."""
    return _java(*_TOOL_JVM, TOOLS[tool], *arguments)


def run_kafka_tool(
    tool: str, *arguments: str, stdin: str = "", within: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Runs one of TOOLS to its end; the caller looks at its return code and output.

    Raises subprocess.TimeoutExpired after `within` seconds, when the tool has been killed.
    """
    return subprocess.run(
        kafka_tool_command(tool, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )


class KafkaProcess:
    """One node, broker and controller at once, on loopback, its data in a temporary folder.

    `startup_seconds` is the time from the start of its process to its first answer.
    """

    def __init__(
        self, *, heap: str = "512m", properties: Mapping[str, str | int] | None = None
    ) -> None:
        """Starts it and waits until it answers. Raises LogUnreachable when that cannot be.

        `heap` is the JVM's, 1g in Kafka's own start script; `properties` go into its
        `server.properties`.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-kafka-"))
        try:
            port, controller_port = _free_ports(2)
            self.address = f"127.0.0.1:{port}"
            configuration = self._configure(controller_port, properties or {})
            self._format(configuration)
            started = clock.monotonic()
            self._child = Child(
                _java(f"-Xms{heap}", f"-Xmx{heap}", *_SERVER_JVM, "kafka.Kafka", configuration)
            )
            self._child.wait_until(
                lambda: answers(self.address), within=_START_WITHIN, what="an answer from Kafka"
            )
            self.startup_seconds = clock.monotonic() - started
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def _configure(self, controller_port: int, properties: Mapping[str, str | int]) -> str:
        settings: dict[str, str | int] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **properties,
        }
        path = self._folder / "server.properties"
        path.write_text("".join(f"{name}={setting}\n" for name, setting in settings.items()))
        return str(path)

    def _format(self, configuration: str) -> None:
        tool = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", configuration)
        done = subprocess.run(
            _java(*_TOOL_JVM, *tool), capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise LogUnreachable("Kafka's data folder cannot be formatted", hint=done.stderr)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def resident_bytes(self) -> int:
        return self._child.resident_bytes

    def stop(self) -> None:
        """Ends it and removes its data."""
        self._child.stop()
        self._child.close()
        shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _java(*arguments: str) -> list[str]:
    if missing := kafka_missing():
        raise LogUnreachable(missing, hint="run `make peers` in penstock's repository")
    return ["java", "-cp", f"{kafka_jars()}/*", *arguments]


def _free_ports(count: int) -> list[int]:
    # Open together, so that they differ.
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
