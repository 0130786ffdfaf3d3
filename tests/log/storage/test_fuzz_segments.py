"""Segments with any bytes changed: what is read is what was written there, or CorruptBatch."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptBatch
from penstock.events.batch import decode
from penstock.log.policy import TopicPolicy
from penstock.log.storage.partition import Partition
from penstock.log.storage.times import first_at, latest

from .conftest import HeldExecutor, append, batch

POLICY = TopicPolicy(segment_bytes=2048)
VALUES = [b"%d" % number * (1 + number * 7 % 40) for number in range(60)]
LARGE = 12_000  # more than the index steps over, so that it has several entries


@cache
def written(how: str) -> Path:
    """The values on disk, in batches of all sizes and codecs, after a clean end or a crash."""
    folder = Path(mkdtemp(prefix="penstock-fuzz-"))
    with ThreadPoolExecutor(1) as syncs:
        policy = TopicPolicy(segment_bytes=LARGE) if "large" in how else POLICY
        partition = Partition(folder, "t", 0, policy, syncs)
        first, count = 0, 1
        while first < len(VALUES):
            append(partition, *VALUES[first : first + count], codec=first % 5)
            first, count = first + count, count % 4 + 1
        if "clean" in how:
            partition.close()
    for index in folder.glob("*.index") if "bare" in how else ():
        index.unlink()
    return folder


Mutation = Callable[[bytearray], None]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """A change of some bytes; positions are drawn as shares of the size, which is not known yet."""
    kind = draw(st.sampled_from(["flip", "set", "zero", "cut", "insert", "remove", "copy"]))
    share, other = draw(st.floats(0, 1, exclude_max=True)), draw(st.floats(0, 1, exclude_max=True))
    length, data = draw(st.integers(1, 200)), draw(st.binary(min_size=1, max_size=80))
    number = draw(st.integers(0, 255))

    def mutate(content: bytearray) -> None:
        if not content:
            return
        at, to = int(share * len(content)), int(other * len(content))
        match kind:
            case "flip":
                content[at] ^= 1 << number % 8
            case "set":
                content[at : at + len(data)] = data[: len(content) - at]
            case "zero":
                content[at : at + length] = bytes(min(length, len(content) - at))
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = data
            case "remove":
                del content[at : at + length]
            case "copy":
                piece = content[at : at + length]
                content[to : to + len(piece)] = piece

    return mutate


def read_from(partition: Partition, offset: int, max_bytes: int) -> list[int]:
    """The offsets of what is read at `offset`, none where it is damaged."""
    try:
        piece = partition.slice(offset, max_bytes)
        assert piece is not None
        records = list(decode(memoryview(piece.read())))
    except CorruptBatch:
        return []
    for record in records:
        at = record.position.offset
        assert record.value == (VALUES[at] if at < len(VALUES) else b"more")
    offsets = [record.position.offset for record in records]
    assert offset in offsets
    return offsets


def read_through(partition: Partition) -> set[int]:
    """Every offset that can be read from start to end."""
    read: set[int] = set()
    offset = partition.start_offset
    while offset < partition.end_offset:
        found = read_from(partition, offset, 100_000)
        read.update(found)
        offset = found[-1] + 1 if found else offset + 1
    return read


@pytest.fixture(scope="module", autouse=True)
def quick_syncs() -> Iterator[None]:
    """Nobody's power is cut here, and there are thousands of small logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        yield


@pytest.mark.parametrize("how", ["clean", "crash", "crash bare", "clean large", "crash large bare"])
@settings(max_examples=40)
@given(
    files=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    changes=st.lists(mutations(), min_size=1, max_size=4),
    indexes=st.booleans(),
)
def test_only_what_was_written_is_read(
    how: str, files: list[int], changes: list[Mutation], indexes: bool
) -> None:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "0"
        shutil.copytree(written(how), folder)
        segments = sorted(folder.glob("*.index" if indexes else "*.log"))
        touched = [segments[number % len(segments)] for number in files] if segments else []
        for path, change in zip(touched * len(changes), changes, strict=False):
            content = bytearray(path.read_bytes())
            change(content)
            path.write_bytes(content)
        held = HeldExecutor()
        partition = Partition(folder, "t", 0, POLICY, held)
        singly = range(partition.start_offset, partition.end_offset)
        readable = {offset for offset in singly if read_from(partition, offset, 1)}
        assert read_through(partition) == readable
        for search in (latest, lambda partition: first_at(partition, 1)):
            with contextlib.suppress(CorruptBatch):
                search(partition)
        if indexes or not touched:
            assert readable == set(range(len(VALUES)))  # an index is only an aid
        # Whatever was broken, appending goes on, after all that was acknowledged.
        appended = partition.append(batch(b"more"))
        assert appended.base_offset >= len(VALUES)
        partition.when_durable(appended.next_offset, lambda error: None)
        held.run()
        readable.add(appended.base_offset)
        assert read_through(partition) == readable
        again = Partition(folder, "t", 0, POLICY, HeldExecutor())
        assert again.end_offset == appended.next_offset
        assert read_through(again) == readable
