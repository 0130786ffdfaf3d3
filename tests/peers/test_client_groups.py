"""Groups, and what becomes of clients while the server is away, with every client."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.serial import entity_reader

from penstock.events.record import Record
from penstock.testing import LogServerProcess, wait_until
from tests.log.server.plain_client import PlainClient
from tests.peers.clients.confluent import Confluent
from tests.peers.clients.contract import COOPERATIVE, RANGE, Client, Reading, Sending
from tests.peers.conftest import CLIENTS, opened, stored_in

pytestmark = pytest.mark.peer

WITHIN = 40.0
_read_assignment = entity_reader(ConsumerProtocolAssignment)


def in_both(label: str) -> list[Record]:
    """A record for each of two partitions."""
    return [Record(value=f"{label} in {index}".encode(), partition=index) for index in (0, 1)]


def described(client: PlainClient, group: str) -> Any:
    wanted = {"groups": [group], "include_authorized_operations": False}
    return client.ask("describe_groups", 5, **wanted).groups[0]


def await_shares(client: PlainClient, group: str, *shares: int) -> dict[str, str]:
    """Waits until the partitions are shared so among the members; their ids by instance id."""

    def shared() -> Any:
        found = described(client, group)
        counts = sorted(_partitions(each.member_assignment) for each in found.members)
        return found.group_state == "Stable" and counts == sorted(shares) and found

    found = wait_until(shared, within=WITHIN, what=f"shares of {shares}")
    return {each.group_instance_id or "": each.member_id for each in found.members}


def _partitions(assignment: bytes) -> int:
    """How many were assigned; a version comes first, and every version begins like the first."""
    if not assignment:
        return 0
    read, _ = _read_assignment(assignment, 2)
    return sum(len(topic.partitions) for topic in read.assigned_partitions)


def generation(client: PlainClient, group: str, member: str) -> int:
    """The group's generation, which only its members are told: the one in which a beat is heard."""
    for number in range(1, 50):
        asked = {"group_id": group, "member_id": member, "generation_id": number}
        if client.ask("heartbeat", 0, **asked).error_code == 0:
            return number
    raise AssertionError("no generation found")


def test_two_members_share_and_hand_over(client: Client, plain: PlainClient, topic: str) -> None:
    share_and_hand_over(client, neighbour(client, CLIENTS), plain, topic, RANGE)


@pytest.mark.asks("cooperates")
def test_two_members_share_and_hand_over_one_by_one(
    client: Client, plain: PlainClient, topic: str
) -> None:
    able = [kind for kind in CLIENTS if kind.cooperates]
    share_and_hand_over(client, neighbour(client, able), plain, topic, COOPERATIVE)


def neighbour(client: Client, kinds: list[type[Client]]) -> Client:
    """Another client, such that every two neighbours meet in a group."""
    return opened(kinds[(kinds.index(type(client)) + 1) % len(kinds)], client.address)


def share_and_hand_over(
    client: Client, other: Client, plain: PlainClient, topic: str, strategy: str
) -> None:
    admin, how = Confluent(client.address), Reading(group=topic, strategy=strategy)
    admin.create(topic, 2, {})
    with client.follow(topic, how) as first:
        admin.produce(topic, in_both("alone"))
        first.await_values(b"alone in 0", b"alone in 1")
        with other.follow(topic, how) as second:
            await_shares(plain, topic, 1, 1)
            admin.produce(topic, in_both("shared"))
            wait_until(lambda: len(first.received) + len(second.received) == 4, within=WITHIN)
        await_shares(plain, topic, 2)
        admin.produce(topic, in_both("left"))
        first.await_values(b"left in 0", b"left in 1")

    assert len(first.received) == 5
    assert len(second.received) == 1
    everything = first.values() + second.values()
    assert len(set(everything)) == len(everything) == 6


