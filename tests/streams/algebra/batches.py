"""Kernels run as a query would run them: in batches, cuts and buckets, with mishaps on the way."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from penstock.streams.algebra import Aggregation, Kernel
from penstock.streams.algebra.kernel import Stepping
from penstock.streams.algebra.rows import groups
from penstock.streams.state import BucketState, bucket_of
from penstock.streams.state.bucket import unmap

Row = dict[str, Any]
# Adds up what is rounded, so that the order shows.
ADDED = Aggregation(
    partial=lambda values: math.fsum(values) / 3,
    merge=lambda one, other: one + other,
    result=lambda state: state,
    state="sum double",
    returns="double",
)
MISHAPS = ["none", "run again", "lost arena", "other host"]


class Query:
    """A kernel's batches one after the other; `changes` is everything that came out."""

    def __init__(
        self, folder: Path, kernel: Stepping, *, buckets: int = 1, piece: int | None = None
    ) -> None:
        """`piece` is how many groups are worked on at a time."""
        self.kernel = kernel
        self.changes: list[Row] = []
        self._folder = folder
        self._buckets = buckets
        self._piece = piece
        self._version = -1
        self._host = 0
        self._clock: int | None = None

    def batch(
        self, cuts: Sequence[pa.RecordBatch], mishap: str = "none", clock: int | None = None
    ) -> list[Row]:
        """Runs a batch whose rows come in these cuts; what is not committed happens again."""
        kernel = cast(Kernel, self.kernel)
        return self.packed_batch([kernel.partial(cut) for cut in cuts], mishap, clock)

    def packed_batch(
        self, packed: Sequence[pa.RecordBatch], mishap: str = "none", clock: int | None = None
    ) -> list[Row]:
        self._clock = clock
        for each in packed:
            assert each.schema.equals(self.kernel.packed)
        given: list[Row] = []
        for bucket in range(self._buckets):
            parts = [self._of_bucket(each, bucket) for each in packed]
            if mishap != "none":
                failed = self._step(bucket, parts, commit=False)
                if mishap == "lost arena":
                    self._host += 1
                elif mishap == "other host":
                    self._host = (self._host + 1) % 2
                again = self._step(bucket, parts)
                assert sorted(map(repr, failed)) == sorted(map(repr, again))
                given += again
            else:
                given += self._step(bucket, parts)
        self._version += 1
        self.changes += given
        return given

    def _of_bucket(self, packed: pa.RecordBatch, bucket: int) -> pa.RecordBatch:
        numbers = bucket_of(packed.select(list(self.kernel.keys)), self._buckets)
        return packed.filter(pa.array(numbers == bucket))

    def _step(
        self, bucket: int, parts: Sequence[pa.RecordBatch], *, commit: bool = True
    ) -> list[Row]:
        with self._open(bucket) as state:
            with pytest.MonkeyPatch.context() as patch:
                if self._piece is not None:
                    patch.setattr(groups, "_PIECE_GROUPS", self._piece)
                given = list(self.kernel.step(state, parts, self._clock))
            if commit:
                state.commit(self._version + 1, self._clock)
        for each in given:
            assert each.schema.equals(self.kernel.output)
            each.validate(full=True)
        return [row for each in given for row in each.to_pylist()]

    def _open(self, bucket: int) -> BucketState:
        warm = self._folder / f"warm-{self._host}"
        unmap(warm)
        return BucketState.open(
            self._folder / "durable",
            warm,
            operator="kernel",
            bucket=bucket,
            buckets=self._buckets,
            schema=self.kernel.state,
            version=self._version,
        )

    def state_rows(self) -> int:
        count = 0
        for bucket in range(self._buckets):
            with self._open(bucket) as state:
                count += len(state)
        return count

    def late(self) -> int:
        return self._sum("late")

    def dropped(self) -> int:
        return self._sum("dropped")

    def _sum(self, what: str) -> int:
        count = 0
        for bucket in range(self._buckets):
            with self._open(bucket) as state:
                count += getattr(state.counts, what)
        return count

    def table(self, *more_keys: str) -> list[str]:
        """The rows that all changes together leave, as text, sorted."""
        return weighed(self.changes, [*self.kernel.keys, *more_keys])


def weighed(changes: Sequence[Row], keys: Sequence[str]) -> list[str]:
    """What changes add up to; each must fit the rows there are when it comes."""
    rows: dict[str, str] = {}
    for change in changes:
        row = dict(change)
        weight = row.pop("_weight")
        key = text([row[name] for name in keys])
        if weight == 1:
            assert key not in rows, f"{key} came twice"
            rows[key] = text(row)
        else:
            assert weight == -1
            assert rows.pop(key) == text(row)
    return sorted(rows.values())


def text(value: Any) -> str:
    """Equal for equal values: all NaN are, and so are 0.0 and -0.0."""
    return repr(value).replace("-0.0,", "0.0,").replace("-0.0}", "0.0}").replace("-0.0]", "0.0]")


def cut(rows: pa.RecordBatch, places: Sequence[int]) -> list[pa.RecordBatch]:
    bounds = sorted({0, rows.num_rows, *(min(place, rows.num_rows) for place in places)})
    return [rows.slice(start, stop - start) for start, stop in pairwise(bounds)]


def batch_of(schema: pa.Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def constant_hashes(keys: Any) -> Any:
    return np.zeros(len(keys.nulls), np.uint64)
