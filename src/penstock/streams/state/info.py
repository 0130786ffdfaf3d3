"""What there is to know of an operator's state, from its durable form alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import StateMissing
from penstock.streams.state.durable import BASE, DELTA, BucketFiles
from penstock.streams.state.files import Counts
from penstock.streams.state.keys import comparable, hashes_of, key_layout
from penstock.streams.state.schema import StateSchema

_NEWEST = 2**63 - 1


@dataclass(frozen=True)
class BucketInfo:
    bucket: int
    rows: int  # at the newest version
    size: int  # bytes of all files
    versions: tuple[int, ...]  # those that can be opened
    late: int  # rows that came after what they belong to was let go


def state_info(address: str | Path, operator: str, buckets: int) -> list[BucketInfo]:
    """Of each bucket that has any state."""
    found = []
    for bucket in range(buckets):
        files = BucketFiles(str(address), operator, bucket, buckets)
        kept = files.kept()
        if kept:
            size = sum(sum(sizes.values()) for sizes in files.versions())
            newest = files.trailer(kept[-1])
            found.append(BucketInfo(bucket, newest.rows, size, kept, newest.reached.counts.late))
    return found


def counted(address: str | Path, operator: str, buckets: int, version: int) -> dict[str, int]:
    """How many rows were late or dropped, and results corrected, by these names.

    It is what the steps up to this version counted: where it is not there, the newest before it.
    Nothing, where no step was taken yet. Raises StateMissing when there are only newer versions.
    """
    found = Counts()
    for bucket in range(buckets):
        files = BucketFiles(str(address), operator, bucket, buckets)
        trailer = files.find_trailer(version)
        if trailer is None and files.numbers():
            trailer = files.trailer(files.at(version))
        if trailer is not None:
            found = found.plus(trailer.reached.counts)
    return found._asdict()


def look_up(
    address: str | Path,
    operator: str,
    buckets: int,
    key: Mapping[str, Any],
    version: int | None = None,
) -> dict[str, Any] | None:
    """Keys and values of the row with this key, None if there is none.

    It is read from the files, the newest first, up to the last base; the version is the newest that
    the bucket of the key has, up to the given one. Raises StateMissing when the operator has no
    state, or none that is as old.
    """
    schema = state_schema(address, operator, buckets)
    wanted = pa.RecordBatch.from_pylist([dict(key)], schema=schema.keys)
    bucket = int(schema.buckets_of(wanted, buckets)[0])
    files = BucketFiles(str(address), operator, bucket, buckets)
    if not files.numbers():  # no step has been taken there
        return None
    route = files.route(files.at(_NEWEST if version is None else version), None)
    sources = [(each, DELTA) for each in reversed(route.deltas)]
    if route.base is not None:
        sources.append((route.base, BASE))
    for each, kind in sources:
        for batch in files.read(each, kind)[1]:
            row = _row_of(batch, wanted)
            if row is not None:
                *values, removed = batch.slice(row, 1).columns
                if removed[0].as_py():
                    return None
                found = pa.RecordBatch.from_arrays(values, schema=schema.columns)
                return dict(found.to_pylist()[0])
    return None


def state_schema(address: str | Path, operator: str, buckets: int) -> StateSchema:
    """That of the newest version of a bucket. Raises StateMissing when there is no state."""
    for bucket in range(buckets):
        files = BucketFiles(str(address), operator, bucket, buckets)
        newest = files.newest(_NEWEST)
        if newest is not None:
            return files.schema(newest)
    raise StateMissing(
        f"there is no state of {operator!r} in {buckets} buckets at {address}",
        hint="see that the address and the number of buckets are right",
    )


def _row_of(batch: pa.RecordBatch, wanted: pa.RecordBatch) -> int | None:
    layout = key_layout(wanted.schema)
    key, keys = layout.encode(wanted), layout.encode(batch.select(wanted.schema.names))
    for row in np.flatnonzero(hashes_of(keys) == hashes_of(key)[0]):
        if comparable(keys, row) == comparable(key, 0):
            return int(row)
    return None
