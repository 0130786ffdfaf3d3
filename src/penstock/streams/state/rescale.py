"""State spread over another number of buckets."""

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from penstock.errors import InvalidInput, StateMismatch, StateMissing
from penstock.streams.state.bucket import EMPTY, BucketState, unmap
from penstock.streams.state.durable import BucketFiles
from penstock.streams.state.files import NOTHING, Counts, Reached


def rescale(
    address: str | Path,
    *,
    operator: str,
    from_buckets: int,
    to_buckets: int,
    version: int | Sequence[int],
) -> int:
    """Writes the state of a version anew, for another number of buckets. Returns how many rows,
    each copy counted.

    The version is that of each bucket, -1 where it has taken no step, so that one which is lost is
    noticed; or it is one number, and each bucket has the newest version up to it. The new files are
    a first version, by the highest number of those, on which the next step follows. What was there
    for the old number of buckets stays as it is; what was there for the new one is deleted. A
    rescale that is cut short leaves buckets that cannot be opened, and is run again.

    The clock is kept. After a completed batch all buckets that have state have the same one; raises
    StateMismatch when they do not, as a new bucket has rows of several old ones: with the lower
    clock, what fell due in between would be done twice for some of them, with the higher one never
    for others.
    """
    if from_buckets == to_buckets:
        raise InvalidInput(
            f"the state has {from_buckets} buckets already", hint="give another number"
        )
    versions = _versions(address, operator, from_buckets, version)
    newest = max(versions)
    leading = versions.index(newest)
    schema = BucketFiles(str(address), operator, leading, from_buckets).schema(newest)
    row_counts = [0] * to_buckets
    clocks: set[int | None] = set()
    told = Counts()
    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        paths = [f"{scratch}/{bucket}" for bucket in range(to_buckets)]
        with contextlib.ExitStack() as opened:
            opened.callback(unmap, scratch)
            streams = [
                opened.enter_context(pa.ipc.new_stream(file, schema.file_schema))
                for file in [opened.enter_context(pa.OSFile(path, "wb")) for path in paths]
            ]
            for bucket, at in enumerate(versions):
                if at == EMPTY:
                    continue
                with BucketState.open(
                    address,
                    scratch,
                    operator=operator,
                    bucket=bucket,
                    buckets=from_buckets,
                    schema=schema,
                    version=at,
                ) as state:
                    clocks.add(state.clock)
                    told = told.plus(state.counts)
                    for target, rows in state.rows_by_bucket(to_buckets, copies=bucket == leading):
                        streams[target].write_batch(schema.file_batch(rows))
                        row_counts[target] += rows.num_rows
        if len(clocks) > 1:
            raise StateMismatch(
                f"the buckets of version {newest} were left at different clocks: "
                + ", ".join(sorted(map(str, clocks))),
                hint="rescale at the version of a batch that was completed",
            )
        (clock,) = clocks
        places = [BucketFiles(str(address), operator, b, to_buckets) for b in range(to_buckets)]
        for files in places:
            files.delete_all()
        for files, path, count in zip(places, paths, row_counts, strict=True):
            reached = Reached(clock, told)
            told = Counts()  # in which bucket it is counted on makes no difference
            with pa.memory_map(path) as content:
                batches = pa.ipc.open_stream(content)
                files.write_version(
                    newest, batches, schema, parent=NOTHING, rows=count, reached=reached
                )
    return sum(row_counts)


def _versions(
    address: str | Path, operator: str, buckets: int, version: int | Sequence[int]
) -> list[int]:
    """That of each bucket, EMPTY where it has none."""
    if not isinstance(version, int):
        found = list(version)
    else:
        files = [BucketFiles(str(address), operator, bucket, buckets) for bucket in range(buckets)]
        newest = [each.newest(version) for each in files]
        found = [EMPTY if each is None else each for each in newest]
    if len(found) != buckets:
        raise InvalidInput(f"{len(found)} versions for {buckets} buckets", hint="one for one")
    if max(found) == EMPTY:
        raise StateMissing(
            f"there is no state of {operator!r} in {buckets} buckets at {address}",
            hint="see that the version and the number of buckets are right",
        )
    return found


def forget(address: str | Path, operator: str, buckets: int) -> None:
    """Deletes all that is kept in this number of buckets."""
    for bucket in range(buckets):
        BucketFiles(str(address), operator, bucket, buckets).delete_all()
