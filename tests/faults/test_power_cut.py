"""Whenever the power goes, what was acknowledged or could be read is there afterwards."""

import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import SequenceError
from penstock.events.batch import encode
from penstock.events.record import Record
from penstock.log.engine import Engine
from penstock.log.policy import TopicPolicy
from penstock.log.storage.partition import Partition
from penstock.log.storage.published import DURABLE_FILE
from tests.faults.disk_model import Disk
from tests.log.storage.conftest import HeldExecutor, read

STEPS = 60
CHECK_EVERY = 2  # changes on disk


@dataclass
class Sent:
    """A batch on its way: `producer` is id, epoch and first sequence."""

    values: list[bytes]
    producer: tuple[int, int, int]
    base_offset: int

    @property
    def end(self) -> int:
        return self.base_offset + len(self.values)

    def append_to(self, partition: Partition) -> Any:
        records = [Record(value=value, timestamp=1) for value in self.values]
        return partition.append(memoryview(encode(records, producer=self.producer)))


@dataclass
class Story:
    """What was asked of one partition, and what the log said about it."""

    sent: list[Sent] = field(default_factory=list)
    acknowledged: int = 0
    start: int = 0
    asked_start: int = 0

    @property
    def values(self) -> list[bytes]:
        return [value for each in self.sent for value in each.values]


@dataclass
class TopicStory:
    id: UUID | None = None  # None until the topic is acknowledged
    partitions: list[Story] = field(default_factory=list)
    acknowledged_partitions: int = 0
    deleted: bool = False


def end_process(engine: Engine) -> None:
    """What the system does for a log whose process is killed."""
    assert engine.ownership is not None
    engine.ownership.release()
    engine._closing.set()