def test_a_group_goes_on_where_it_was(client: Client, server: LogServerProcess, topic: str) -> None:
    admin = Confluent(server.address)
    admin.create(topic, 1, {})
    admin.produce(topic, [Record(value=b"%d" % number) for number in range(10)])

    first = client.consume(topic, 4, group=topic)
    rest = client.consume(topic, 6, group=topic)

    assert [record.value for record in first + rest] == [b"%d" % number for number in range(10)]
    assert admin.committed(topic) == {(topic, 0): 10}


def test_a_static_member_takes_its_place_again(
    client: Client, server: LogServerProcess, plain: PlainClient, topic: str
) -> None:
    admin = Confluent(server.address)
    admin.create(topic, 2, {})
    with admin.follow(topic, Reading(group=topic, instance="neighbour")) as neighbour:
        with client.follow(topic, Reading(group=topic, instance="itself")):
            before = await_shares(plain, topic, 1, 1)
            number = generation(plain, topic, before["neighbour"])
        with client.follow(topic, Reading(group=topic, instance="itself")) as again:
            wait_until(
                lambda: await_shares(plain, topic, 1, 1)["itself"] != before["itself"],
                within=WITHIN,
            )
            admin.produce(topic, in_both("news"))
            wait_until(lambda: neighbour.received and again.received, within=WITHIN)
            after = await_shares(plain, topic, 1, 1)

    assert after["neighbour"] == before["neighbour"]
    assert generation(plain, topic, after["neighbour"]) == number
    assert len(neighbour.received) == len(again.received) == 1


@pytest.mark.asks("groups", "members", "committed")
def test_groups_are_seen(
    client: Client, server: LogServerProcess, plain: PlainClient, topic: str
) -> None:
    admin = Confluent(server.address)
    admin.create(topic, 1, {})
    admin.produce(topic, [Record(value=b"%d" % number) for number in range(5)])
    admin.consume(topic, 3, group=topic)

    assert topic in client.groups()
    assert client.committed(topic) == {(topic, 0): 3}
    assert client.lag(topic) == {(topic, 0): 2}
    with admin.follow(topic, Reading(group=topic)):
        await_shares(plain, topic, 1)
        assert client.members(topic) == 1


@pytest.mark.asks("rewind", "delete_group")
def test_groups_are_moved_and_deleted(client: Client, server: LogServerProcess, topic: str) -> None:
    admin = Confluent(server.address)
    admin.create(topic, 1, {})
    admin.produce(topic, [Record(value=b"%d" % number) for number in range(5)])
    admin.consume(topic, 5, group=topic)

    client.rewind(topic, topic)
    assert admin.committed(topic) == {(topic, 0): 0}
    assert [record.value for record in admin.consume(topic, 1, group=topic)] == [b"0"]

    client.delete_group(topic)
    assert topic not in admin.groups()


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServerProcess]:
    """A server that is killed now and then."""
    with LogServerProcess(tmp_path_factory.mktemp("mortal")) as server:
        yield server


@pytest.mark.asks("endures")
@pytest.mark.filterwarnings("ignore:.*<socket:pytest.PytestUnraisableExceptionWarning")
def test_clients_go_on_after_the_server_was_killed(
    client: Client, mortal: LogServerProcess, topic: str
) -> None:
    client = opened(type(client), mortal.address)
    Confluent(mortal.address).create(topic, 1, {})
    values = [b"%d" % number for number in range(150)]
    records = [Record(value=value) for value in values]
    with (
        client.follow(topic, Reading(group=topic)) as follower,
        client.feed(topic, Sending(idempotent=True)) as feed,
    ):
        for record in records[:50]:
            feed.send(record)
        follower.await_values(values[49])
        with PlainClient(mortal.address) as plain:
            before = await_shares(plain, topic, 1)
        mortal.kill()
        for record in records[50:100]:
            feed.send(record)
        mortal.restart()
        for record in records[100:]:
            feed.send(record)
        follower.await_values(values[149])
        with PlainClient(mortal.address) as plain:
            after = await_shares(plain, topic, 1)
            stored = stored_in(plain, topic)

    assert [record.value for record in stored] == values
    assert follower.values() == values
    assert after == before
    gc.collect()  # aiokafka leaves a socket to the collector for every attempt to connect in vain
