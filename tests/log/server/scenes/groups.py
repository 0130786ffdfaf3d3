"""Groups, their members and their offsets."""

import struct
from datetime import timedelta
from typing import Any
from uuid import uuid4

from tests.log.server.plain_client import PlainClient
from tests.log.server.scenes.stage import SESSION, new_topic, scene


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
    return [
        client.ask("find_coordinator", version, key="g", key_type=0, coordinator_keys=["g", "h"])
    ]


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
