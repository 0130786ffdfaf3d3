"""One scene for each API: what is asked in a version under test, with all that must come before it.

A scene plays against any server, so that its answers can be read here and compared with Kafka's.
"""

import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from penstock.events.batch import encode
from penstock.events.record import Record
from penstock.testing import wait_until
from tests.log.server.plain_client import PlainClient, batch, creation, fetching, production

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
        lambda: client.ask("metadata", 8, topics=[{"name": topic}], **NO_CREATION)
        .topics[0]
        .error_code,
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


# Records


@scene
def produce(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client, records=0)
    wanted = [
        production(topic, batch(b"a", b"b")),
        production(topic, batch(b"c")),
        production(topic, batch(b"d"), 1, acks=1),
        production(topic, batch(b"e"), 9),
        production(topic, batch(b"e"), acks=7),
    ]
    return [client.ask("produce", version, **each) for each in wanted]


@scene
def fetch(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)
    key: Any = await_partitions(client, topic, 2) if version >= 13 else topic
    unknown: Any = NO_SUCH_ID if version >= 13 else "no-such-topic"
    wanted: list[dict[Any, dict[int, int]]] = [
        {key: {0: 0, 1: 0}},
        {key: {0: 2}},
        {key: {0: 4}},
        {key: {0: -7, 9: 0}},
        {unknown: {0: 0}},
    ]
    answers = [client.ask("fetch", version, **fetching(each)) for each in wanted]
    mixed = client.ask("fetch", version, **fetching({unknown: {0: 0}, key: {0: 0}}))
    # In any order: Kafka puts those that it knows first.
    return [*answers, sorted(mixed.responses, key=lambda topic: topic.partitions[0].error_code)]


@scene
def list_offsets(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)
    times = [-1, -2, 1_700_000_000_000, 1_700_000_000_001, 1_700_000_002_000, 1_700_000_002_001, 0]
    times += [-3] if version >= 7 else []
    times += [-4] if version >= 8 else []

    def ask(name: str, partition: int, timestamp: int) -> Any:
        return client.ask("list_offsets", version, **listing(name, {partition: timestamp}))

    return [
        *(ask(topic, partition, timestamp) for partition in (0, 1) for timestamp in times),
        ask(topic, 9, -1),
        ask("no-such-topic", 0, -1),
    ]


@scene
def delete_records(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)

    def ask(name: str, partition: int, offset: int) -> Any:
        asked = {"partition_index": partition, "offset": offset}
        return client.ask(
            "delete_records",
            version,
            topics=[{"name": name, "partitions": [asked]}],
            timeout=SESSION,
        )

    return [
        ask(topic, 0, 2),
        ask(topic, 0, 1),
        ask(topic, 0, 4),
        ask(topic, 0, -2),
        ask(topic, 0, -1),
        ask(topic, 9, 0),
        ask("no-such-topic", 0, 0),
    ]


@scene
def init_producer_id(client: PlainClient, version: int) -> list[Any]:
    fresh = {"transactional_id": None, "transaction_timeout": SESSION}
    answers = [client.ask("init_producer_id", version, **fresh)]
    if version >= 3:
        known = {
            "producer_id": answers[0].producer_id,
            "producer_epoch": answers[0].producer_epoch,
        }
        answers.append(client.ask("init_producer_id", version, **fresh, **known))
    return answers


# The cluster


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
        _described(client, version, [first, second], 100, {"topic_name": first, "partition_index": 1}),
        _described(client, version, [first, second], 1, {"topic_name": second, "partition_index": 0}),
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


# Topics


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


# Groups


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins: version 0, its topics, nothing of its own."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    name = topic.encode()
    given = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 0, 1, len(name)) + name + given + struct.pack(">i", -1)


def joining(group: str, member: str = "", topic: str = "t", **values: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": SESSION,
        "rebalance_timeout": SESSION,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
        "reason": "a test",
    } | values


def syncing(group: str, joined: Any, **values: Any) -> dict[str, Any]:
    given = {"member_id": joined.member_id, "assignment": assignment("t", 0)}
    return {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [given],
    } | values