class Narrator:
    """Does this and that with a log, cuts the power again and again, and looks at what is left."""

    def __init__(self, root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.luck = random.Random(seed)
        self.topics: dict[str, TopicStory] = {}
        self.facts: list[tuple[bytes, bytes | None]] = []
        self.acknowledged_facts = 0
        self.changes = self.checks = 0
        self.root = root
        self.folder = root / "log"
        self.folder.mkdir()
        self.held = HeldExecutor()
        monkeypatch.setattr("penstock.log.engine.ThreadPoolExecutor", self._executor)
        self.disk = Disk(self.folder, monkeypatch)
        self.engine = Engine(self.folder)
        self.disk.after_change = self.changed

    def _executor(self, *_: Any) -> Executor:
        self.held = HeldExecutor()
        return self.held

    # What is done

    def step(self) -> None:
        doings = [self.append] * 12 + [self.put] * 3 + [self.sync] * 4
        doings += [self.create, self.grow, self.trim, self.close, self.kill, self.delete]
        self.luck.choice(doings)()

    def create(self) -> None:
        name = f"topic-{len(self.topics)}"
        story = self.topics[name] = TopicStory(partitions=[Story(), Story()])
        story.id = self.engine.topics.create(name, 2, {"segment.bytes": 1024}).id
        story.acknowledged_partitions = 2

    def _some(self) -> tuple[str, TopicStory] | None:
        there = [(name, story) for name, story in self.topics.items() if not story.deleted]
        return self.luck.choice(there) if there else None

    def _some_partition(self) -> tuple[Partition, Story] | None:
        found = self._some()
        if found is None:
            return None
        index = self.luck.randrange(found[1].acknowledged_partitions)
        return self.engine.topics.get(found[0]).partition(index), found[1].partitions[index]

    def append(self) -> None:
        found = self._some_partition()
        if found is None:
            return
        partition, story = found
        base = partition.next_offset
        del story.sent[sum(each.base_offset < base for each in story.sent) :]  # a kill took them
        values = [b"%d " % (base + n) * self.luck.randrange(1, 90) for n in range(3)]
        producer = (-1, -1, -1)
        if self.luck.random() < 0.6:
            number = self.luck.randrange(2)
            before = [each for each in story.sent if each.producer[0] == number]
            producer = (number, 0, before[-1].producer[2] + 3 if before else 0)
        sent = Sent(values, producer, base)
        story.sent.append(sent)
        assert sent.append_to(partition).base_offset == base

        def done(error: Exception | None) -> None:
            if error is None:
                story.acknowledged = max(story.acknowledged, sent.end)

        partition.when_durable(sent.end, done)

    def put(self) -> None:
        count = len(self.facts) + 1
        self.facts.append((b"%d" % (count % 7), b"%d" % count if count % 5 else None))

        def done(error: Exception | None) -> None:
            if error is None:
                self.acknowledged_facts = max(self.acknowledged_facts, count)

        self.engine.journal.put(dict(self.facts[-1:]), done)

    def sync(self) -> None:
        self.held.run()

    def grow(self) -> None:
        if found := self._some():
            name, story = found
            story.partitions.append(Story())
            self.engine.topics.add_partitions(name, len(story.partitions))
            story.acknowledged_partitions = len(story.partitions)

    def trim(self) -> None:
        if found := self._some_partition():
            partition, story = found
            story.asked_start = self.luck.randint(partition.start_offset, partition.end_offset)
            partition.forget_before(story.asked_start)
            story.start = story.asked_start

    def delete(self) -> None:
        found = self._some() if len(self.topics) > 3 else None
        if found:
            found[1].deleted = True
            self.engine.topics.delete(found[0])
            found[1].id = None

    def close(self) -> None:
        self.engine.close()
        self.engine = Engine(self.folder)

    def kill(self) -> None:
        """The process goes, what it wrote stays where the next one finds it."""
        end_process(self.engine)
        self.engine = Engine(self.folder)

    # What is left

    def changed(self) -> None:
        self.changes += 1
        if self.changes % CHECK_EVERY:
            return
        self.checks += 1
        survivor, held = self.root / str(self.checks), self.held
        self.disk.cut_power(survivor, self.luck)
        engine = Engine(survivor)
        self.look_at(engine)
        end_process(engine)
        self.held.held.clear()  # what waits there would keep its files open
        self.held = held
        shutil.rmtree(survivor)

    def look_at(self, engine: Engine) -> None:
        for name, story in self.topics.items():
            if story.id is None:
                continue  # being made or deleted: either is right
            topic = engine.topics.find(name)
            assert topic is not None or story.deleted, f"{name} is gone"
            if topic is None:
                continue
            assert topic.id == story.id
            assert len(topic.partitions) >= story.acknowledged_partitions
            ours = self.engine.topics.find(name)
            for index, partition in enumerate(topic.partitions):
                seen = ours.partitions[index : index + 1] if ours else []
                visible = seen[0].end_offset if seen else 0
                self.look_into(partition, story.partitions[index], visible)
        self.look_at_facts(dict(engine.journal.items()))

    def look_into(self, partition: Partition, story: Story, visible: int) -> None:
        values = story.values
        assert not partition.recovery.damage, partition.recovery.damage
        assert max(story.acknowledged, visible) <= partition.end_offset <= len(values)
        assert story.start <= partition.start_offset <= max(story.asked_start, story.start)
        assert read(partition, partition.start_offset) == [
            (n, values[n]) for n in range(partition.start_offset, partition.end_offset)
        ]
        self.retry(partition, story)

    def retry(self, partition: Partition, story: Story) -> None:
        """Producers send again what they are not sure of: all is there once, in order."""
        start, end = partition.start_offset, partition.end_offset
        stored = [sent for sent in story.sent if sent.base_offset >= start and sent.end <= end]
        last_ones = [
            sent
            for number in (0, 1)
            for sent in [each for each in stored if each.producer[0] == number][-5:]
        ]
        for sent in story.sent:
            if sent.base_offset >= end or sent in last_ones:
                try:
                    assert sent.append_to(partition).base_offset == sent.base_offset
                except SequenceError as error:
                    raise AssertionError(f"a retry of {sent} is refused: {error}") from error
        assert partition.next_offset == max(end, len(story.values))

    def look_at_facts(self, found: dict[bytes, bytes]) -> None:
        """They are as some moment left them, no earlier than the last that was acknowledged."""
        state: dict[bytes, bytes | None] = {}
        moments: list[dict[bytes, bytes]] = [{}]
        for key, fact in self.facts:
            state = state | {key: fact}
            moments.append({k: v for k, v in state.items() if v is not None})
        assert found in moments[self.acknowledged_facts :]


@pytest.fixture
def quick_disk() -> Iterator[Path]:
    """A folder in memory where there is one: what is synced is for the model to say."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whenever_the_power_goes(quick_disk: Path, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patches:
        narrator = Narrator(quick_disk, seed, patches)
        narrator.create()
        for _ in range(STEPS):
            narrator.step()
    assert narrator.checks > 50


def test_a_retry_of_what_only_the_system_had_is_stored(tmp_path: Path) -> None:
    """Without syncs a power cut may take any batch, but no producer is told that it is there."""
    held = HeldExecutor()
    policy = TopicPolicy(durability="os", segment_bytes=1024)
    partition = Partition(tmp_path, "t", 0, policy, held)
    batches = [Sent([b"%d" % n * 300], (7, 0, n), n) for n in range(8)]
    for sent in batches:
        sent.append_to(partition)
    held.run()
    closed = partition.segments[1]
    lost = closed.next_offset - 1
    os.truncate(closed.path or "", closed.size - 100)
    (tmp_path / DURABLE_FILE).unlink()
    again = Partition(tmp_path, "t", 0, policy, held)
    assert again.end_offset == lost
    assert batches[lost - 1].append_to(again).base_offset == lost - 1
    assert batches[lost].append_to(again).base_offset == lost
    assert again.next_offset == lost + 1


def test_an_index_of_an_earlier_life_does_not_vouch_for_what_came_later(tmp_path: Path) -> None:
    held = HeldExecutor()
    policy = TopicPolicy(segment_bytes=1024)
    partition = Partition(tmp_path, "t", 0, policy, held)
    sent = [Sent([b"%d" % n * 300], (7, 0, n), n) for n in range(4)]
    sent[0].append_to(partition)
    partition.close()
    size = partition.size
    partition = Partition(tmp_path, "t", 0, policy, held)
    for each in sent[1:]:
        each.append_to(partition)  # into this segment and another, and nothing is synced
    assert len(partition.segments) == 2
    os.truncate(partition.segments[0].path or "", size)
    again = Partition(tmp_path, "t", 0, policy, held)
    assert (again.end_offset, len(again.segments), again.recovery.damage) == (1, 1, [])
    assert [each.append_to(again).base_offset for each in sent] == [0, 1, 2, 3]
