"""The events that are measured: the same rows in files for Spark and for Flink, and in a topic."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.bench.spark_topics import PARTITIONS, store
from penstock.events.formats import format_for
from penstock.events.schema import parse_schema
from penstock.log import Log

SCHEMA = "key long, shop long, amount double, at timestamp"
TOPIC = "events"
CLOSING = -1
"""The key of the last rows, which come an hour after all others, to end every window."""

_HALVES = 2  # files that are read side by side
_START = 1_700_000_000_000  # milliseconds
_DISORDER = 3_000
_HOUR = 3_600_000
_COLUMNS = pa.schema(
    {
        "key": pa.int64(),
        "shop": pa.int64(),
        "amount": pa.float64(),
        "at": pa.timestamp("ms", "UTC"),
    }
)


@dataclass(frozen=True)
class Events:
    """`slices` times `slice_rows` rows, `apart` milliseconds after each other but for 3 s."""

    slices: int
    slice_rows: int
    keys: int
    shops: int
    apart: int = 1

    @property
    def rows(self) -> int:
        return self.slices * self.slice_rows

    def parts(self) -> Iterator[pa.Table]:
        """The slices, and two of a few rows: Spark's clock is that of the batch before."""
        for number in range(self.slices):
            random = np.random.default_rng(number)
            count = self.slice_rows
            at = _START + (number * count + np.arange(count)) * self.apart
            at -= random.integers(0, _DISORDER, count)
            columns = {
                "key": random.integers(0, self.keys, count),
                "shop": random.integers(0, self.shops, count),
                "amount": random.integers(0, 100_000, count) / 100,
                "at": pa.array(at).cast(_COLUMNS.field("at").type),
            }
            yield pa.table(columns, schema=_COLUMNS)
        for number in (1, 2):
            at = np.full(PARTITIONS, _START + self.rows * self.apart + number * _HOUR)
            none = np.full(PARTITIONS, CLOSING)
            columns = {"key": none, "shop": none, "amount": none / 1, "at": pa.array(at)}
            yield pa.table(columns).cast(_COLUMNS)

    def write_slices(self, folder: Path) -> None:
        """Two files a slice, to be read in the order of their times."""
        folder.mkdir(parents=True)
        for number, part in enumerate(self.parts()):
            for half in range(_HALVES):
                path = folder / f"{number:03}-{half}.parquet"
                pq.write_table(_half(part, half), path, use_dictionary=False)
                os.utime(path, (_START / 1_000 + number,) * 2)

    def write_whole(self, folder: Path) -> None:
        """Two files with all slices, one after the other: Flink reads files in any order."""
        folder.mkdir(parents=True)
        for half in range(_HALVES):
            path = folder / f"{half}.parquet"
            with pq.ParquetWriter(path, _COLUMNS, use_dictionary=False) as writer:
                for part in self.parts():
                    writer.write_table(_half(part, half))

    def fill(self, log: Log, address: str) -> None:
        """Every partition has a share of every slice, in the order of the rows."""
        schema = parse_schema(SCHEMA)
        form = format_for("json", schema)
        log.create(TOPIC, partitions=PARTITIONS, retention_ms=-1)
        blocks = (batch for part in self.parts() for batch in part.cast(schema).to_batches())
        store(address, TOPIC, map(form.encode, blocks))


def _half(part: pa.Table, half: int) -> pa.Table:
    return part.take(pa.array(np.arange(half, len(part), _HALVES)))
