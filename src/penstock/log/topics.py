"""The topics of a log: their names, ids, policies and partitions, on disk one folder each.

topics/orders/topic.json      id, number of partitions, settings that differ from the defaults
topics/orders/0/              the first partition
"""

import json
import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import (
    InvalidInput,
    InvalidPolicy,
    PartitionNotFound,
    PenstockError,
    StorageFailed,
    TopicExists,
    TopicNotFound,
)
from penstock.log.policy import Setting, TopicPolicy, check_topic_name
from penstock.log.storage.files import storage_error, sync_folder, write_atomically
from penstock.log.storage.partition import Partition
from penstock.log.storage.retention import expire

MAX_PARTITIONS = 10_000
log = logging.getLogger(__name__)


@dataclass
class Topic:
    name: str
    id: uuid.UUID
    policy: TopicPolicy
    partitions: list[Partition]

    def partition(self, index: int) -> Partition:
        if not 0 <= index < len(self.partitions):
            raise PartitionNotFound(
                f"{self.name} has no partition {index}",
                hint=f"it has {len(self.partitions)}, numbered from 0",
            )
        return self.partitions[index]


class Topics:
    def __init__(self, folder: Path | None, syncs: Executor) -> None:
        """Opens every topic below `folder`, recovering what a crash left; None is for memory."""
        self._folder = None if folder is None else folder / "topics"
        self._trash = None if folder is None else folder / "trash"
        self._syncs = syncs
        self._lock = threading.Lock()
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self.when_deleted: Callable[[str], None] | None = None
        if self._folder is not None and self._trash is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._trash.mkdir(exist_ok=True)  # now, as a full disk may have no room for it later
            for grave in self._trash.iterdir():
                shutil.rmtree(grave, ignore_errors=True)
            for path in sorted(self._folder.glob("*/topic.json")):
                self._enter(self._open(path))

    def _open(self, path: Path) -> Topic:
        facts = json.loads(path.read_text())
        topic = Topic(
            path.parent.name, uuid.UUID(facts["id"]), TopicPolicy.of(facts["settings"]), []
        )
        self._grow(topic, facts["partitions"])
        return topic

    def _enter(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic

    def _grow(self, topic: Topic, count: int) -> None:
        folder = None if self._folder is None else self._folder / topic.name
        for index in range(len(topic.partitions), count):
            partition = Partition(
                folder and folder / str(index), topic.name, index, topic.policy, self._syncs
            )
            recovery = partition.recovery
            if recovery.cut_bytes:
                log.warning(
                    "%s/%s: cut %d torn bytes off the end; it goes on at offset %d",
                    *(topic.name, index, recovery.cut_bytes, partition.end_offset),
                )
            for damage in recovery.damage:
                log.error("%s/%s: %s", topic.name, index, damage.message)
            topic.partitions.append(partition)

    def _save(self, topic: Topic) -> None:
        if self._folder is None:
            return
        defaults = TopicPolicy().settings()
        facts = {
            "id": str(topic.id),
            "partitions": len(topic.partitions),
            "settings": {k: v for k, v in topic.policy.settings().items() if v != defaults[k]},
        }
        write_atomically(
            self._folder / topic.name / "topic.json", json.dumps(facts, indent=2).encode()
        )
        sync_folder(self._folder)

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def all(self) -> list[Topic]:
        return list(self._by_name.values())

    def find(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def get(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            known = ", ".join(self.names()[:10]) or "none yet"
            raise TopicNotFound(f"there is no topic {name!r}", hint=f"topics: {known}")
        return topic

    def create(
        self, name: str, partitions: int, settings: Mapping[str, Setting], *, dry: bool = False
    ) -> Topic:
        """Makes a topic, or with `dry` only says whether it could be made."""
        check_topic_name(name)
        policy = TopicPolicy.of(settings)
        _check_count(partitions)
        with self._lock:
            if name in self._by_name:
                raise TopicExists(f"topic {name!r} is there already")
            topic = Topic(name, uuid.uuid4(), policy, [])
            if not dry:
                try:
                    self._change(topic, partitions, policy)
                except StorageFailed:
                    if self._folder is not None:
                        shutil.rmtree(self._folder / name, ignore_errors=True)
                    raise
                self._enter(topic)
            return topic

    def alter(
        self, name: str, settings: Mapping[str, Setting | None], *, dry: bool = False
    ) -> None:
        with self._lock:
            topic = self.get(name)
            policy = topic.policy.changed(settings)
            if "memory" in {policy.durability, topic.policy.durability} and (
                policy.durability != topic.policy.durability
            ):
                raise InvalidPolicy(
                    "a topic cannot move between memory and disk",
                    hint="create another topic and copy the records",
                )
            if not dry:
                self._change(topic, len(topic.partitions), policy)

    def add_partitions(self, name: str, count: int, *, dry: bool = False) -> None:
        """Grows the topic to `count` partitions. Keys then map to other partitions than before."""
        with self._lock:
            topic = self.get(name)
            _check_count(count)
            if count <= len(topic.partitions):
                raise InvalidInput(
                    f"{name} has {len(topic.partitions)} partitions already",
                    hint="the number of partitions can only grow",
                )
            if not dry:
                self._change(topic, count, topic.policy)

    def _change(self, topic: Topic, count: int, policy: TopicPolicy) -> None:
        """What it says is used once it is on disk, and not at all when the disk refuses it."""
        changed = Topic(topic.name, topic.id, policy, [*topic.partitions])
        try:
            self._grow(changed, count)
            self._save(changed)
        except OSError as error:
            raise storage_error(error, f"changing topic {topic.name}") from error
        topic.policy, topic.partitions = policy, changed.partitions
        for partition in topic.partitions:
            partition.policy = policy

    def delete(self, name: str) -> None:
        with self._lock:
            topic = self.get(name)
            if self._folder is not None and self._trash is not None:
                # Gone with one rename; the files follow, and the next opening sweeps up.
                grave = self._trash / str(topic.id)
                try:
                    (self._folder / name).rename(grave)
                    sync_folder(self._folder)
                except OSError as error:
                    raise storage_error(error, f"deleting topic {name}") from error
                self._syncs.submit(shutil.rmtree, grave, ignore_errors=True)
            del self._by_name[name], self._by_id[topic.id]
            for partition in topic.partitions:
                partition.abandon()
        if self.when_deleted is not None:
            self.when_deleted(name)

    def expire(self, now: int) -> int:
        """Applies every topic's retention; returns how many segments were deleted."""
        gone = 0
        for partition in [p for topic in self.all() for p in topic.partitions]:
            try:
                gone += expire(partition, now)
            except (PenstockError, OSError) as error:  # the others' turn comes all the same
                log.error("%s/%s: no retention: %s", partition.topic, partition.index, error)
        return gone

    def close(self) -> None:
        for topic in self.all():
            for partition in topic.partitions:
                partition.close()


def _check_count(partitions: int) -> None:
    if not 0 < partitions <= MAX_PARTITIONS:
        raise InvalidInput(
            f"{partitions} partitions are not possible", hint=f"1 to {MAX_PARTITIONS}"
        )