def new_group(client: PlainClient, **values: Any) -> tuple[str, Any]:
    """A group with one member, which leads it and has its assignment; the answer to its join."""
    group = f"group-{uuid4().hex}"
    joined = client.ask("join_group", 3, **joining(group, **values))
    assert joined.error_code == 0
    assert client.ask("sync_group", 3, **syncing(group, joined)).error_code == 0
    return group, joined


def leaving(group: str, member: str) -> dict[str, Any]:
    members = [{"member_id": member, "group_instance_id": None, "reason": "a test"}]
    return {"group_id": group, "member_id": member, "members": members}


@scene
def find_coordinator(client: PlainClient, version: int) -> list[Any]:
    return [client.ask("find_coordinator", version, key="g", key_type=0, coordinator_keys=["g", "h"])]


@scene
def join_group(client: PlainClient, version: int) -> list[Any]:
    group = f"group-{uuid4().hex}"
    answers = [client.ask("join_group", version, **joining(group))]
    if version >= 4:
        again = joining(group, answers[0].member_id)
        answers.append(client.ask("join_group", version, **again))
    joined = answers[-1]
    assert client.ask("sync_group", 3, **syncing(group, joined)).error_code == 0
    wrong = [
        joining(group, "nobody"),
        joining(group, joined.member_id, protocols=[{"name": "other", "metadata": b""}]),
        joining(group, protocol_type="connect"),
        joining(group, protocols=()),
        joining(group, session_timeout=timedelta(milliseconds=5)),
        joining(""),
        joining(f"{group}-2", "nobody"),
    ]
    answers += [client.ask("join_group", version, **each) for each in wrong]
    # The leader joins again: a rebalance in which it is alone.
    answers.append(client.ask("join_group", version, **joining(group, joined.member_id)))
    if version >= 5:
        static = joining(f"{group}-static", group_instance_id="one")
        first = client.ask("join_group", version, **static)
        assert client.ask("sync_group", 3, **syncing(f"{group}-static", first)).error_code == 0
        second = client.ask("join_group", version, **static)
        static_again = joining(f"{group}-static", first.member_id, group_instance_id="one")
        answers += [first, second, client.ask("join_group", version, **static_again)]
    return answers


@scene
def sync_group(client: PlainClient, version: int) -> list[Any]:
    group = f"group-{uuid4().hex}"
    joined = client.ask("join_group", 3, **joining(group))
    wanted = [
        syncing(group, joined, generation_id=joined.generation_id + 1),
        syncing(group, joined, member_id="nobody"),
        syncing(f"{group}-2", joined),
        syncing(group, joined),
        syncing(group, joined, assignments=()),
    ]
    if version >= 5:
        wanted += [
            syncing(group, joined, protocol_type="connect"),
            syncing(group, joined, protocol_name="other"),
            syncing(group, joined, protocol_name=None),
        ]
    return [client.ask("sync_group", version, **each) for each in wanted]


@scene
def heartbeat(client: PlainClient, version: int) -> list[Any]:
    group, joined = new_group(client)

    def ask(name: str, member: str, generation: int) -> Any:
        values = {"group_id": name, "member_id": member, "generation_id": generation}
        return client.ask("heartbeat", version, **values)

    return [
        ask(group, joined.member_id, joined.generation_id),
        ask(group, joined.member_id, joined.generation_id + 1),
        ask(group, "nobody", joined.generation_id),
        ask(f"{group}-2", joined.member_id, joined.generation_id),
        ask("", joined.member_id, joined.generation_id),
    ]


@scene
def leave_group(client: PlainClient, version: int) -> list[Any]:
    group, joined = new_group(client)
    wanted = [
        leaving(group, "nobody"),
        leaving(group, joined.member_id),
        leaving(group, joined.member_id),
        leaving(f"{group}-2", "nobody"),
        leaving("", "nobody"),
    ]
    return [client.ask("leave_group", version, **each) for each in wanted]


