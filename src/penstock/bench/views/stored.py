"""Tables that are measured, as files: in slices for Spark, as a whole for Flink."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START = 1_700_000_000_000  # milliseconds
HOUR = 3_600_000
SLICES, ALL_FILES = "slice-*", "*"
_HALVES = 2  # files that are read side by side

Part = dict[str, pa.Table]


class Tables(Protocol):
    @property
    def slices(self) -> int: ...

    @property
    def schemas(self) -> dict[str, pa.Schema]: ...

    def parts(self) -> Iterator[Part]:
        """Of all tables the rows of the same time, and then two with closing rows."""


@dataclass(frozen=True)
class Stored:
    """Tables in a folder: of each `slices` and `whole`, and how many rows it has."""

    tables: Tables
    folder: Path

    def slices(self, table: str) -> Path:
        return self.folder / "slices" / table

    def whole(self, table: str) -> Path:
        return self.folder / "whole" / table

    def rows(self, *tables: str) -> int:
        """Without the closing ones."""
        files = [each for table in tables for each in self.whole(table).glob("*.parquet")]
        count: int = sum(pq.read_metadata(each).num_rows for each in files)
        return count - 2 * _HALVES * len(tables)

    def write(self) -> None:
        writers = {
            (name, half): pq.ParquetWriter(_path(self.whole(name), str(half)), schema)
            for name, schema in self.tables.schemas.items()
            for half in range(_HALVES)
        }
        for number, part in enumerate(self.tables.parts()):
            for name, rows in part.items():
                for half in range(_HALVES):
                    some = rows.take(pa.array(np.arange(half, len(rows), _HALVES)))
                    # Flink reads files in any order, and has one for each of its readers.
                    writers[name, half].write_table(some)
                    kind = "slice" if number < self.tables.slices else "ticks"
                    path = _path(self.slices(name), f"{kind}-{number:03}-{half}")
                    pq.write_table(some, path)
                    os.utime(path, (START / 1_000 + number,) * 2)  # the order Spark reads them in
        for writer in writers.values():
            writer.close()


def closing_rows(schemas: dict[str, pa.Schema], time: int) -> Part:
    """Rows that come after all others, to pass every clock: of each table one for each file. No
    value is that of another column, so that they join with nothing."""
    numbers = iter(range(-1, -1_000, -1))
    return {
        name: pa.table([_alike(each.type, time, next(numbers)) for each in schema], schema=schema)
        for name, schema in schemas.items()
    }


def _alike(kind: pa.DataType, time: int, number: int) -> pa.Array:
    value = time if pa.types.is_timestamp(kind) else number
    return pa.array([value] * _HALVES).cast(kind)


def _path(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.parquet"
