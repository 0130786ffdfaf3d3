"""The cluster, its topics and their settings."""

from typing import Any
from uuid import UUID, uuid4

from tests.log.server.plain_client import PlainClient, creation
from tests.log.server.scenes.stage import (
    NO_CREATION,
    NO_SUCH_ID,
    SESSION,
    await_absence,
    await_partitions,
    new_topic,
    scene,
)


@scene
def api_versions(client: PlainClient, version: int) -> list[Any]:
    name = {"client_software_name": "plain", "client_software_version": "1"}
    return [client.ask("api_versions", version, **name)]


@scene
def metadata(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)
    named = {"topic_id": None, "name": topic}
    unknown = {"topic_id": None, "name": "no-such-topic"}
    wrong = {"topic_id": None, "name": "no/such/topic"}
    wanted: list[list[dict[str, Any]]] = [[named]]
    if version >= 4:  # earlier ones create what they ask for
        wanted += [[unknown], [wrong], [named, unknown], []]
    if version >= 12:
        identity = await_partitions(client, topic, 2)
        wanted += [[{"topic_id": identity, "name": None}], [{"topic_id": NO_SUCH_ID, "name": None}]]
    return [client.ask("metadata", version, topics=each, **NO_CREATION) for each in wanted]


@scene
def describe_cluster(client: PlainClient, version: int) -> list[Any]:
    wanted = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
    return [client.ask("describe_cluster", version, **wanted, include_fenced_brokers=False)]


@scene
def describe_topic_partitions(client: PlainClient, version: int) -> list[Any]:
    first = new_topic(client, 3, records=0, prefix="a")
    second = new_topic(client, 2, records=0, prefix="b")
    return [
        _described(client, version, [second, first], 100),
        _described(client, version, [first, second], 2),
        _described(client, version, [first, second], 3),
        _described(
            client, version, [first, second], 100, {"topic_name": first, "partition_index": 1}
        ),
        _described(
            client, version, [first, second], 1, {"topic_name": second, "partition_index": 0}
        ),
        _described(client, version, ["no-such-topic"], 100),
    ]


def _described(
    client: PlainClient,
    version: int,
    topics: list[str],
    limit: int,
    cursor: dict[str, Any] | None = None,
) -> Any:
    return client.ask(
        "describe_topic_partitions",
        version,
        topics=[{"name": name} for name in topics],
        response_partition_limit=limit,
        cursor=cursor,
    )


@scene
def create_topics(client: PlainClient, version: int) -> list[Any]:
    def ask(name: str, partitions: int = 2, *, dry: bool = False, **values: Any) -> Any:
        wanted = creation(name, partitions, **values)
        return client.ask("create_topics", version, **wanted, validate_only=dry)

    def setting(name: str, value: str | None) -> dict[str, Any]:
        return {"configs": [{"name": name, "value": value}]}

    name = f"made-{uuid4().hex}"
    placed = [{"partition_index": index, "broker_ids": [1]} for index in range(3)]
    gap = [{"partition_index": index, "broker_ids": [1]} for index in (0, 2)]
    answers = [
        ask(name, dry=True),
        ask(name, **setting("retention.ms", "12345")),
        ask(name),
        ask(name, dry=True),
        ask(f"{name}-0", 0),
        ask(f"{name}-0", -3),
        ask(f"{name}-0", replication_factor=0),
        ask(f"{name}-0", replication_factor=3),
        ask(f"{name}-0", **setting("no.such.setting", "1")),
        ask(f"{name}-0", **setting("retention.ms", "soon")),
        ask(f"{name}-0", **setting("retention.ms", None)),
        ask(f"{name}-0", -1, replication_factor=-1, assignments=placed),
        ask(f"{name}-1", -1, replication_factor=-1, assignments=gap),
        ask(f"{name}-1", 2, replication_factor=1, assignments=placed),
        ask("no/such/name"),
        ask(""),
        ask("."),
        ask("x" * 250),
    ]
    if version >= 4:
        answers.append(ask(f"{name}-2", -1, replication_factor=-1))
    return answers


@scene
def delete_topics(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)

    def ask(name: str | None, identity: UUID | None = None) -> Any:
        topics = [{"name": name, "topic_id": identity}]
        values = {"topics": topics, "topic_names": [name], "timeout": SESSION}
        return client.ask("delete_topics", version, **values)

    answers = [ask(topic)]
    await_absence(client, topic)
    answers += [ask(topic), ask("no/such/topic")]
    if version >= 6:
        other = new_topic(client)
        identity = await_partitions(client, other, 2)
        answers += [ask(other, identity), ask(None, NO_SUCH_ID), ask(None, identity)]
        await_absence(client, other)
        answers.append(ask(None, identity))
    return answers


@scene
def create_partitions(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)

    def ask(name: str, count: int, *, dry: bool = False, assignments: Any = None) -> Any:
        asked = {"name": name, "count": count, "assignments": assignments}
        return client.ask(
            "create_partitions", version, topics=[asked], timeout=SESSION, validate_only=dry
        )

    answers = [ask(topic, 4, dry=True), ask(topic, 3)]
    await_partitions(client, topic, 3)
    placed = [{"broker_ids": [1]}]
    answers += [
        ask(topic, 3),
        ask(topic, 2),
        ask(topic, 0),
        ask(topic, -1),
        ask("no-such-topic", 4),
        ask(topic, 5, assignments=placed),
        ask(topic, 4, assignments=placed),
    ]
    return answers


@scene
def describe_configs(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client, retention_ms=12345)

    def ask(name: str, *keys: str, kind: int = 2) -> Any:
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        return client.ask(
            "describe_configs",
            version,
            resources=[asked],
            include_synonyms=False,
            include_documentation=False,
        )

    return [
        ask(topic, "retention.ms", "max.message.bytes"),
        ask(topic, "no.such.setting"),
        ask("no-such-topic", "retention.ms"),
        ask("no/such/topic", "retention.ms"),
        ask("1", "num.partitions", kind=4),
        ask("7", "num.partitions", kind=4),
        ask("x", "num.partitions", kind=4),
        ask("", "no.such.setting", kind=4),
        ask("x", kind=99),
    ]


@scene
def incremental_alter_configs(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)

    def ask(
        name: str,
        setting: str,
        value: str | None,
        *,
        operation: int = 0,
        dry: bool = False,
        kind: int = 2,
    ) -> Any:
        change = {"name": setting, "config_operation": operation, "value": value}
        asked = {"resource_type": kind, "resource_name": name, "configs": [change]}
        return client.ask(
            "incremental_alter_configs", version, resources=[asked], validate_only=dry
        )

    return [
        ask(topic, "retention.ms", "1000", dry=True),
        ask(topic, "retention.ms", "1000"),
        ask(topic, "retention.ms", None, operation=1),
        ask(topic, "retention.ms", None),
        ask(topic, "retention.ms", "soon"),
        ask(topic, "retention.ms", "-2"),
        ask(topic, "no.such.setting", "1"),
        ask(topic, "retention.ms", "1", operation=2),
        ask(topic, "retention.ms", "1", operation=3),
        ask("no-such-topic", "retention.ms", "1000"),
        ask("no/such/topic", "retention.ms", "1000"),
        ask("x", "retention.ms", "1000", kind=99),
        ask("x", "retention.ms", "1000", kind=4),
    ]