@scene
def offset_commit(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)
    group, joined = new_group(client, topic=topic)

    def ask(
        name: str,
        place: tuple[str, int] = (topic, 0),
        *,
        member: str = "",
        generation: int = -1,
        offset: int = 2,
        note: str | None = "",
    ) -> Any:
        asked = {
            "partition_index": place[1],
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": note,
        }
        return client.ask(
            "offset_commit",
            version,
            group_id=name,
            generation_id_or_member_epoch=generation,
            member_id=member,
            retention_time=timedelta(milliseconds=-1),
            topics=[{"name": place[0], "partitions": [asked]}],
        )

    member, generation = joined.member_id, joined.generation_id
    return [
        ask(f"{group}-alone"),
        ask(f"{group}-alone", note=None),
        ask(f"{group}-alone", (topic, 9)),
        ask(f"{group}-alone", ("no-such-topic", 0)),
        ask(f"{group}-alone", note="x" * 5_000),
        ask(group, member=member, generation=generation),
        ask(group, member=member, generation=generation + 1),
        ask(group, member="nobody", generation=generation),
        ask(group),
        ask(f"{group}-2", member=member, generation=generation),
    ]


@scene
def offset_fetch(client: PlainClient, version: int) -> list[Any]:
    topic, group = new_topic(client), f"group-{uuid4().hex}"
    commit(client, group, topic, {0: 2})

    def ask(name: str, topics: list[dict[str, Any]] | None) -> Any:
        one = {"group_id": name, "topics": topics, "member_id": None, "member_epoch": -1}
        return client.ask("offset_fetch", version, **one, groups=[one], require_stable=False)

    here = [{"name": topic, "partition_indexes": [0, 1, 9]}]
    nowhere = [{"name": "no-such-topic", "partition_indexes": [0]}]
    answers = [ask(group, here), ask(group, nowhere), ask(f"{group}-2", here)]
    if version >= 2:
        answers += [ask(group, None), ask(f"{group}-2", None)]
    return answers


def commit(client: PlainClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "note",
        }
        for partition, offset in offsets.items()
    ]
    done = client.ask(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": partitions}],
    )
    assert done.topics[0].partitions[0].error_code == 0


@scene
def offset_delete(client: PlainClient, version: int) -> list[Any]:
    topic, group = new_topic(client), f"group-{uuid4().hex}"
    commit(client, group, topic, {0: 2})
    busy, _ = new_group(client, topic=topic)

    def ask(name: str, place: tuple[str, int]) -> Any:
        partitions = [{"partition_index": place[1]}]
        topics = [{"name": place[0], "partitions": partitions}]
        return client.ask("offset_delete", version, group_id=name, topics=topics)

    return [
        ask(group, (topic, 0)),
        ask(group, (topic, 1)),
        ask(group, (topic, 9)),
        ask(group, ("no-such-topic", 0)),
        ask(f"{group}-2", (topic, 0)),
        ask("", (topic, 0)),
        ask(busy, (topic, 0)),
        ask(busy, ("no-such-topic", 0)),
    ]


@scene
def list_groups(client: PlainClient, version: int) -> list[Any]:
    group, joined = new_group(client)

    def ask(states: list[str], types: list[str]) -> Any:
        answer = client.ask("list_groups", version, states_filter=states, types_filter=types)
        # Other tests have their groups here too.
        own = tuple(each for each in answer.groups if each.group_id == group)
        return {"error_code": answer.error_code, "groups": own}

    answers = [ask([], []), ask(["Stable"], ["classic"]), ask(["stable"], ["Classic"])]
    if version >= 4:
        answers += [ask(["Empty"], []), ask(["NoSuchState"], [])]
    if version >= 5:
        answers += [ask([], ["consumer"])]
    client.ask("leave_group", 5, **leaving(group, joined.member_id))
    return [*answers, ask([], []), ask(["Empty"], [])]


@scene
def describe_groups(client: PlainClient, version: int) -> list[Any]:
    group, joined = new_group(client)

    def ask(name: str, operations: bool = False) -> Any:
        groups = {"groups": [name], "include_authorized_operations": operations}
        return client.ask("describe_groups", version, **groups)

    answers = [ask(group), ask(f"{group}-2"), ask(group, operations=True)]
    client.ask("leave_group", 5, **leaving(group, joined.member_id))
    return [*answers, ask(group)]


@scene
def delete_groups(client: PlainClient, version: int) -> list[Any]:
    group, joined = new_group(client)

    def ask(*names: str) -> Any:
        return client.ask("delete_groups", version, groups_names=names)

    answers = [ask(group), ask(f"{group}-2")]
    client.ask("leave_group", 5, **leaving(group, joined.member_id))
    return [*answers, ask(group), ask(group)]
