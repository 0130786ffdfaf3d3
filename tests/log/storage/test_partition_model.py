"""Any sequence of appends, syncs, trims, clean closes and crashes, against a plain list."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.log.policy import TopicPolicy
from penstock.log.storage.partition import Partition
from penstock.log.storage.times import first_at

from .conftest import HeldExecutor, batch, read

POLICY = TopicPolicy(segment_bytes=1024)


class PartitionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.generation = 0
        self.folder = self.root / "0"
        self.written: list[int] = []  # every record's timestamp, which is its value too
        self.acknowledged = 0
        self.start = 0
        self.open()

    def open(self) -> None:
        self.held = HeldExecutor()
        self.partition = Partition(self.folder, "t", 0, POLICY, self.held)

    @rule(times=st.lists(st.integers(0, 10**6), min_size=1, max_size=20), codec=st.integers(0, 4))
    def append(self, times: list[int], codec: int) -> None:
        appended = self.partition.append(batch(*times, codec=codec))
        assert appended.base_offset == len(self.written)
        self.written += times

        def done(error: Exception | None, until: int = len(self.written)) -> None:
            assert error is None
            self.acknowledged = max(self.acknowledged, until)

        self.partition.when_durable(appended.next_offset, done)

    @rule()
    def sync(self) -> None:
        self.held.run()
        assert self.acknowledged == len(self.written)

    @precondition(lambda self: self.acknowledged > self.start)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.acknowledged))
        self.partition.forget_before(self.start)

    @rule()
    def close_and_open(self) -> None:
        self.partition.close()
        self.acknowledged = len(self.written)
        self.open()
        assert self.partition.recovery.scanned_bytes == 0

    @rule(torn=st.binary(max_size=100))
    def crash_and_open(self, torn: bytes) -> None:
        """What was written but not acknowledged may stay or, in part, be followed by garbage."""
        self.generation += 1
        survivor = self.root / str(self.generation)
        shutil.copytree(self.folder, survivor)
        self.folder = survivor
        with max(survivor.glob("*.log")).open("ab") as last:
            last.write(torn)
        self.open()
        assert self.partition.recovery.cut_bytes == len(torn)
        assert not self.partition.recovery.damage
        self.acknowledged = len(self.written)

    @invariant()
    def exactly_the_acknowledged_records_are_there(self) -> None:
        partition = self.partition
        assert (partition.start_offset, partition.end_offset) == (self.start, self.acknowledged)
        expected = [(n, b"%d" % self.written[n]) for n in range(self.start, self.acknowledged)]
        assert read(partition, self.start) == expected

    @rule(sought=st.integers(0, 10**6))
    def find_by_time(self, sought: int) -> None:
        found = first_at(self.partition, sought)
        places = range(self.start, self.acknowledged)
        expected = next((n for n in places if self.written[n] >= sought), None)
        assert (found and found.offset) == expected

    def teardown(self) -> None:
        shutil.rmtree(self.root)


TestPartitionModel = PartitionModel.TestCase
TestPartitionModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
