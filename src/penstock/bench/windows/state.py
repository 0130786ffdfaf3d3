"""What windows keep: bytes for each key that has a session, rows where windows overlap."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.streams.algebra import Kernel, kernel_over
from penstock.streams.spark.place import warm_folder
from penstock.streams.state import EMPTY, BucketState

OVERLAPS = (1, 2, 5, 10, 50)
_BUCKETS = 2  # as many as cores
_BATCH = 1_000_000
_SCHEMA = pa.schema({"key": pa.int64(), "amount": pa.float64(), "at": pa.timestamp("us", "UTC")})
_ODD = 2_654_435_761  # prime to every number of keys: i * _ODD visits each key once
_SECOND = 1_000_000


class Kept(NamedTuple):
    """Of sessions of so many keys: bytes a key in memory and on disk."""

    keys: int
    warm: float
    durable: float
    buckets: int = _BUCKETS


def sessions(keys: int) -> Kept:
    """One event for each key, all of whose sessions are open, with a count and a mean."""
    asked = {"n": ps.count(), "mean": ps.mean("amount")}
    kernel = kernel_over("key", ps.session("1 hour"), asked, _SCHEMA, "at")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        warm = warm_folder(folder)
        warm.mkdir(exist_ok=True)
        try:
            for bucket in range(_BUCKETS):
                rows = _fill(kernel, _dealt(keys, bucket), Path(folder), warm, bucket)
                assert rows == len(range(bucket, keys, _BUCKETS))
            return Kept(keys, _bytes(warm) / keys, _bytes(Path(folder)) / keys)
        finally:
            shutil.rmtree(warm, ignore_errors=True)


def hopping(overlap: int, keys: int) -> int:
    """The rows that are kept of one event for each key, which is in so many open windows."""
    size = ps.hopping("50 minutes", f"{50 // overlap} minutes")
    kernel = kernel_over("key", size, {"n": ps.count()}, _SCHEMA, "at")
    batch = _rows(np.arange(keys), np.arange(keys) * 600 * _SECOND // keys)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        return _fill(kernel, iter([batch]), Path(folder), Path(folder) / "warm", 0)


def _dealt(keys: int, bucket: int) -> Iterator[pa.RecordBatch]:
    for first in range(bucket, keys, _BATCH * _BUCKETS):
        numbers = np.arange(first, min(first + _BATCH * _BUCKETS, keys), _BUCKETS)
        yield _rows(numbers * _ODD % keys, numbers * 600 * _SECOND // keys)


def _rows(keys: np.typing.NDArray[np.int64], times: np.typing.NDArray[np.int64]) -> pa.RecordBatch:
    amounts = pa.array(keys % 1_000 / 10)
    at = pa.array(times).cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([pa.array(keys), amounts, at], schema=_SCHEMA)


def _fill(
    kernel: Kernel, batches: Iterator[pa.RecordBatch], folder: Path, warm: Path, bucket: int
) -> int:
    """The rows of state that there are in the end."""
    version, rows = EMPTY, 0
    for batch in batches:
        with BucketState.open(
            folder,
            warm,
            operator="sessions",
            bucket=bucket,
            buckets=_BUCKETS,
            schema=kernel.state,
            version=version,
        ) as state:
            for _ in kernel.step(state, [kernel.partial(batch)], 0):
                pass
            version += 1
            state.commit(version, 0)
            rows = len(state)
    return rows


def _bytes(folder: Path) -> int:
    """What the files take, without what was set aside for them and is not used yet."""
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())
