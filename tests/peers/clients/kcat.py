"""kcat, a producer and consumer on the command line; it has no hand in topics and groups."""

import itertools
import json
import re
import subprocess
from collections.abc import Iterable
from typing import Any

from penstock.events.record import Header, Record
from tests.peers.clients.contract import (
    HEARTBEAT_MS,
    SESSION_MS,
    SOMEHOW,
    Client,
    Feed,
    Follower,
    Reading,
    Refused,
    Sending,
)
from tests.peers.clients.program import LineFeed, follow

SEPARATOR = "\t"
_OFFSET = re.compile(r"offset (-?\d+)")


class Kcat(Client):
    name = "kcat"
    cooperates = True
    dates = False

    def _command(self, *arguments: str, **settings: Any) -> list[str]:
        settings |= {"reconnect_backoff_max_ms": 500, "topic_metadata_refresh_interval_ms": 1_000}
        options = [f"-X{name.replace('_', '.')}={setting}" for name, setting in settings.items()]
        return ["kcat", "-b", self.address, *options, *arguments]

    # Records

    def feed(self, topic: str, how: Sending) -> Feed:
        return self._feed(topic, how, (), None)

    def _feed(
        self, topic: str, how: Sending, headers: tuple[Header, ...], partition: int | None
    ) -> Feed:
        """kcat gives all records of one run the same headers and, if any, the same partition."""
        command = self._command(
            *("-P", "-t", topic, "-K", SEPARATOR, "-Z", "-z", how.codec),
            *(f"-H{name}={(value or b'').decode()}" for name, value in headers),
            *(() if partition is None else ("-p", str(partition))),
            acks=how.acks,
            enable_idempotence=str(how.idempotent).lower(),
            message_max_bytes=how.largest,
            message_timeout_ms=how.patience_ms,
            topic_metadata_propagation_max_ms=how.patience_ms,
        )
        return LineFeed(command, _line, "Delivery failed", "ERROR")

    def produce(self, topic: str, records: Iterable[Record], how: Sending = SOMEHOW) -> None:
        alike = itertools.groupby(records, key=lambda each: (each.headers, each.partition))
        for (headers, partition), run in alike:
            with self._feed(topic, how, headers, partition) as feed:
                for record in run:
                    feed.send(record)

    def read(self, topic: str, how: Reading, into: Follower) -> None:
        settings: dict[str, Any] = {
            "auto_offset_reset": how.start,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "partition_assignment_strategy": how.strategy,
        }
        if how.instance:
            settings["group_instance_id"] = how.instance
        start = "beginning" if how.start == "earliest" else "end"
        place = ("-G", how.group, topic) if how.group else ("-C", "-t", topic, "-o", start)
        count = () if how.count is None else ("-c", str(how.count))
        # The topic of a group is what is left of the arguments, so it comes last.
        follow(self._command("-J", "-q", "-u", *count, *place, **settings), _record, into)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        found = self._offset(topic, partition, timestamp)
        return self._offset(topic, partition, -1) if found < 0 else found

    def _offset(self, topic: str, partition: int, timestamp: int) -> int:
        asked = _run(self._command("-Q", "-t", f"{topic}:{partition}:{timestamp}"))
        found = _OFFSET.search(asked)
        assert found, asked
        return int(found[1])

    # Topics

    def topics(self) -> dict[str, int]:
        found = json.loads(_run(self._command("-L", "-J")))
        return {topic["topic"]: len(topic["partitions"]) for topic in found["topics"]}


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def _line(record: Record) -> str:
    """Key and value; an empty one stands for none."""
    assert b"" not in (record.key, record.value)
    return f"{(record.key or b'').decode()}{SEPARATOR}{(record.value or b'').decode()}"


def _record(line: str) -> Record:
    found = json.loads(line)
    names_and_values = iter(found.get("headers", ()))
    return Record(
        value=_bytes(found["payload"]),
        key=_bytes(found["key"]),
        headers=tuple((name, _bytes(next(names_and_values))) for name in names_and_values),
        timestamp=found["ts"],
        topic=found["topic"],
        partition=found["partition"],
        offset=found["offset"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
