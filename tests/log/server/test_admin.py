from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.events.batch import decode, encode
from penstock.events.record import Record
from penstock.log.policy import TopicPolicy
from penstock.log.server.settings import ServerSettings
from tests.log.server.plain_client import PlainClient, batch, creation
from tests.log.server.scenes.stage import NO_CREATION, SESSION, listing
from tests.log.server.served import Served

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


def configs(client: PlainClient, name: str, *keys: str, kind: int = TOPIC) -> dict[str, Any]:
    """Values and sources by name; all when no keys are given."""
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    wanted = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    (result,) = client.ask("describe_configs", 4, **wanted).results
    assert result.error_code == 0, result.error_message
    return {each.name: (each.value, each.config_source) for each in result.configs}


def alter(
    client: PlainClient, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC
) -> int:
    listed = [
        {"name": setting, "config_operation": operation, "value": value}
        for setting, operation, value in changes
    ]
    asked = {"resource_type": kind, "resource_name": name, "configs": listed}
    answer = client.ask("incremental_alter_configs", 1, resources=[asked], validate_only=False)
    return int(answer.responses[0].error_code)


def metadata(client: PlainClient, *topics: str | UUID, create: bool = False) -> Any:
    keys = ["topic_id" if isinstance(each, UUID) else "name" for each in topics]
    neither = {"name": None, "topic_id": None}
    wanted = [neither | {key: each} for key, each in zip(keys, topics, strict=True)]
    allowed = NO_CREATION | {"allow_auto_topic_creation": create}
    return client.ask("metadata", 12, topics=wanted or None, **allowed)


def offset_at(client: PlainClient, topic: str, timestamp: int, partition: int = 0) -> Any:
    answer = client.ask("list_offsets", 9, **listing(topic, {partition: timestamp}))
    (found,) = answer.topics[0].partitions
    assert found.error_code == 0
    return found


def delete_records(client: PlainClient, topic: str, before: int) -> Any:
    asked = {"name": topic, "partitions": [{"partition_index": 0, "offset": before}]}
    answer = client.ask("delete_records", 2, topics=[asked], timeout=SESSION)
    return answer.topics[0].partitions[0]


# Settings


def test_settings_are_described_with_their_origin(client: PlainClient, topic: str) -> None:
    client.create_topic(topic, retention_ms=12_345)

    found = configs(client, topic)

    expected = TopicPolicy.of({"retention.ms": 12_345}).settings()
    assert {name: value for name, (value, _) in found.items()} == expected
    assert {name for name, (_, source) in found.items() if source == 1} == {"retention.ms"}
    assert configs(client, topic, "retention.ms") == {"retention.ms": ("12345", 1)}


def test_settings_change_at_once(client: PlainClient, topic: str) -> None:
    client.create_topic(topic)
    large = batch(bytes(2_000_000))
    assert client.produce(topic, large).error_code == 10

    assert alter(client, topic, ("max.message.bytes", SET, "3000000")) == 0
    assert client.produce(topic, large).error_code == 0

    assert alter(client, topic, ("max.message.bytes", DELETE, None)) == 0
    assert client.produce(topic, large).error_code == 10
    assert configs(client, topic, "max.message.bytes") == {"max.message.bytes": ("1048588", 5)}


def test_one_wrong_setting_leaves_all_as_they_were(client: PlainClient, topic: str) -> None:
    client.create_topic(topic)
    before = configs(client, topic)

    assert alter(client, topic, ("retention.ms", SET, "5"), ("segment.ms", SET, "never")) == 40
    assert configs(client, topic) == before


def test_the_servers_own_settings_can_be_seen_but_not_changed(client: PlainClient) -> None:
    found = configs(client, "1", kind=BROKER)

    assert found["auto.create.topics.enable"][0] == "true"
    assert found["num.partitions"][0] == "1"
    assert alter(client, "1", ("num.partitions", SET, "5"), kind=BROKER) == 42


def test_what_kafka_lets_pass(client: PlainClient, topic: str) -> None:
    """Kafka deletes a setting that it does not know, and adds to a list that it does not have."""
    client.create_topic(topic)

    assert alter(client, topic, ("no.such.setting", DELETE, None)) == 40
    assert alter(client, topic, ("retention.ms", 9, "1")) == 40


# Topics


def test_a_dry_run_makes_nothing(client: PlainClient, topic: str) -> None:
    answer = client.ask("create_topics", 7, **creation(topic, 3), validate_only=True)
    assert (answer.topics[0].error_code, answer.topics[0].num_partitions) == (0, 3)
    assert metadata(client, topic).topics[0].error_code == 3

    client.create_topic(topic, 2)
    growing = [{"name": topic, "count": 5, "assignments": None}]
    client.ask("create_partitions", 3, topics=growing, timeout=SESSION, validate_only=True)
    assert len(metadata(client, topic).topics[0].partitions) == 2


def test_metadata_names_every_topic_and_its_only_broker(
    served: Served, client: PlainClient, topic: str
) -> None:
    identity = client.create_topic(topic, 3)

    answer = metadata(client)

    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == served.address
    assert answer.controller_id == broker.node_id
    found = {each.name: each for each in answer.topics}[topic]
    assert (found.topic_id, len(found.partitions)) == (identity, 3)
    assert {part.leader_id for part in found.partitions} == {broker.node_id}
    assert metadata(client, identity).topics[0].name == topic


def test_a_topic_is_made_by_naming_it(client: PlainClient, topic: str) -> None:
    assert metadata(client, topic).topics[0].error_code == 3
    assert metadata(client, topic, create=True).topics[0].error_code == 0
    assert metadata(client, topic).topics[0].error_code == 0
    assert metadata(client, "not/a/name", create=True).topics[0].error_code == 17


