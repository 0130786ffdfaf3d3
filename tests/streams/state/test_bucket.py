import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from penstock.errors import (
    InvalidInput,
    StateDamaged,
    StateError,
    StateLocked,
    StateMismatch,
    StateMissing,
)
from penstock.streams.state import BucketState, StateSchema, arena, bucket
from penstock.streams.state.files import TRAILER_BYTES, read_trailer
from penstock.streams.state.index_loops import FREE
from tests.streams.state.hosts import Contents, Host

SCHEMA = StateSchema(
    pa.schema({"key": pa.string()}),
    pa.schema({"n": pa.int64(), "s": pa.string(), "due": pa.int64()}),
    due="due",
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, SCHEMA)


@pytest.fixture
def other(tmp_path: Path) -> Host:
    return Host(tmp_path, SCHEMA, name="b")


def step(
    host: Host, version: int, *, after: int | None = None, keys: int = 50, commit: bool = True
) -> None:
    """A step that adds some keys, changes some, and removes some."""
    random = np.random.default_rng(version)
    batch = pa.record_batch({"key": pa.array([f"k{i}" for i in random.integers(0, keys, 20)])})
    with host.open(version - 1 if after is None else after) as state:
        found = state.find_or_add(batch)
        np.add.at(state.fixed("n"), found, 1)
        state.valid("n")[found] = True
        state.put(found, pa.record_batch({"s": [f"v{version}"] * 20, "due": [version] * 20}))
        state.remove(found[:3])
        if commit:
            state.commit(version)


def expected(version: int, *, steps: Sequence[int] | None = None, keys: int = 50) -> Contents:
    """What the steps up to this version add up to: those of all versions, unless they are given."""
    counts: dict[str, tuple[int, str, int]] = {}
    for each in range(version + 1) if steps is None else steps[: steps.index(version) + 1]:
        chosen = [f"k{i}" for i in np.random.default_rng(each).integers(0, keys, 20)]
        for key in chosen:
            counts[key] = counts.get(key, (0,))[0] + 1, f"v{each}", each
        for key in chosen[:3]:
            counts.pop(key, None)
    return {repr([key]): repr(list(values)) for key, values in counts.items()}


