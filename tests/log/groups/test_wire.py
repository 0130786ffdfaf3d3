"""Every request about groups, in every version that is offered, through bytes and back."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from penstock.log.groups.group import State
from tests.log.groups.fakes import DISK
from tests.log.groups.kafka_bytes import assignment, subscription
from tests.log.groups.wire import Wire, api_of, versions

NONE = ErrorCode.none
SESSION = timedelta(seconds=10)
PART = subscription("t")

Scenario = Callable[[Wire, int], Awaitable[None]]


def play(scenario: Scenario, version: int) -> None:
    async def run() -> None:
        wire = Wire()
        await scenario(wire, version)
        wire.groups.close()

    asyncio.run(run())


JOIN = {
    "group_id": "g",
    "session_timeout": SESSION,
    "rebalance_timeout": SESSION,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": PART}],
}


async def begin_join(wire: Wire) -> Awaitable[Any]:
    """The answer to come of a new member's join, which waits for the others."""
    answer = await wire.ask("join_group", 9, **JOIN)
    return wire.start("join_group", 9, **JOIN | {"member_id": answer.member_id})


async def join(wire: Wire, version: int = 9, **values: Any) -> Any:
    """The answer to a join that has been given an id first, where the version has that."""
    asked = JOIN | values
    answer = await wire.ask("join_group", version, **asked)
    if answer.error_code is ErrorCode.member_id_required:
        return await wire.ask("join_group", version, **asked | {"member_id": answer.member_id})
    return answer


async def member(wire: Wire, **values: Any) -> str:
    """The id of the one member of a stable group."""
    joined = await join(wire, **values)
    parts = [{"member_id": joined.member_id, "assignment": assignment(("t", 0), ("t", 1))}]
    synced = await wire.ask(
        "sync_group",
        4,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=values.get("group_instance_id"),
        assignments=parts,
    )
    assert synced.error_code is NONE
    return str(joined.member_id)


def each_version(schema: str, since: int = 0) -> pytest.MarkDecorator:
    offered = [version for _, version in versions(schema) if version >= since]
    return pytest.mark.parametrize("version", offered, ids=lambda v: f"v{v}")


@pytest.mark.parametrize(
    ("schema", "key", "oldest", "newest"),
    [
        ("offset_commit", 8, 2, 9),
        ("offset_fetch", 9, 1, 9),
        ("find_coordinator", 10, 0, 6),
        ("join_group", 11, 0, 9),
        ("heartbeat", 12, 0, 4),
        ("leave_group", 13, 0, 5),
        ("sync_group", 14, 0, 5),
        ("describe_groups", 15, 0, 6),
        ("list_groups", 16, 0, 5),
        ("delete_groups", 42, 0, 2),
        ("offset_delete", 47, 0, 0),
    ],
)
def test_what_is_offered(schema: str, key: int, oldest: int, newest: int) -> None:
    offered = api_of(schema)
    assert (offered.key, offered.oldest, offered.newest) == (key, oldest, newest)


