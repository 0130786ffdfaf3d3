import json
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import (
    InvalidInput,
    InvalidPolicy,
    InvalidTopic,
    PartitionNotFound,
    TopicExists,
    TopicNotFound,
)
from penstock.log.topics import Topics


@pytest.fixture
def syncs() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_topics_are_there_after_a_restart(tmp_path: Path, syncs: Executor) -> None:
    topics = Topics(tmp_path, syncs)
    created = topics.create("orders", 3, {"retention": "2 days", "durability": "os"})
    topics.alter("orders", {"segment.bytes": 4096, "retention.ms": None})
    topics.add_partitions("orders", 5)
    found = Topics(tmp_path, syncs).get("orders")
    assert found.id == created.id
    assert len(found.partitions) == 5
    assert found.policy.durability == "os"
    assert found.policy.segment_bytes == 4096
    assert found.policy.retention_ms == 7 * 86_400_000


def test_a_topic_is_found_by_name_and_by_id(tmp_path: Path, syncs: Executor) -> None:
    topics = Topics(tmp_path, syncs)
    orders = topics.create("orders", 1, {})
    assert topics.by_id(orders.id) is topics.get("orders") is topics.find("orders")
    assert topics.find("other") is None
    with pytest.raises(TopicNotFound, match="orders"):
        topics.get("other")
    with pytest.raises(PartitionNotFound, match="it has 1"):
        orders.partition(1)


def test_deleting_takes_the_files_and_the_name_is_free_again(
    tmp_path: Path, syncs: Executor
) -> None:
    topics = Topics(tmp_path, syncs)
    gone: list[str] = []
    topics.when_deleted = gone.append
    first = topics.create("orders", 1, {})
    topics.delete("orders")
    assert gone == ["orders"]
    assert topics.by_id(first.id) is None
    second = topics.create("orders", 2, {})
    assert second.id != first.id
    syncs.shutdown()
    assert not list((tmp_path / "trash").iterdir())


def test_a_deletion_cut_short_is_finished_at_the_next_opening(
    tmp_path: Path, syncs: Executor
) -> None:
    (tmp_path / "trash" / "left over").mkdir(parents=True)
    Topics(tmp_path, syncs)
    assert not list((tmp_path / "trash").iterdir())


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250, "a b", "a\n"])
def test_names_that_cannot_be(tmp_path: Path, syncs: Executor, name: str) -> None:
    with pytest.raises(InvalidTopic):
        Topics(tmp_path, syncs).create(name, 1, {})
    assert not list((tmp_path / "topics").iterdir())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"retention.ms": "soon"}, "not a duration"),
        ({"retention.ms": -2}, "out of range"),
        ({"segment.bytes": "many"}, "not a whole number"),
        ({"segment": "0s"}, "out of range"),
        ({"retention.bytes": "7 days"}, "not a whole number"),
        ({"durability": "perhaps"}, "fsync, os, memory"),
        ({"colour": "blue"}, "not a topic setting"),
        ({"cleanup.policy": "compact"}, "one of: delete"),
    ],
)
def test_settings_that_cannot_be(
    tmp_path: Path, syncs: Executor, settings: dict[str, str], why: str
) -> None:
    topics = Topics(tmp_path, syncs)
    with pytest.raises(InvalidInput, match=why):
        topics.create("orders", 1, settings)
    topics.create("orders", 1, {})
    with pytest.raises(InvalidInput, match=why):
        topics.alter("orders", settings)


def test_what_would_lose_or_move_records_is_refused(tmp_path: Path, syncs: Executor) -> None:
    topics = Topics(tmp_path, syncs)
    topics.create("orders", 2, {})
    with pytest.raises(TopicExists):
        topics.create("orders", 1, {})
    with pytest.raises(InvalidInput, match="only grow"):
        topics.add_partitions("orders", 2)
    with pytest.raises(InvalidPolicy, match="memory"):
        topics.alter("orders", {"durability": "memory"})
    with pytest.raises(InvalidInput, match="partitions"):
        topics.create("many", 10_001, {})


def test_a_dry_run_changes_nothing(tmp_path: Path, syncs: Executor) -> None:
    topics = Topics(tmp_path, syncs)
    topics.create("draft", 1, {}, dry=True)
    assert topics.names() == []
    topics.create("orders", 1, {})
    before = (tmp_path / "topics" / "orders" / "topic.json").read_bytes()
    topics.alter("orders", {"retention": "1h"}, dry=True)
    topics.add_partitions("orders", 9, dry=True)
    assert (tmp_path / "topics" / "orders" / "topic.json").read_bytes() == before
    assert json.loads(before)["partitions"] == 1