def test_a_topic_is_made_by_naming_it_only_where_that_is_wanted(tmp_path: Path) -> None:
    settings = ServerSettings(auto_create=False)
    with Served(tmp_path, settings) as served, PlainClient(served.address) as client:
        assert metadata(client, "t", create=True).topics[0].error_code == 3
        assert client.produce("t", batch(b"x")).error_code == 3
        assert configs(client, "1", kind=BROKER)["auto.create.topics.enable"][0] == "false"


def test_a_topic_made_again_is_another_topic(client: PlainClient, topic: str) -> None:
    old = client.create_topic(topic)
    client.produce(topic, batch(b"old"))
    commit = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    client.ask(
        "offset_commit",
        8,
        group_id=topic,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": [commit]}],
    )
    client.ask("delete_topics", 6, topics=[{"name": None, "topic_id": old}], timeout=SESSION)

    new = client.create_topic(topic)

    assert new != old
    assert client.fetch(old).error_code == 100  # UNKNOWN_TOPIC_ID
    assert metadata(client, old).topics[0].error_code == 100
    assert client.fetch(new).high_watermark == 0
    assert client.produce(topic, batch(b"new")).base_offset == 0
    (record,) = decode(memoryview(client.fetch(new).records))
    assert record.value == b"new"
    committed = client.ask("offset_fetch", 5, group_id=topic, topics=None)
    assert committed.topics == ()


def test_partitions_are_added_beside_the_old_ones(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic, 1)
    client.produce(topic, batch(b"old"))

    growing = [{"name": topic, "count": 3, "assignments": None}]
    client.ask("create_partitions", 3, topics=growing, timeout=SESSION, validate_only=False)

    assert client.produce(topic, batch(b"new"), 2).base_offset == 0
    assert [client.fetch(identity, 0, index).high_watermark for index in range(3)] == [1, 0, 1]
    assert len(metadata(client, topic).topics[0].partitions) == 3


def test_many_partitions(client: PlainClient, topic: str) -> None:
    client.create_topic(topic, 300, durability="os")
    for partition in (0, 150, 299):
        assert client.produce(topic, batch(b"x"), partition).error_code == 0

    assert len(metadata(client, topic).topics[0].partitions) == 300
    ends = client.ask("list_offsets", 9, **listing(topic, dict.fromkeys(range(300), LATEST)))
    assert sum(part.offset for part in ends.topics[0].partitions) == 3
    pages, cursor = [], None
    while True:
        wanted = {"topics": [{"name": topic}], "response_partition_limit": 90, "cursor": cursor}
        page = client.ask("describe_topic_partitions", 0, **wanted)
        pages.append([part.partition_index for part in page.topics[0].partitions])
        if page.next_cursor is None:
            break
        position = page.next_cursor.partition_index
        cursor = {"topic_name": topic, "partition_index": position}
    assert [index for page in pages for index in page] == list(range(300))
    assert [len(page) for page in pages] == [90, 90, 90, 30]


# Positions


def test_deleted_records_are_gone(client: PlainClient, topic: str) -> None:
    identity = client.create_topic(topic)
    client.produce(topic, batch(*[b"x"] * 5))

    assert delete_records(client, topic, 3).low_watermark == 3
    assert offset_at(client, topic, EARLIEST).offset == 3
    assert offset_at(client, topic, EARLIEST_LOCAL).offset == 3
    assert client.fetch(identity, 2).error_code == 1
    assert client.fetch(identity, 3).log_start_offset == 3

    assert delete_records(client, topic, 1).low_watermark == 3
    assert delete_records(client, topic, 6).error_code == 1
    assert delete_records(client, topic, -1).low_watermark == 5
    assert offset_at(client, topic, LATEST).offset == 5


def test_offsets_by_time(client: PlainClient, topic: str) -> None:
    client.create_topic(topic, segment_bytes=2_000)
    assert (offset_at(client, topic, 0).offset, offset_at(client, topic, MAX_TIMESTAMP).offset) == (
        -1,
        -1,
    )
    # Times that go up and down, over several segments.
    times = [1_000 + 10 * number - (35 if number % 7 == 0 else 0) for number in range(200)]
    for first in range(0, 200, 8):
        records = [Record(value=bytes(50), timestamp=each) for each in times[first : first + 8]]
        client.produce(topic, encode(records))

    for timestamp in (0, times[0], 1_004, 1_500, 1_995, 2_001, max(times)):
        expected = next(i for i, each in enumerate(times) if each >= timestamp)
        found = offset_at(client, topic, timestamp)
        assert (found.offset, found.timestamp) == (expected, times[expected])
    assert offset_at(client, topic, max(times) + 1).offset == -1
    highest = offset_at(client, topic, MAX_TIMESTAMP)
    assert (highest.offset, highest.timestamp) == (times.index(max(times)), max(times))

    delete_records(client, topic, 150)
    assert offset_at(client, topic, 0).offset == 150


# What is not there yet


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_producer_is_refused_for_good(client: PlainClient, version: int) -> None:
    answer = client.ask(
        "init_producer_id", version, transactional_id="t", transaction_timeout=SESSION
    )

    # An error after which no client asks again.
    assert (answer.error_code, answer.producer_id) == (53, -1)


@pytest.mark.parametrize("version", range(1, 7))
def test_there_is_no_coordinator_of_transactions(client: PlainClient, version: int) -> None:
    wanted = {"key": "t", "key_type": 1, "coordinator_keys": ["t"]}
    answer = client.ask("find_coordinator", version, **wanted)

    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (53, -1)
