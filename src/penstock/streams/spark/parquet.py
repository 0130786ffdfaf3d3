"""Files of Parquet as rows that never pass through the JVM on their way to an operator.

    bids = ps.parquet(spark, "archive/bids", columns=["auction", "bidder", "price", "at"])
    ps.timed(bids, "at", wait="10s")

Spark finds the files, remembers which it has read and says which a batch has, as it does for its
own sources; the workers read them. Of each file only the columns are read that are asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.errors import InvalidInput, UnknownName
from penstock.events.schema import parse_schema
from penstock.streams.source.spec import PACKED, TIME
from penstock.streams.spark.feeds import Feed, with_feed
from penstock.streams.spark.packing import Packer

_ROWS = 1 << 16
_FILE = "path string, modificationTime timestamp, length long, content binary"
_HIGH = pa.field("_high", TIME)


def parquet(
    spark: SparkSession,
    folder: str,
    schema: str | None = None,
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    names: str = "*.parquet",
    max_files: int | None = None,
    streaming: bool = True,
) -> DataFrame:
    """The rows of the files in a folder, and as a stream of those that come later.

    Give operators what comes out of this as it is, or through `timed` and `sql`: what a DataFrame
    of Spark's own is made of goes through the JVM. `columns` are those that are read, or new names
    for them, `{"opened": "at"}`. `schema` is that of the first file unless it is given; `max_files`
    is how many a batch has at most, the oldest first, and `names` which of them count. A file has
    to appear whole, under its name, and is never read again.

    Raises InvalidInput when no file is there to take the schema from.
    """
    found = _schema_of_a_file(folder, names) if schema is None else parse_schema(schema)
    chosen = _chosen(found, columns)
    reader = (spark.readStream if streaming else spark.read).format("binaryFile").schema(_FILE)
    reader = reader.option("pathGlobFilter", names)
    if max_files is not None and streaming:
        reader = reader.option("maxFilesPerTrigger", max_files)
    files = reader.load(folder).select("path")
    fields = [found.field(old).with_name(new) for new, old in chosen.items()]
    # As Spark would have them: times in microseconds, and so on.
    rows = from_arrow_schema(pa.schema(fields))
    reading = _Reading(to_arrow_schema(rows, timezone="UTC"), tuple(chosen.values()))
    return with_feed(files.mapInArrow(reading, rows), _ParquetFeed(files, reading))


@dataclass(frozen=True)
class _Reading:
    """Reads files that are named by their paths; travels to the workers."""

    schema: pa.Schema
    columns: tuple[str, ...]  # their names in the files

    def only(self, names: set[str]) -> "_Reading":
        kept = [number for number, name in enumerate(self.schema.names) if name in names]
        fields = [self.schema.field(number) for number in kept]
        return _Reading(pa.schema(fields), tuple(self.columns[number] for number in kept))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                yield from self._rows(path)

    def _rows(self, path: str) -> Iterator[pa.RecordBatch]:
        with _opened(path) as file:
            content = pq.ParquetFile(file)
            for rows in content.iter_batches(_ROWS, columns=list(self.columns)):
                arrays = [
                    rows.column(name).cast(each.type)
                    for name, each in zip(self.columns, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True)
class _ParquetFeed(Feed):
    files: DataFrame
    reading: _Reading
    time: str | None = None
    wait: int = 0  # milliseconds

    def timed(self, column: str, wait: int) -> "_ParquetFeed":
        """The clock goes by what the workers see, as Spark does not see the rows."""
        return replace(self, time=column, wait=wait)

    def packed(self, packer: Packer) -> DataFrame:
        names = self.reading.schema.names
        # Rows of which nothing is needed are to be counted.
        wanted = packer.reads(names) or set(names[:1])
        reading = self.reading.only(wanted | ({self.time} if self.time else set()))
        packed = self.files.mapInArrow(
            _Packing(reading, packer, self.time), from_arrow_schema(PACKED.append(_HIGH))
        )
        if self.time is not None and self.files.isStreaming:
            packed = packed.withWatermark(_HIGH.name, f"{self.wait} milliseconds")
        return packed.select(PACKED.names)


class _Packing:
    """Reads, packs, and says beside it what the highest time is so far."""

    def __init__(self, reading: _Reading, packer: Packer, time: str | None) -> None:
        self._reading = reading
        self._packer = packer
        self._time = time
        self._high = 0  # where Spark's clock begins

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for packed in self._packer(self._watched(self._reading(batches))):
            yield self._with_high(packed)
        # What came after the last of them may have had nothing but a time.
        nothing = [pa.array([0], pa.int32()), pa.nulls(1, pa.binary()), pa.nulls(1, pa.string())]
        yield self._with_high(pa.RecordBatch.from_arrays(nothing, schema=PACKED))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            if self._time is not None:
                latest = pc.max(rows.column(self._time)).cast(pa.int64()).as_py()
                self._high = max(self._high, latest or 0)
            yield rows

    def _with_high(self, packed: pa.RecordBatch) -> pa.RecordBatch:
        high = pa.repeat(pa.scalar(self._high, TIME), packed.num_rows)
        return pa.RecordBatch.from_arrays([*packed.columns, high], schema=PACKED.append(_HIGH))


def _chosen(
    schema: pa.Schema, columns: Sequence[str] | Mapping[str, str] | None
) -> Mapping[str, str]:
    if columns is None:
        columns = schema.names
    chosen = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    for name in chosen.values():
        if name not in schema.names:
            raise UnknownName(
                f"there is no column {name!r} in the files",
                hint=f"there are {', '.join(schema.names)}",
            )
    return chosen


def _schema_of_a_file(folder: str, names: str) -> pa.Schema:
    files, path = fsspec.core.url_to_fs(folder)
    found = sorted(files.glob(f"{path.rstrip('/')}/{names}"))
    if not found:
        raise InvalidInput(
            f"there is no file {names} in {folder} to take the columns from",
            hint='name them: ps.parquet(spark, folder, "id long, at timestamp")',
        )
    with files.open(found[0]) as file:
        return pq.read_schema(file).remove_metadata()


def _opened(path: str) -> Any:
    """A file that Spark names, which escapes what it has to in an address."""
    address = urlsplit(path)
    if address.scheme == "file":
        return Path(unquote(address.path)).open("rb")
    return fsspec.open(path, "rb")
