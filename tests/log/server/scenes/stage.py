"""The stage on which scenes play: one scene for each API, with all that must come before it.

A scene asks in the version under test. It plays against any server, so that its answers can be
read here and compared with Kafka's.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from penstock.events.batch import encode
from penstock.events.record import Record
from penstock.testing import wait_until
from tests.log.server.plain_client import PlainClient

SESSION = timedelta(seconds=30)
NO_SUCH_ID = UUID("00000000-0000-4000-8000-00000000beef")

Scene = Callable[[PlainClient, int], list[Any]]
SCENES: dict[str, Scene] = {}


def scene(play: Scene) -> Scene:
    """Enters a scene under kio's name for the API that it shows."""
    SCENES[play.__name__] = play
    return play


def new_topic(
    client: PlainClient,
    partitions: int = 2,
    records: int = 3,
    *,
    prefix: str = "topic",
    **settings: Any,
) -> str:
    """A topic with its first records a second apart, once the server is ready to serve it."""
    name = f"{prefix}-{uuid4().hex}"
    client.create_topic(name, partitions, **settings)
    await_partitions(client, name, partitions)
    if records:
        assert client.produce(name, dated(records)).error_code == 0
    return name


def new_producer_id(client: PlainClient) -> int:
    asked = {"transactional_id": None, "transaction_timeout": SESSION}
    return int(client.ask("init_producer_id", 4, **asked).producer_id)


def dated(count: int) -> bytes:
    return encode(
        [
            Record(value=b"%d" % number, timestamp=1_700_000_000_000 + number * 1_000)
            for number in range(count)
        ]
    )


def await_partitions(client: PlainClient, topic: str, count: int) -> UUID:
    """Waits until all partitions are served, which takes Kafka a moment; returns the topic's id."""

    def served() -> Any:
        found = client.ask(
            "metadata", 12, topics=[{"name": topic, "topic_id": None}], **NO_CREATION
        ).topics[0]
        ends = client.ask("list_offsets", 5, **listing(topic, dict.fromkeys(range(count), -1)))
        ready = not any(each.error_code for each in ends.topics[0].partitions)
        return found.topic_id if ready else None

    identity: UUID = wait_until(served, what=f"{count} partitions of {topic}")
    return identity


def listing(topic: str, times: dict[int, int]) -> dict[str, Any]:
    partitions = [
        {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        for partition, timestamp in times.items()
    ]
    topics = [{"name": topic, "partitions": partitions}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


NO_CREATION = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}


def await_absence(client: PlainClient, topic: str) -> None:
    wait_until(
        lambda: (
            client.ask("metadata", 8, topics=[{"name": topic}], **NO_CREATION).topics[0].error_code
        ),
        what=f"the end of {topic}",
    )


def await_coordinator(client: PlainClient) -> None:
    """Waits until groups are coordinated, which takes Kafka a moment after its start."""
    wait_until(
        lambda: client.ask("find_coordinator", 2, key="any", key_type=0).error_code == 0,
        within=30,
        what="a coordinator",
    )
    wait_until(
        lambda: client.ask("offset_fetch", 5, group_id="any", topics=None).error_code == 0,
        within=30,
        what="a coordinator that has loaded",
    )
