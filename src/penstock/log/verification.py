"""The files of a log checked to the last byte while no server runs; nothing is mended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import CorruptBatch
from penstock.log.storage.claims import Appends
from penstock.log.storage.published import read_durable_offset, read_start_offset
from penstock.log.storage.segment import Segment
from penstock.log.storage.survey import survey


@dataclass
class Finding:
    """What the check of one segment gave.

    `torn_bytes` at its end were never acknowledged, and the next start cuts them off; `damage` is
    in what was acknowledged, and in `lost_bytes` behind it, to the end, no sound batch is found.
    """

    path: Path
    size: int = 0
    torn_bytes: int = 0
    lost_bytes: int = 0
    damage: list[CorruptBatch] = field(default_factory=list)


def partition_folders(folder: Path) -> list[Path]:
    """The folder of every partition that is on disk, and that of the groups' journal."""
    found = []
    for facts in sorted((folder / "topics").glob("*/topic.json")):
        topic = json.loads(facts.read_text())
        if topic["settings"].get("durability") != "memory":
            found += [facts.parent / str(index) for index in range(topic["partitions"])]
    journal = folder / "journal"
    return [*found, journal] if journal.is_dir() else found


def check_partition(folder: Path) -> Iterator[Finding]:
    """Checks the segments of one partition, oldest first.

    The caller owns the log, so that nobody writes meanwhile.
    """
    if not folder.is_dir():
        gone = CorruptBatch(f"{folder} is missing", file=str(folder), position=0)
        yield Finding(folder, damage=[gone])
        return
    durable, start = read_durable_offset(folder), read_start_offset(folder)
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    if durable > start and (not bases or bases[0] > start):
        yield Finding(folder, damage=[_missing(folder, start, bases[0] if bases else durable)])
    torn = False
    for base, after in zip(bases, [*bases, None][1:], strict=True):
        segment = Segment(folder, base)
        finding = Finding(folder / f"{base:020d}.log", segment.size)
        if torn:  # what stands behind a torn batch goes with it
            finding.torn_bytes = segment.size
        else:
            torn = _check(segment, finding, durable, after)
        yield finding


def _check(segment: Segment, finding: Finding, durable: int, after: int | None) -> bool:
    """Fills the finding in, and says whether the acknowledged part of the partition ends here.

    `after` is the offset where the next segment begins, if there is one.
    """
    # An index is written after its segment has been synced, so it vouches for all of it.
    synced = max(durable, segment.next_offset) if segment.load_index() else durable
    due = synced if after is None else after
    offset = segment.base_offset
    appends = Appends()
    for position, found in survey(segment, 0, offset, due):
        if not isinstance(found, CorruptBatch):
            finding.lost_bytes = 0
            offset = found.next_offset
            for _ in appends.see(position, found):
                pass
        elif offset >= synced:
            finding.torn_bytes = segment.size - position
            break
        else:
            finding.damage.append(found)
            finding.lost_bytes = segment.size - position
    if unfinished := appends.cut_at(synced):
        finding.torn_bytes = segment.size - unfinished[0]
    if finding.torn_bytes:
        return True
    if not finding.lost_bytes and offset < min(due, synced):
        finding.damage.append(_missing(finding.path, offset, min(due, synced)))
    return synced <= offset < due


def _missing(path: Path, start: int, end: int) -> CorruptBatch:
    what = f"offset {start} is" if end == start + 1 else f"offsets {start} to {end - 1} are"
    position = path.stat().st_size if path.is_file() else 0
    return CorruptBatch(f"{path}: {what} missing", file=str(path), position=position)
