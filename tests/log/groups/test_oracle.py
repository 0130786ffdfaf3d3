"""The same requests to this log and to Apache Kafka get the same answers."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import copy
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from penstock.testing import KafkaProcess, LogServerProcess, wait_until
from tests.log.groups.kafka_bytes import assignment, subscription
from tests.log.groups.wire import read_response, write_request

WITHIN = 10.0
BUSY = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
}


class Server:
    """A log at an address, asked on one connection; `topic` has two partitions."""

    def __init__(self, address: str) -> None:
        self.group = f"group-{uuid4()}"
        self.topic = f"topic-{uuid4()}"
        self._address = address
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic(self.topic, 2)])[self.topic].result(WITHIN)
        self._connect()
        wait_until(self._ready, within=30, what="a coordinator")

    def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=WITHIN)

    def another(self) -> "Server":
        """A second connection, about the same group and topic; to be closed by the caller."""
        other = copy(self)
        other._connect()
        return other

    def _ready(self) -> bool:
        (found,) = self.ask("find_coordinator", 6, key_type=0, coordinator_keys=[self.group])[
            "coordinators"
        ]
        return found["error_code"] not in BUSY and self.heartbeat("x") not in BUSY

    def close(self) -> None:
        self._socket.close()

    def ask(self, schema: str, version: int, **values: Any) -> dict[str, Any]:
        self.send(schema, version, **values)
        return self.receive(schema, version)

    def send(self, schema: str, version: int, **values: Any) -> None:
        request = write_request(schema, version, values)
        self._socket.sendall(len(request).to_bytes(4, "big") + request)

    def receive(self, schema: str, version: int) -> dict[str, Any]:
        size = int.from_bytes(self._exactly(4), "big")
        answer = _plain(read_response(schema, version, self._exactly(size)))
        assert isinstance(answer, dict)
        return answer

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = self._socket.recv(count - len(got))
            assert more, "the server hung up"
            got += more
        return got

    def join_request(self, **values: Any) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "session_timeout": timedelta(seconds=30),
            "rebalance_timeout": timedelta(seconds=30),
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(self.topic)}],
        } | values

    def join(self, version: int = 9, **values: Any) -> dict[str, Any]:
        """The first answer; `joined` gives the one after an id was given out."""
        return self.ask("join_group", version, **self.join_request(**values))

    def joined(self, version: int = 9, **values: Any) -> dict[str, Any]:
        first = self.join(version, **values)
        if first["error_code"] is not ErrorCode.member_id_required:
            return first
        return self.join(version, **values | {"member_id": first["member_id"]})

    def sync(self, member: str, generation: int = 1, **values: Any) -> dict[str, Any]:
        parts = [{"member_id": member, "assignment": assignment((self.topic, 0))}]
        asked = {"group_id": self.group, "member_id": member, "generation_id": generation}
        asked |= {"protocol_type": "consumer", "protocol_name": "range", "assignments": parts}
        return self.ask("sync_group", 5, **asked | values)

    def member(self, **values: Any) -> str:
        """The id of the one member of a stable group."""
        member = str(self.joined(**values)["member_id"])
        kind = values.get("protocol_type", "consumer")
        instance = values.get("group_instance_id")
        synced = self.sync(member, protocol_type=kind, group_instance_id=instance)
        assert synced["error_code"] is ErrorCode.none
        return member

    def heartbeat(self, member: str, generation: int = 1, instance: str | None = None) -> ErrorCode:
        asked = {"group_id": self.group, "member_id": member, "generation_id": generation}
        error = self.ask("heartbeat", 4, group_instance_id=instance, **asked)["error_code"]
        assert isinstance(error, ErrorCode)
        return error

    def commit(self, version: int = 9, **values: Any) -> list[Any]:
        place = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "note"}
        place |= {name: values.pop(name) for name in list(values) if name in place}
        asked = {
            "group_id": self.group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": values.pop("topic", self.topic), "partitions": [place]}],
        }
        answer = self.ask("offset_commit", version, **asked | values)
        return [p["error_code"] for t in answer["topics"] for p in t["partitions"]]

    def fetch(self, version: int = 9, everything: bool = False) -> Any:
        topics = [{"name": self.topic, "partition_indexes": [0, 1, 7]}]
        groups = [{"group_id": self.group, "topics": None if everything else topics}]
        (group,) = self.ask("offset_fetch", version, groups=groups)["groups"]
        return group["error_code"], [
            {name: value for name, value in place.items() if name != "name"}
            for topic in group["topics"]
            for place in topic["partitions"]
        ]


def _plain(entity: Any) -> Any:
    if is_dataclass(entity):
        return {field.name: _plain(getattr(entity, field.name)) for field in fields(entity)}
    return [_plain(each) for each in entity] if isinstance(entity, tuple) else entity


Scenario = Callable[[Server], list[Any]]


def a_group_that_is_not_there(at: Server) -> list[Any]:
    member = {"member_id": "x", "generation_id_or_member_epoch": 1}
    places = [{"name": at.topic, "partitions": [{"partition_index": 0}]}]
    dropped = at.ask("offset_delete", 0, group_id=at.group, topics=places)
    described = [
        at.ask("describe_groups", v, groups=[at.group], include_authorized_operations=False)
        for v in (5, 6)
    ]
    deleted = at.ask("delete_groups", 2, groups_names=[at.group])
    leaving = at.ask("leave_group", 5, group_id=at.group, members=[{"member_id": "x"}])
    return [
        at.join(member_id="x")["error_code"],
        at.sync("x")["error_code"],
        at.heartbeat("x"),
        (leaving["error_code"], [m["error_code"] for m in leaving["members"]]),
        at.ask("leave_group", 2, group_id=at.group, member_id="x")["error_code"],
        at.commit(8, **member),
        at.commit(9, **member),
        dropped["error_code"],
        [(d["groups"][0]["error_code"], d["groups"][0]["group_state"]) for d in described],
        deleted["results"][0]["error_code"],
        at.fetch(),
        at.fetch(everything=True),
    ]


def joins_that_are_refused(at: Server) -> list[Any]:
    several: list[dict[str, Any]] = [
        {"group_id": ""},
        {"session_timeout": timedelta(milliseconds=5_999)},
        {"session_timeout": timedelta(milliseconds=1_800_001)},
        {"session_timeout": timedelta(milliseconds=-1)},
        {"protocols": []},
        {"protocol_type": ""},
    ]
    to_an_empty_group = [at.join(**each) for each in several]
    at.member()
    more: list[dict[str, Any]] = [
        {"protocols": [{"name": "sticky", "metadata": b""}]},
        {"protocol_type": "connect"},
        {"member_id": "x"},
        {"member_id": "x", "group_instance_id": "i"},
    ]
    to_a_stable_group = [at.join(**each) for each in more]
    seen = ("error_code", "member_id", "generation_id", "protocol_name", "leader", "members")
    return [{name: a[name] for name in seen} for a in to_an_empty_group + to_a_stable_group]


def a_group_of_one(at: Server) -> list[Any]:
    first = at.join(8)
    prefix = first["member_id"][: -len(str(uuid4()))]
    joined = at.join(8, member_id=first["member_id"])
    member = joined["member_id"]
    leads = joined["leader"] == member
    again = at.join(8, member_id=member)
    synced = at.sync(member)
    described = at.ask(
        "describe_groups", 6, groups=[at.group], include_authorized_operations=False
    )["groups"][0]
    (shown,) = described["members"]
    return [
        (first["error_code"], prefix),
        (joined["error_code"], joined["generation_id"], joined["protocol_type"], leads),
        [(m["group_instance_id"], bool(m["metadata"])) for m in joined["members"]],
        (again["error_code"], again["generation_id"], len(again["members"])),
        (synced["error_code"], synced["protocol_name"], synced["assignment"][:6]),
        at.sync(member)["error_code"],
        at.sync(member, 7)["error_code"],
        at.sync("x")["error_code"],
        at.sync(member, protocol_name="sticky")["error_code"],
        at.sync(member, protocol_name=None)["error_code"],
        at.sync(member, protocol_type="connect")["error_code"],
        at.sync(member, group_instance_id="i")["error_code"],
        [at.heartbeat(member), at.heartbeat(member, 7), at.heartbeat("x"), at.heartbeat("")],
        [described[n] for n in ("error_code", "group_state", "protocol_type", "protocol_data")],
        (shown["client_id"], shown["group_instance_id"], bool(shown["member_assignment"])),
    ]


def commits(at: Server) -> list[Any]:
    before = [
        at.commit(),
        at.commit(committed_metadata="x" * 4_096, partition_index=1),
        at.commit(committed_metadata="x" * 4_097, partition_index=1),
        at.commit(committed_metadata=None, committed_offset=0),
        at.commit(partition_index=7),
        at.commit(partition_index=-1),
        at.commit(topic="nowhere"),
        at.commit(member_id="x", generation_id_or_member_epoch=3),
        at.commit(member_id="x"),
        at.fetch(),
        at.fetch(everything=True),
    ]
    member = at.member()
    of: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": 1}
    return [
        *before,
        at.commit(),
        at.commit(**of),
        at.commit(**of | {"generation_id_or_member_epoch": 0}),
        at.commit(**of | {"generation_id_or_member_epoch": -1}),
        at.commit(**of | {"member_id": "x"}),
        at.commit(**of | {"member_id": ""}),
        at.commit(group_instance_id="i", **of),
    ]


def deletions(at: Server) -> list[Any]:
    def drop() -> Any:
        places = [
            {"name": at.topic, "partitions": [{"partition_index": i} for i in (0, 1, 7)]},
            {"name": "nowhere", "partitions": [{"partition_index": 0}]},
        ]
        answer = at.ask("offset_delete", 0, group_id=at.group, topics=places)
        found = {
            (topic["name"] == at.topic, place["partition_index"]): place["error_code"]
            for topic in answer["topics"]
            for place in topic["partitions"]
        }
        return answer["error_code"], found

    def delete() -> Any:
        return at.ask("delete_groups", 2, groups_names=[at.group])["results"][0]["error_code"]

    at.commit()
    member = at.member()
    stable = [drop(), delete()]
    at.ask("leave_group", 5, group_id=at.group, members=[{"member_id": member}])
    return [*stable, drop(), at.fetch(everything=True), delete(), delete(), drop()]


def a_group_of_another_kind(at: Server) -> list[Any]:
    at.commit()
    at.member(protocol_type="connect")
    places = [{"name": at.topic, "partitions": [{"partition_index": 0}]}]
    answer = at.ask("offset_delete", 0, group_id=at.group, topics=places)
    return [answer["error_code"], answer["topics"]]


def static_members(at: Server) -> list[Any]:
    old = at.member(group_instance_id="i")
    again = at.join(group_instance_id="i")
    new = again["member_id"]
    synced = at.sync(new, group_instance_id="i", assignments=[])
    older = at.join(8, group_instance_id="i")
    leaving = [
        {"member_id": old, "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "j"},
        {"member_id": "", "group_instance_id": None},
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "i"},
    ]
    fenced = [
        at.heartbeat(old, instance="i"),
        at.heartbeat(old),
        at.sync(old, group_instance_id="i")["error_code"],
        at.join(member_id=old, group_instance_id="i")["error_code"],
        at.commit(member_id=old, group_instance_id="i", generation_id_or_member_epoch=1),
        at.heartbeat(new, instance="j"),
    ]
    left = at.ask("leave_group", 5, group_id=at.group, members=leaving)
    seen = ("error_code", "generation_id", "skip_assignment")
    return [
        [again[name] for name in seen],
        (again["leader"] == new, [m["group_instance_id"] for m in again["members"]]),
        (synced["error_code"], bool(synced["assignment"])),
        (older["error_code"], older["generation_id"], older["leader"] == new, older["members"]),
        fenced,
        (left["error_code"], [m["error_code"] for m in left["members"]]),
    ]


def leaving(at: Server) -> list[Any]:
    pending = at.join()["member_id"]
    member = at.member()
    several = [{"member_id": each} for each in (pending, pending, member, member, "x")]
    answer = at.ask("leave_group", 5, group_id=at.group, members=several)
    listed = at.ask("list_groups", 5)["groups"]
    (shown,) = [each for each in listed if each["group_id"] == at.group]
    return [
        answer["error_code"],
        [each["error_code"] for each in answer["members"]],
        at.heartbeat(member),
        [shown[name] for name in ("group_state", "group_type", "protocol_type")],
        at.joined()["generation_id"],
    ]


def two_members(at: Server) -> list[Any]:
    a = at.member()
    with closing(at.another()) as other:
        b = other.join()["member_id"]
        other.send("join_group", 9, **other.join_request(member_id=b))
        wait_until(lambda: at.heartbeat(a) is ErrorCode.rebalance_in_progress)
        of_a: dict[str, Any] = {"member_id": a, "generation_id_or_member_epoch": 1}
        while_gathering = [at.commit(**of_a), at.sync(a)["error_code"], at.commit()]
        joined = at.join(member_id=a)
        follower = other.receive("join_group", 9)
        of_a["generation_id_or_member_epoch"] = 2
        gathered = [at.heartbeat(a), at.heartbeat(a, 2), at.commit(**of_a)]
        names = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
        asked = {"group_id": at.group, "member_id": b, "generation_id": 2} | names
        other.send("sync_group", 5, **asked)
        at.ask("leave_group", 5, group_id=at.group, members=[{"member_id": a}])
        synced = other.receive("sync_group", 5)
        alone = other.join(member_id=b)
        return [
            while_gathering,
            (joined["generation_id"], joined["leader"] == a, len(joined["members"])),
            (follower["generation_id"], follower["leader"] == a, follower["members"]),
            gathered,
            (synced["error_code"], synced["assignment"]),
            (alone["generation_id"], alone["leader"] == b, len(alone["members"])),
        ]


SCENARIOS: list[Scenario] = [
    a_group_that_is_not_there,
    joins_that_are_refused,
    a_group_of_one,
    commits,
    deletions,
    a_group_of_another_kind,
    static_members,
    leaving,
    two_members,
]


@pytest.fixture
def ours(log_server: LogServerProcess) -> Iterator[Server]:
    server = Server(log_server.address)
    yield server
    server.close()


@pytest.fixture
def theirs(kafka: KafkaProcess) -> Iterator[Server]:
    server = Server(kafka.address)
    yield server
    server.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_are_those_of_kafka(ours: Server, theirs: Server, scenario: Scenario) -> None:
    assert scenario(ours) == scenario(theirs)
