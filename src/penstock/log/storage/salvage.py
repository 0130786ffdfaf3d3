"""What is left of a damaged partition, and keeping the damaged files for whoever can read more."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import CorruptBatch
from penstock.events.batch import BatchHeader, decode
from penstock.events.record import Record
from penstock.log.storage.files import sync_folder
from penstock.log.storage.partition import Partition
from penstock.log.storage.published import START_FILE, read_start_offset
from penstock.log.storage.segment import Segment
from penstock.log.storage.survey import survey

SUFFIX = ".damaged"


def check_start(folder: Path) -> CorruptBatch | None:
    """Sets the start offset aside where it is no number, so that the partition can be opened; it
    then begins with its first segment."""
    path = folder / START_FILE
    try:
        read_start_offset(folder)
    except ValueError:
        kept = _free_name(path)
        path.rename(kept)
        sync_folder(folder)
        return CorruptBatch(f"{path} held no offset, it is now {kept}", file=str(path), position=0)
    return None


def missing_start(folder: Path, partition: Partition) -> CorruptBatch | None:
    """What is said when the first segments are gone, and it was not retention that took them."""
    start, first = read_start_offset(folder), partition.start_offset
    if start >= first:
        return None
    return CorruptBatch(
        f"{folder}: offsets {start} to {first - 1} are missing", file=str(folder), position=0
    )


def sound_records(partition: Partition) -> Iterator[Record | CorruptBatch]:
    """The records that can be read, in order, and the damage in between."""
    for segment in partition.segments:
        offset, is_behind_damage = segment.base_offset, False
        for position, found in survey(segment, 0, offset, segment.next_offset):
            is_behind_damage = not isinstance(found, BatchHeader)
            if isinstance(found, CorruptBatch):
                yield found
            else:
                offset = found.next_offset
                yield from _records(segment, position, found)
        if offset < segment.next_offset and not is_behind_damage:
            lost = f"offsets {offset} to {segment.next_offset - 1} are missing"
            yield segment.corrupt(segment.size, lost)


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record | CorruptBatch]:
    """All of a batch, or what is wrong with it: a checksum says nothing of what it covers."""
    data = os.pread(segment.file.fd, header.size, position)
    try:
        return list(decode(memoryview(data)))
    except CorruptBatch as malformed:
        return [segment.corrupt(position, malformed.message)]


def set_aside(file: Path) -> Path | None:
    """A second name for a segment that is to be deleted; None if the file is no segment.

    A link takes no room, which matters on a full disk. The caller writes to the file no more.
    """
    if file.suffix != ".log" or not file.is_file():
        return None
    kept = _free_name(file)
    if kept.exists():  # from an opening that went no further
        return kept
    try:
        os.link(file, kept)
    except OSError:  # a file system without links
        shutil.copyfile(file, kept)
    sync_folder(file.parent)
    return kept


def _free_name(file: Path) -> Path:
    """One that is not taken, or that this very file has already."""
    number, kept = 1, file.with_name(file.name + SUFFIX)
    while kept.exists():
        with contextlib.suppress(FileNotFoundError):
            if kept.samefile(file):
                break
        number += 1
        kept = file.with_name(f"{file.name}{SUFFIX}-{number}")
    return kept