@each_version("find_coordinator")
def test_find_coordinator(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        answer = await wire.ask("find_coordinator", version, key="g", coordinator_keys=["g", "h"])
        found = answer.coordinators if version >= 4 else [answer]
        for each in found:
            assert (each.error_code, each.node_id) == (NONE, 1)
            assert (each.host, each.port) == ("127.0.0.1", 9092)
        if version >= 4:
            assert [each.key for each in found] == ["g", "h"]

    play(scenario, version)


@pytest.mark.parametrize(
    ("kind", "error"),
    [(1, ErrorCode.transactional_id_authorization_failed), (2, ErrorCode.invalid_request)],
)
@each_version("find_coordinator", since=1)
def test_there_are_no_coordinators_of_other_kinds(
    version: int, kind: int, error: ErrorCode
) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        asked = {"key": "x", "coordinator_keys": ["x"], "key_type": kind}
        answer = await wire.ask("find_coordinator", version, **asked)
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code is error
        assert not found.error_code.retriable
        assert found.error_message
        assert (found.node_id, found.host, found.port) == (-1, "", -1)

    play(scenario, version)


@each_version("join_group")
def test_join_group(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        asked = dict(JOIN)
        first = await wire.ask("join_group", version, **asked)
        if version >= 4:
            assert first.error_code is ErrorCode.member_id_required
            asked["member_id"] = first.member_id
            first = await wire.ask("join_group", version, **asked)
        assert (first.error_code, first.generation_id, first.protocol_name) == (NONE, 1, "range")
        assert first.leader == first.member_id
        assert first.member_id.startswith("app-")
        (only,) = first.members
        assert (only.member_id, only.metadata) == (first.member_id, PART)
        assert getattr(first, "protocol_type", "consumer") == "consumer"
        assert not getattr(first, "skip_assignment", False)

    play(scenario, version)


@each_version("join_group")
def test_join_group_refused(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        answer = await join(wire, version, group_id="")
        assert answer.error_code is ErrorCode.invalid_group_id
        assert (answer.generation_id, answer.members) == (-1, ())
        assert answer.protocol_name == (None if version >= 7 else "")
        answer = await join(wire, version, session_timeout=timedelta(milliseconds=5_999))
        assert answer.error_code is ErrorCode.invalid_session_timeout
        answer = await join(wire, version, protocols=[])
        assert answer.error_code is ErrorCode.inconsistent_group_protocol

    play(scenario, version)


@each_version("join_group", since=5)
def test_join_group_static(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        old = await member(wire, group_instance_id="i")
        again = await join(wire, version, group_instance_id="i")
        assert (again.error_code, again.generation_id) == (NONE, 1)
        assert again.member_id != old
        if version >= 9:
            assert again.skip_assignment
            assert again.leader == again.member_id
            assert again.members[0].group_instance_id == "i"
        else:
            assert again.leader == old
            assert again.members == ()

    play(scenario, version)


@pytest.mark.parametrize(
    ("version", "milliseconds", "taken"),
    [(0, 7_000, 10_000), (1, 7_000, 7_000), (9, -1, 10_000), (9, -(2**31), 10_000)],
)
def test_without_a_rebalance_timeout_the_session_timeout_holds(
    version: int, milliseconds: int, taken: int
) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await join(wire, version, rebalance_timeout=timedelta(milliseconds=milliseconds))
        group = wire.groups.find("g")
        assert group is not None
        assert [m.rebalance_ms for m in group.members] == [taken]

    play(scenario, version)


@each_version("sync_group")
def test_sync_group(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        joined = await join(wire)
        asked = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        parts = [{"member_id": joined.member_id, "assignment": b"all"}]
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        answer = await wire.ask("sync_group", version, assignments=parts, **asked, **names)
        assert (answer.error_code, answer.assignment) == (NONE, b"all")
        if version >= 5:
            assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
            wrong = names | {"protocol_name": "sticky"}
            answer = await wire.ask("sync_group", version, assignments=[], **asked, **wrong)
            assert answer.error_code is ErrorCode.inconsistent_group_protocol
            answer = await wire.ask("sync_group", version, assignments=[], **asked)
            assert answer.error_code is ErrorCode.inconsistent_group_protocol, "not said at all"
        asked["generation_id"] = 2
        answer = await wire.ask("sync_group", version, assignments=[], **asked, **names)
        assert (answer.error_code, answer.assignment) == (ErrorCode.illegal_generation, b"")

    play(scenario, version)


@each_version("heartbeat")
def test_heartbeat(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        asked = {"group_id": "g", "generation_id": 1, "member_id": await member(wire)}
        assert (await wire.ask("heartbeat", version, **asked)).error_code is NONE
        asked["generation_id"] = 7
        answer = await wire.ask("heartbeat", version, **asked)
        assert answer.error_code is ErrorCode.illegal_generation
        asked["member_id"] = "x"
        answer = await wire.ask("heartbeat", version, **asked)
        assert answer.error_code is ErrorCode.unknown_member_id

    play(scenario, version)


@each_version("heartbeat", since=3)
def test_heartbeat_of_a_fenced_member(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await member(wire, group_instance_id="i")
        asked = {"group_id": "g", "generation_id": 1, "member_id": "x", "group_instance_id": "i"}
        answer = await wire.ask("heartbeat", version, **asked)
        assert answer.error_code is ErrorCode.fenced_instance_id

    play(scenario, version)


@each_version("leave_group")
def test_leave_group(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        one = await member(wire)
        members = [{"member_id": one, "reason": "done"}, {"member_id": "x"}]
        answer = await wire.ask(
            "leave_group", version, group_id="g", member_id=one, members=members
        )
        assert answer.error_code is NONE
        if version >= 3:
            errors = [(each.member_id, each.error_code) for each in answer.members]
            assert errors == [(one, NONE), ("x", ErrorCode.unknown_member_id)]
        again = await wire.ask("leave_group", version, group_id="g", member_id=one, members=[])
        assert again.error_code is (ErrorCode.unknown_member_id if version < 3 else NONE)
        other = await wire.ask("leave_group", version, group_id="x", member_id="x", members=members)
        if version < 3:
            assert other.error_code is ErrorCode.unknown_member_id
        else:
            unknown = ErrorCode.unknown_member_id
            assert [each.error_code for each in other.members] == [unknown, unknown]
        none = await wire.ask("leave_group", version, group_id="", member_id="x", members=members)
        assert none.error_code is ErrorCode.invalid_group_id

    play(scenario, version)


@each_version("leave_group", since=3)
def test_leave_group_by_name(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await member(wire, group_instance_id="i")
        leaving = [{"member_id": "", "group_instance_id": "i"}]
        answer = await wire.ask("leave_group", version, group_id="g", members=leaving)
        (left,) = answer.members
        assert (left.error_code, left.member_id, left.group_instance_id) == (NONE, "", "i")

    play(scenario, version)


@each_version("list_groups")
def test_list_groups(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await member(wire)
        await commit(wire, group_id="simple")
        answer = await wire.ask("list_groups", version)
        assert answer.error_code is NONE
        assert [(each.group_id, each.protocol_type) for each in answer.groups] == [
            ("g", "consumer"),
            ("simple", ""),
        ]
        if version >= 4:
            assert [each.group_state for each in answer.groups] == ["Stable", "Empty"]
            some = await wire.ask("list_groups", version, states_filter=["stable", "Dead"])
            assert [each.group_id for each in some.groups] == ["g"]
        if version >= 5:
            assert {each.group_type for each in answer.groups} == {"classic"}
            for wanted, number in (["Classic"], 2), (["consumer"], 0):
                some = await wire.ask("list_groups", version, types_filter=wanted)
                assert len(some.groups) == number

    play(scenario, version)


@each_version("describe_groups")
def test_describe_groups(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        one = await member(wire, group_instance_id="i")
        asked = {"groups": ["g", "x"], "include_authorized_operations": True}
        group, missing = (await wire.ask("describe_groups", version, **asked)).groups
        assert (group.error_code, group.group_id, group.group_state) == (NONE, "g", "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (only,) = group.members
        assert (only.member_id, only.client_id, only.client_host) == (one, "app", "127.0.0.1")
        assert only.member_metadata == PART
        assert only.member_assignment == assignment(("t", 0), ("t", 1))
        assert getattr(only, "group_instance_id", "i") == "i"
        assert getattr(group, "authorized_operations", 328) == 328
        assert (missing.group_id, missing.group_state, missing.members) == ("x", "Dead", ())
        if version >= 6:
            assert missing.error_code is ErrorCode.group_id_not_found
            assert "x" in missing.error_message
        else:
            assert missing.error_code is NONE
        (plain,) = (
            await wire.ask(
                "describe_groups", version, groups=["g"], include_authorized_operations=False
            )
        ).groups
        assert getattr(plain, "authorized_operations", -(2**31)) == -(2**31)

    play(scenario, version)


def test_describe_groups_shows_no_assignment_during_a_rebalance() -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await member(wire)
        waiting = await begin_join(wire)
        asked = {"groups": ["g"], "include_authorized_operations": False}
        (group,) = (await wire.ask("describe_groups", version, **asked)).groups
        assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
        assert {(m.member_metadata, m.member_assignment) for m in group.members} == {(b"", b"")}
        wire.groups.close()
        assert (await waiting).error_code is ErrorCode.coordinator_not_available

    play(scenario, 6)


@each_version("delete_groups")
def test_delete_groups(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await member(wire)
        await commit(wire, group_id="empty")
        names = ["g", "empty", "x", ""]
        answer = await wire.ask("delete_groups", version, groups_names=names)
        assert {each.group_id: each.error_code for each in answer.results} == {
            "g": ErrorCode.non_empty_group,
            "empty": NONE,
            "x": ErrorCode.group_id_not_found,
            "": ErrorCode.invalid_group_id,
        }
        assert wire.groups.find("empty") is None

    play(scenario, version)


async def commit(wire: Wire, version: int = 9, **values: Any) -> dict[tuple[str, int], ErrorCode]:
    asked = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 5,
                        "committed_leader_epoch": 3,
                        "committed_metadata": "note",
                    }
                ],
            }
        ],
    } | values
    answer = await wire.ask("offset_commit", version, **asked)
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


@each_version("offset_commit")
def test_offset_commit(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        assert await commit(wire, version) == {("t", 0): NONE}
        committed = wire.groups.offsets.get("g", "t", 0)
        assert committed is not None
        assert (committed.offset, committed.note) == (5, "note")
        assert committed.leader_epoch == (3 if version >= 6 else -1)

    play(scenario, version)


@each_version("offset_commit")
def test_offset_commit_refused(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        one = {"committed_offset": 1, "committed_metadata": None}
        places = [{"partition_index": index, **one} for index in (0, 1, 2, -1)]
        topics = [{"name": "t", "partitions": places}, {"name": "x", "partitions": places[:1]}]
        unknown = ErrorCode.unknown_topic_or_partition
        elsewhere = {("t", 2): unknown, ("t", -1): unknown, ("x", 0): unknown}
        assert await commit(wire, version, topics=topics) == elsewhere | {
            ("t", 0): NONE,
            ("t", 1): NONE,
        }
        error = ErrorCode.unknown_member_id
        generation = {"generation_id_or_member_epoch": 3, "member_id": "y"}
        assert await commit(wire, version, topics=topics, **generation) == elsewhere | {
            ("t", 0): error,
            ("t", 1): error,
        }
        assert await commit(wire, version, topics=topics[1:], **generation) == {("x", 0): unknown}
        absent = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
        assert await commit(wire, version, group_id="h", **generation) == {("t", 0): absent}

    play(scenario, version)


@each_version("offset_commit")
def test_offset_commit_waits_for_the_disk(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        wire.journal.syncs = False
        waiting = asyncio.ensure_future(commit(wire, version))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        # As the journal does it: from a thread of its own.
        await asyncio.to_thread(wire.journal.sync)
        assert await waiting == {("t", 0): NONE}
        wire.journal.syncs = True
        wire.journal.refuses = DISK
        assert await commit(wire, version) == {("t", 0): ErrorCode.kafka_storage_error}

    play(scenario, version)


@each_version("offset_commit", since=7)
def test_offset_commit_of_a_fenced_member(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await member(wire, group_instance_id="i")
        other = {"member_id": "x", "group_instance_id": "i", "generation_id_or_member_epoch": 1}
        errors = await commit(wire, version, **other)
        assert errors == {("t", 0): ErrorCode.fenced_instance_id}

    play(scenario, version)


async def fetch(wire: Wire, version: int, topics: Any, group: str = "g") -> Any:
    groups = [{"group_id": group, "topics": topics}]
    answer = await wire.ask("offset_fetch", version, group_id=group, topics=topics, groups=groups)
    if version >= 8:
        (only,) = answer.groups
        assert only.group_id == group
        answer = only
    assert getattr(answer, "error_code", NONE) is NONE
    return {
        (topic.name, partition.partition_index): (
            partition.committed_offset,
            getattr(partition, "committed_leader_epoch", 3),
            partition.metadata,
            partition.error_code,
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


@each_version("offset_fetch")
def test_offset_fetch(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await commit(wire)
        epoch = -1 if version >= 5 else 3
        topics = [{"name": "t", "partition_indexes": [0, 1]}]
        assert await fetch(wire, version, topics) == {
            ("t", 0): (5, 3, "note", NONE),
            ("t", 1): (-1, epoch, "", NONE),
        }
        assert await fetch(wire, version, topics, "x") == {
            ("t", 0): (-1, epoch, "", NONE),
            ("t", 1): (-1, epoch, "", NONE),
        }
        assert await fetch(wire, version, []) == {}
        if version >= 2:
            assert await fetch(wire, version, None) == {("t", 0): (5, 3, "note", NONE)}
            assert await fetch(wire, version, None, "x") == {}

    play(scenario, version)


@each_version("offset_delete")
def test_offset_delete(version: int) -> None:
    async def scenario(wire: Wire, version: int) -> None:
        await commit(wire)
        places = [{"partition_index": 0}, {"partition_index": 2}]
        topics = [{"name": "t", "partitions": places}, {"name": "x", "partitions": places[:1]}]

        async def delete(group: str) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
            answer = await wire.ask("offset_delete", version, group_id=group, topics=topics)
            return answer.error_code, {
                (topic.name, partition.partition_index): partition.error_code
                for topic in answer.topics
                for partition in topic.partitions
            }

        unknown = ErrorCode.unknown_topic_or_partition
        elsewhere = {("t", 2): unknown, ("x", 0): unknown}
        assert await delete("h") == (ErrorCode.group_id_not_found, {})
        one = await member(wire)
        read = {("t", 0): ErrorCode.group_subscribed_to_topic}
        assert await delete("g") == (NONE, elsewhere | read)
        wire.groups.leave("g", [(one, None)])
        assert await delete("g") == (NONE, elsewhere | {("t", 0): NONE})
        assert wire.groups.offsets.of("g") == {}

    play(scenario, version)


def test_requests_of_a_client_are_taken_up_in_their_order() -> None:
    async def scenario(wire: Wire, version: int) -> None:
        one = await member(wire)
        place = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        committing = wire.start(
            "offset_commit",
            version,
            group_id="g",
            member_id=one,
            generation_id_or_member_epoch=1,
            topics=[{"name": "t", "partitions": [place]}],
        )
        leaving = wire.start("leave_group", 5, group_id="g", members=[{"member_id": one}])
        (topic,) = (await committing).topics
        assert topic.partitions[0].error_code is NONE
        assert (await leaving).error_code is NONE

    play(scenario, 9)


def test_a_client_that_goes_while_it_waits_does_no_harm() -> None:
    async def scenario(wire: Wire, version: int) -> None:
        one = await member(wire)
        waiting = asyncio.ensure_future(await begin_join(wire))
        await asyncio.sleep(0)
        waiting.cancel()
        again = await join(wire, member_id=one)
        assert again.error_code is NONE
        group = wire.groups.find("g")
        assert group is not None
        assert group.state is State.COMPLETING

    play(scenario, 9)