class Rebuilds:
    """Counts how often an arena was begun anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        create = bucket._empty

        def counted(folder: Path, schema: StateSchema) -> arena.Arena:
            self.count += 1
            return create(folder, schema)

        monkeypatch.setattr(bucket, "_empty", counted)


@pytest.fixture
def rebuilds(monkeypatch: pytest.MonkeyPatch) -> Rebuilds:
    return Rebuilds(monkeypatch)


def test_steps_follow_each_other_on_the_same_arena(host: Host, rebuilds: Rebuilds) -> None:
    for version in range(8):
        step(host, version)
        if version % 2:
            host.restart_process()
        assert host.contents(version) == expected(version)

    assert rebuilds.count == 1


def test_a_host_that_is_behind_catches_up(host: Host, other: Host, rebuilds: Rebuilds) -> None:
    step(host, 0)
    assert other.contents(0) == expected(0)
    for version in range(1, 6):
        step(host, version)

    assert rebuilds.count == 2
    assert other.contents(5) == expected(5)
    assert rebuilds.count == 2
    step(other, 6)
    assert host.contents(6) == other.contents(6) == expected(6)
    assert rebuilds.count == 2


def test_a_step_that_is_run_again_starts_from_where_it_did(host: Host, rebuilds: Rebuilds) -> None:
    step(host, 0)
    step(host, 1)
    before = host.file(1).read_bytes()
    step(host, 1)

    assert host.contents(1) == expected(1)
    assert host.file(1).read_bytes() == before
    assert rebuilds.count == 2


def test_a_delta_has_the_same_bytes_whatever_the_arena_went_through(
    host: Host, other: Host
) -> None:
    for version in range(6):
        step(host, version)
    before = host.file(5).read_bytes()
    step(other, 5)  # whose rows come from files, in another order

    assert host.file(5).read_bytes() == before


def test_what_is_not_committed_never_happened(host: Host, rebuilds: Rebuilds) -> None:
    step(host, 0)
    step(host, 1, commit=False)
    assert host.contents(0) == expected(0)
    assert rebuilds.count == 2

    new = pa.record_batch({"key": pa.array(["new"])})
    with pytest.raises(InvalidInput, match="no values 'key'"), host.open(0) as state:
        state.put(state.find_or_add(new), new)
    assert host.contents(0) == expected(0)


def test_no_step_reads_all_of_the_state(
    host: Host, other: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(state: BucketState) -> None:
        raise AssertionError("all rows were read")

    with monkeypatch.context() as patch:
        patch.setattr(BucketState, "all_rows", scan)
        for version in range(5):
            step(other if version == 3 else host, version)
    assert host.contents(4) == expected(4)


def test_looking_does_not_make_an_arena_dirty(host: Host, rebuilds: Rebuilds) -> None:
    step(host, 0)
    keys = pa.record_batch({"key": pa.array(["k1", "nix"])})
    with host.open(0) as state:
        found = state.find(keys)
        state.take(found[found >= 0])
        len(state)
    host.contents(0)

    assert rebuilds.count == 1


def test_an_older_version_is_built_again(host: Host) -> None:
    for version in range(5):
        step(host, version)

    for version in (2, 4, 0, -1, 3):
        assert host.contents(version) == expected(version)


def test_a_step_without_changes_is_a_version_too(host: Host, rebuilds: Rebuilds) -> None:
    step(host, 0)
    for version in (1, 2):
        with host.open(version - 1) as state:
            state.commit(version)

    assert host.contents(2) == expected(0)
    assert rebuilds.count == 1


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _flip_head(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8 * FREE] ^= 1  # a row that is in use
    path.write_bytes(bytes(content))


def _wipe(path: Path) -> None:
    path.write_bytes(b"")


def _other_boot(path: Path) -> None:
    words = np.memmap(path, np.int64, "r+")
    words[arena._BOOT] += 1
    words[arena._CHECK] = crc32c(words[: arena._CHECK].tobytes())


def _dirty(path: Path) -> None:
    np.memmap(path, np.int64, "r+")[arena._DIRTY] = 1


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("rows", Path.unlink),
        ("index", Path.unlink),
        ("heap", Path.unlink),
        ("wheel", Path.unlink),
        ("wheel", _cut),
        ("wheel", _wipe),
        ("rows", _cut),
        ("index", _cut),
        ("rows", _wipe),
        ("heap", _wipe),
        ("rows", _flip_head),
        ("rows", _other_boot),
        ("rows", _dirty),
    ],
)
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", ""])
def test_an_arena_that_is_not_sound_is_built_again(
    host: Host, rebuilds: Rebuilds, name: str, harm: Callable[[Path], None], mapped: bool
) -> None:
    step(host, 0)
    step(host, 1)
    if not mapped or harm in (_cut, _wipe, _flip_head):  # as those write another file
        host.restart_process()
    harm(host.arena / name)

    assert host.contents(1) == expected(1)
    assert rebuilds.count == 2
    step(host, 2)
    assert host.contents(2) == expected(2)


def test_an_index_full_of_nonsense_ends_the_step_and_is_built_again(host: Host) -> None:
    step(host, 0)
    host.restart_process()
    words = np.memmap(host.arena / "index", np.uint64, "r+")
    words[words != 0] |= np.uint64(0x7FFFFFFF)
    with pytest.raises(StateDamaged, match="contradicts itself"):
        step(host, 1)
    step(host, 1)

    assert host.contents(1) == expected(1)


def test_another_history_is_not_taken_for_the_same_version(host: Host, other: Host) -> None:
    step(host, 0)
    step(host, 1)
    with other.open(-1) as state:  # the node was reset, and ran on another host
        state.find_or_add(pa.record_batch({"key": pa.array(["reset"])}))
        state.commit(0)
    with other.open(0) as state:
        state.commit(1)

    assert host.contents(1) == {"['reset']": "[None, None, None]"}


def test_an_arena_of_another_history_is_not_brought_up_to_date(host: Host, other: Host) -> None:
    step(host, 0)
    with other.open(-1) as state:
        state.find_or_add(pa.record_batch({"key": pa.array(["reset"])}))
        state.commit(0)
    with other.open(0) as state:
        state.commit(1)

    assert host.contents(1) == {"['reset']": "[None, None, None]"}


def test_a_base_of_another_history_is_passed_over(
    host: Host, other: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.state.durable._LEAST_WEIGHT", 0)
    for version in range(4):
        step(host, version)
    base = max(version for version in range(4) if host.file(version, "base").exists())
    monkeypatch.setattr("penstock.streams.state.durable._LEAST_WEIGHT", 2**40)
    with other.open(-1) as state:
        state.find_or_add(pa.record_batch({"key": pa.array(["reset"])}))
        state.commit(0)
    for version in range(1, 4):
        with other.open(version - 1) as state:
            state.commit(version)

    for version in (base, 3):
        other.lose_arena()
        assert other.contents(version) == {"['reset']": "[None, None, None]"}


def test_a_changed_schema_is_refused_with_the_field_named(host: Host, tmp_path: Path) -> None:
    step(host, 0)
    changed = StateSchema(SCHEMA.keys, pa.schema({"n": pa.float64(), "s": pa.string()}))

    with pytest.raises(StateMismatch, match="value 'n' was int64 and is now double") as raised:
        Host(tmp_path, changed).open(0)
    assert "rebuild" in raised.value.hint
    assert "reset" in raised.value.hint
    assert host.contents(0) == expected(0)


def test_an_arena_of_another_schema_is_built_again(host: Host, tmp_path: Path) -> None:
    step(host, 0)
    changed = Host(tmp_path, StateSchema(SCHEMA.keys, pa.schema({"x": pa.int8()})))
    with changed.open(-1) as state:
        assert len(state) == 0
        state.commit(0)

    assert changed.contents(0) == {}


def test_the_clock_of_a_step_is_kept_and_never_goes_back(host: Host, other: Host) -> None:
    for version, clock in enumerate([None, -7, None, 5, 0, None]):
        with host.open(version - 1) as state:
            state.commit(version, clock)
    assert [_clock(host, version) for version in range(-1, 6)] == [None, None, -7, -7, 5, 5, 5]
    assert [_clock(other, version) for version in (5, 2)] == [5, -7]


def test_the_clock_is_in_a_base_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.streams.state.durable._LEAST_WEIGHT", 0)
    for version in range(4):
        with host.open(version - 1) as state:
            state.commit(version, version * 10)
    base = max(version for version in range(4) if host.file(version, "base").exists())
    tail = host.file(base, "base").read_bytes()[-TRAILER_BYTES:]

    assert read_trailer(tail, "").reached.clock == base * 10


def test_another_clock_is_another_history(host: Host, other: Host) -> None:
    identities = set()
    for clock, each in ((1, host), (2, other)):
        with each.open(-1) as state:
            state.commit(0, clock)
        identities.add(read_trailer(host.file(0).read_bytes(), "").identity)

    assert len(identities) == 2
    assert [_clock(each, 0) for each in (host, other)] == [2, 2]


@pytest.mark.parametrize("clock", [-(2**63), 2**63])
def test_a_clock_that_is_no_time(host: Host, clock: int) -> None:
    with host.open(-1) as state, pytest.raises(InvalidInput, match="no time"):
        state.commit(0, clock)


def _clock(host: Host, version: int) -> int | None:
    with host.open(version) as state:
        return state.clock


def test_a_version_that_is_not_kept(host: Host) -> None:
    with pytest.raises(StateMissing, match="nothing is kept there"):
        host.open(4)
    step(host, 0)
    step(host, 1)
    with pytest.raises(StateMissing, match="files of versions 0 to 1"):
        host.open(4)


def test_a_lost_delta_is_missed_even_if_the_arena_has_it(host: Host) -> None:
    step(host, 0)
    host.file(0).unlink()

    with pytest.raises(StateMissing, match="nothing is kept there"):
        host.open(0)


@pytest.mark.parametrize("version", [-1, 0, 2, 3])
def test_a_version_is_higher_than_the_one_before(host: Host, version: int) -> None:
    step(host, 3, after=-1)  # the first may be any
    with host.open(3) as state, pytest.raises(InvalidInput, match="cannot follow version 3"):
        state.commit(version)
    with pytest.raises(InvalidInput):
        host.open(-2)


@pytest.mark.parametrize("after", [-1, 0, 3])
def test_what_lies_between_a_version_and_the_one_that_it_follows_is_given_up(
    host: Host, other: Host, after: int
) -> None:
    step(host, 0)
    step(host, 3, after=0)
    step(host, 8, after=3)
    step(other, 9, after=after)
    followed = [each for each in (0, 3) if each <= after]

    for each in (host, other):
        assert each.contents(9) == expected(9, steps=[*followed, 9])
        each.lose_arena()
        assert each.contents(9) == expected(9, steps=[*followed, 9])
    assert host.contents(8) == expected(8, steps=[0, 3, 8])


WITH_GAPS = [2, 3, 7, 20, 21, 400, 5000]


@pytest.mark.parametrize("light", [True, False], ids=["with bases", ""])
@pytest.mark.parametrize("whole", [True, False], ids=["some whole", ""])
class TestVersionsWithGaps:
    @pytest.fixture(autouse=True)
    def _files(self, light: bool, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        if light:
            monkeypatch.setattr("penstock.streams.state.durable._LEAST_WEIGHT", 0)
        if whole:
            monkeypatch.setattr(bucket, "WHOLE_ROWS", 10)

    def take_steps(self, host: Host, versions: Sequence[int] = WITH_GAPS) -> None:
        for before, version in pairwise([-1, *versions]):
            step(host, version, after=before)

    def test_steps_follow_each_other_on_the_same_arena(
        self, host: Host, rebuilds: Rebuilds
    ) -> None:
        for before, version in pairwise([-1, *WITH_GAPS]):
            step(host, version, after=before)
            assert host.contents(version) == expected(version, steps=WITH_GAPS)
        assert rebuilds.count == 1

    def test_a_host_that_is_behind_catches_up(self, host: Host, other: Host) -> None:
        self.take_steps(host, WITH_GAPS[:3])
        for seen in WITH_GAPS[:3]:
            assert other.contents(seen) == expected(seen, steps=WITH_GAPS)
        for before, version in pairwise(WITH_GAPS[2:]):
            step(host, version, after=before)
        assert other.contents(5000) == expected(5000, steps=WITH_GAPS)
        step(other, 6000, after=5000)
        assert host.contents(6000) == expected(6000, steps=[*WITH_GAPS, 6000])

    def test_every_version_is_built_again(self, host: Host) -> None:
        self.take_steps(host)
        for version in (21, 2, 5000, 3, 400):
            assert host.contents(version) == expected(version, steps=WITH_GAPS)
        for version in WITH_GAPS:
            host.restart_process()
            host.lose_arena()
            assert host.contents(version) == expected(version, steps=WITH_GAPS)

    def test_a_step_that_is_run_again_writes_the_same(self, host: Host, other: Host) -> None:
        self.take_steps(host)
        before = host.written(5000)
        step(host, 5000, after=400)
        assert host.written(5000) == before
        step(other, 5000, after=400)
        assert host.written(5000) == before

    def test_a_step_that_was_killed_is_taken_from_the_version_before(self, host: Host) -> None:
        self.take_steps(host, WITH_GAPS[:-1])
        step(host, 5000, after=400, commit=False)
        _dirty(host.arena / "rows")
        host.restart_process()
        step(host, 5000, after=400)
        assert host.contents(5000) == expected(5000, steps=WITH_GAPS)

    def test_a_version_in_a_gap_is_not_there(self, host: Host) -> None:
        self.take_steps(host)
        for version in (0, 5, 399, 401, 6000):
            with pytest.raises(StateMissing, match="files of versions 2 to 5000"):
                host.open(version)


def test_after_the_commit_nothing_can_be_changed(host: Host) -> None:
    keys = pa.record_batch({"key": pa.array(["a"])})
    with host.open(-1) as state:
        found = state.find_or_add(keys)
        state.commit(0)
        assert state.version == 0
        assert state.take(found).num_rows == 1
        with pytest.raises(StateError, match="the step has ended"):
            state.find_or_add(keys)
        with pytest.raises(StateError, match="the step has ended"):
            state.fixed("n")


def test_the_disk_refuses(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    step(host, 0)
    monkeypatch.setattr("penstock.streams.state.mapped.os.posix_fallocate", full)
    many = pa.record_batch({"key": pa.array(range(5000)).cast(pa.string())})
    with host.open(0) as state, pytest.raises(StateError, match="No space left"):
        state.find_or_add(many)
    monkeypatch.undo()
    assert host.contents(0) == expected(0)


HOLD = """
import sys
import pyarrow as pa
from tests.streams.state.test_bucket import SCHEMA, Host, Path
with Host(Path(sys.argv[1]), SCHEMA).open(0) as state:
    state.find_or_add(pa.record_batch({"key": pa.array(["x"])}))
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_never_have_a_bucket_at_once(host: Host, tmp_path: Path) -> None:
    step(host, 0)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(StateLocked, match=f"in use by process {child.pid}"):
            host.open(0, wait=0.01)
        child.kill()
        assert host.contents(0) == expected(0)


def test_a_process_waits_for_the_other(host: Host, tmp_path: Path) -> None:
    step(host, 0)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "held\n"
        child.stdin.close()
        assert host.contents(0) == expected(0)
