import shutil
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.log.verification import Finding, check_partition, partition_folders

BATCHES = 6
TWO_IN_A_SEGMENT = 1024


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Six batches of one record, two in each of three segments; the log was closed."""
    with Log.open(tmp_path) as log:
        log.create("t", segment_bytes=TWO_IN_A_SEGMENT)
        for number in range(BATCHES):
            log.append("t", [Record(value=b"%d" % number * 400)])
    return tmp_path / "topics" / "t" / "0"


def segments(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def as_after_a_crash(partition: Path, durable: int) -> None:
    """No indexes, and a durable offset that was last written some time before."""
    for index in partition.glob("*.index"):
        index.unlink()
    (partition / "durable").write_bytes(durable.to_bytes(8, "little"))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def damage(findings: list[Finding]) -> list[tuple[str, int]]:
    return [
        (Path(each.file).name, each.position) for finding in findings for each in finding.damage
    ]


def test_a_sound_partition(partition: Path) -> None:
    findings = list(check_partition(partition))
    assert [finding.path for finding in findings] == segments(partition)
    assert [finding.size for finding in findings] == [p.stat().st_size for p in segments(partition)]
    assert len(findings) == 3
    assert damage(findings) == []
    assert not any(finding.torn_bytes or finding.lost_bytes for finding in findings)


@pytest.mark.parametrize("segment", range(3))
@pytest.mark.parametrize("batch", range(2))
def test_every_flipped_bit_is_found_where_its_batch_begins(
    partition: Path, segment: int, batch: int
) -> None:
    path = segments(partition)[segment]
    begins = batch * path.stat().st_size // 2
    flip(path, begins + 100)
    findings = list(check_partition(partition))
    assert damage(findings) == [(path.name, begins)]
    assert findings[segment].lost_bytes == (path.stat().st_size - begins if batch else 0)


def test_damage_in_two_places_is_reported_twice(partition: Path) -> None:
    first, _, last = segments(partition)
    flip(first, 100)
    flip(last, 100)
    assert damage(list(check_partition(partition))) == [(first.name, 0), (last.name, 0)]


@pytest.mark.parametrize(
    ("segment", "missing"), [(0, "offsets 0 to 1"), (1, "offsets 2 to 3"), (2, "offsets 4 to 5")]
)
def test_a_segment_that_is_gone_is_missed(partition: Path, segment: int, missing: str) -> None:
    segments(partition)[segment].unlink()
    [found] = [each for finding in check_partition(partition) for each in finding.damage]
    assert found.message.endswith(f": {missing} are missing")


def test_a_segment_cut_at_a_batch_is_missed(partition: Path) -> None:
    for path in segments(partition)[1:]:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    found = [each.message for finding in check_partition(partition) for each in finding.damage]
    assert [message.partition(": ")[2] for message in found] == [
        "offset 3 is missing",
        "offset 5 is missing",
    ]


@pytest.mark.parametrize("gone", ["segments", "folder"])
def test_a_partition_that_is_gone_is_missed(partition: Path, gone: str) -> None:
    if gone == "folder":
        shutil.rmtree(partition)
    for path in segments(partition):
        path.unlink()
    [finding] = check_partition(partition)
    assert "missing" in finding.damage[0].message


def test_a_torn_end_is_no_damage(partition: Path) -> None:
    as_after_a_crash(partition, durable=5)
    last = segments(partition)[-1]
    half = last.stat().st_size // 2
    with last.open("r+b") as file:
        file.truncate(half + 70)
    findings = list(check_partition(partition))
    assert damage(findings) == []
    assert [finding.torn_bytes for finding in findings] == [0, 0, 70]


def test_what_stands_behind_a_torn_batch_is_torn_as_well(partition: Path) -> None:
    as_after_a_crash(partition, durable=3)
    _, middle, last = segments(partition)
    half = middle.stat().st_size // 2
    flip(middle, half + 100)
    findings = list(check_partition(partition))
    assert damage(findings) == []
    assert [finding.torn_bytes for finding in findings] == [0, half, last.stat().st_size]


def test_the_same_end_is_damage_when_it_was_acknowledged(partition: Path) -> None:
    as_after_a_crash(partition, durable=6)
    last = segments(partition)[-1]
    half = last.stat().st_size // 2
    with last.open("r+b") as file:
        file.truncate(half + 70)
    findings = list(check_partition(partition))
    assert damage(findings) == [(last.name, half)]
    assert [finding.torn_bytes for finding in findings] == [0, 0, 0]


def test_an_index_vouches_for_its_segment(partition: Path) -> None:
    (partition / "durable").write_bytes((1).to_bytes(8, "little"))  # behind, after a power cut
    middle = segments(partition)[1]
    flip(middle, 100)
    findings = list(check_partition(partition))
    assert damage(findings) == [(middle.name, 0)]
    assert not any(finding.torn_bytes for finding in findings)


def test_trimmed_records_are_not_missed(tmp_path: Path, partition: Path) -> None:
    with Log.open(tmp_path) as log:
        log.trim("t", 0, 3)
    findings = list(check_partition(partition))
    assert len(findings) == 2
    assert damage(findings) == []


def test_the_folders_are_those_on_disk_and_the_journal(tmp_path: Path, partition: Path) -> None:
    with Log.open(tmp_path) as log:
        log.create("m", durability="memory")
        log.create("two", partitions=2)
    two = tmp_path / "topics" / "two"
    assert partition_folders(tmp_path) == [partition, two / "0", two / "1", tmp_path / "journal"]
