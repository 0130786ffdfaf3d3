"""Writers, producers and conditions with crashes in the middle of an append, against plain lists.

A crash leaves what was acknowledged and, of the rest, any number of bytes. What is there then are
the first appends, each of them whole, and every writer's last batch and every key's last offset are
those of the appends that are there.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.errors import VersionConflict
from penstock.events.batch import encode
from penstock.events.record import Record
from penstock.log.policy import TopicPolicy
from penstock.log.storage.claims import FIRST_WRITER, Claim
from penstock.log.storage.partition import Partition
from penstock.log.verification import check_partition

from .conftest import HeldExecutor, read

POLICY = TopicPolicy(segment_bytes=1500)
KEYS = st.sampled_from([b"a", b"b", b"", None])
CUTS = st.lists(st.lists(KEYS, min_size=1, max_size=4), min_size=1, max_size=4)
WRITERS = st.sampled_from([FIRST_WRITER + 1, FIRST_WRITER + 2])


@dataclass
class Append:
    values: list[bytes]
    keys: list[bytes | None]
    writer: int | None
    batch: int
    segment: int
    end: int  # its last byte in the segment


class AppendModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.generation = 0
        self.folder = self.root / "0"
        self.number = 0
        self.appends: list[Append] = []
        self.acknowledged = 0  # appends
        self.open()

    def open(self) -> None:
        self.held = HeldExecutor()
        self.partition = Partition(self.folder, "t", 0, POLICY, self.held)

    def batches(self, cuts: list[list[bytes | None]]) -> tuple[memoryview, list[bytes]]:
        data, values = bytearray(), []
        for keys in cuts:
            records = []
            for key in keys:
                values.append(b"%d" % self.number)
                records.append(Record(key=key, value=values[-1], timestamp=1))
                self.number += 1
            data += encode(records)
        return memoryview(data), values

    def last(self, writer: int) -> int:
        return max((a.batch for a in self.appends if a.writer == writer), default=-1)

    def last_offset(self, key: bytes) -> int:
        keys = [key for append in self.appends for key in append.keys]
        return max((at for at, each in enumerate(keys) if each == key), default=-1)

    def store(self, cuts: list[list[bytes | None]], claim: Claim | None) -> None:
        data, values = self.batches(cuts)
        keys = [key for some in cuts for key in some]
        is_old = (
            claim is not None
            and claim.writer > FIRST_WRITER
            and (claim.batch <= self.last(claim.writer))
        )
        offset = self.partition.next_offset
        appended = self.partition.append(data, claim)
        assert appended.is_new != is_old
        if not is_old:
            assert (appended.base_offset, appended.next_offset) == (offset, offset + len(values))
            active = self.partition.segments[-1]
            writer = claim.writer if claim and claim.writer > FIRST_WRITER else None
            batch = claim.batch if claim else 0
            self.appends.append(
                Append(values, keys, writer, batch, active.base_offset, active.size)
            )
        self.partition.when_durable(appended.next_offset, lambda error: None)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def produce(self, keys: list[bytes | None]) -> None:
        self.store([keys], None)

    @rule(cuts=CUTS, writer=WRITERS, ahead=st.integers(-2, 3))
    def write(self, cuts: list[list[bytes | None]], writer: int, ahead: int) -> None:
        self.store(cuts, Claim(writer, max(self.last(writer) + ahead, 0)))

    @rule(cuts=CUTS, key=st.sampled_from([b"a", b"b", b"", b"none"]), off=st.integers(-1, 1))
    def append_expecting_a_key(self, cuts: list[list[bytes | None]], key: bytes, off: int) -> None:
        last = self.last_offset(key)
        claim = Claim(expected={key: last + off})
        if not off:
            self.store(cuts, claim)
            return
        with pytest.raises(VersionConflict) as conflict:
            self.partition.append(self.batches(cuts)[0], claim)
        assert conflict.value.actual == last

    @rule(cuts=CUTS, off=st.integers(-1, 1))
    def append_expecting_the_end(self, cuts: list[list[bytes | None]], off: int) -> None:
        last = sum(len(append.values) for append in self.appends) - 1
        if not off:
            self.store(cuts, Claim(expected=last))
            return
        with pytest.raises(VersionConflict) as conflict:
            self.partition.append(self.batches(cuts)[0], Claim(expected=last + off))
        assert conflict.value.actual == last

    @rule()
    def sync(self) -> None:
        self.held.run()
        self.acknowledged = len(self.appends)

    @rule()
    def close_and_open(self) -> None:
        self.partition.close()
        self.acknowledged = len(self.appends)
        self.open()
        assert self.partition.recovery.scanned_bytes == 0

    @rule(data=st.data(), torn=st.binary(max_size=80))
    def crash_and_open(self, data: st.DataObject, torn: bytes) -> None:
        self.generation += 1
        survivor = self.root / str(self.generation)
        shutil.copytree(self.folder, survivor)
        self.folder = survivor
        active = self.partition.segments[-1]
        kept = [a.end for a in self.appends[: self.acknowledged] if a.segment == active.base_offset]
        size = data.draw(st.integers(max(kept, default=0), active.size))
        assert active.path is not None
        last = survivor / active.path.name
        written = last.read_bytes()
        # What is written in place of the rest is not the rest by chance.
        assume(not torn or torn[:1] != written[size : size + 1])
        last.write_bytes(written[:size] + torn)
        self.appends = [a for a in self.appends if a.segment < active.base_offset or a.end <= size]
        whole = max((a.end for a in self.appends if a.segment == active.base_offset), default=0)
        found = list(check_partition(survivor))
        assert (found[-1].torn_bytes, found[-1].damage) == (size + len(torn) - whole, [])
        self.open()
        assert self.partition.recovery.cut_bytes == size + len(torn) - whole
        assert not self.partition.recovery.damage
        assert last.stat().st_size == whole
        self.acknowledged = len(self.appends)

    @invariant()
    def exactly_the_acknowledged_appends_are_there(self) -> None:
        values = [value for a in self.appends[: self.acknowledged] for value in a.values]
        assert read(self.partition, 0) == list(enumerate(values))

    @invariant()
    def every_writers_last_batch_is_known(self) -> None:
        for writer in (FIRST_WRITER + 1, FIRST_WRITER + 2):
            last = self.partition.last_append_of(writer)
            assert (-1 if last is None else last.last_sequence) == self.last(writer)

    def teardown(self) -> None:
        shutil.rmtree(self.root)


TestAppendModel = AppendModel.TestCase
TestAppendModel.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
