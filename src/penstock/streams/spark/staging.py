"""What a task makes of its rows for a topic: record batches by partition, kept until the commit.

A table is written as upserts, and as tombstones for the keys that are gone.
"""

import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka.cimpl import murmur2
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import InvalidInput, KernelError
from penstock.events.columns import SCHEMA
from penstock.events.encoding import encode_columns
from penstock.events.formats import format_for
from penstock.streams.source.keys import encode_keys
from penstock.streams.spark.crash import IN_WORKER, crash_at
from penstock.streams.spark.sink import SinkSpec, Staged, staging_folder

WEIGHT = "_weight"
_INLINE = 256 * 1024


def stage(batches: Iterator[pa.RecordBatch], spec: SinkSpec, schema: StructType) -> Staged:
    rows = pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC"))
    crash_at(spec.crash_points, IN_WORKER)
    parts, content = [], []
    for whole in _in_batches(rows):
        records, partitions = _records(whole, spec)
        for partition in np.unique(partitions):
            own = records.filter(pa.array(partitions == partition))
            encoded = b"".join(encode_columns(own))
            parts.append((int(partition), len(encoded)))
            content.append(encoded)
    staged = Staged(tuple(parts), b"".join(content))
    if len(staged.content) <= _INLINE:
        return staged
    files, folder = staging_folder(spec.checkpoint)
    files.makedirs(folder, exist_ok=True)
    path = f"{folder}/{uuid.uuid4().hex}"
    files.pipe_file(path, staged.content)
    return Staged(staged.parts, file=path)


def _records(whole: pa.RecordBatch, spec: SinkSpec) -> tuple[pa.RecordBatch, NDArray[np.int32]]:
    keys = encode_keys(whole, spec.key) if spec.key else None
    present = np.ones(whole.num_rows, np.bool_)
    if WEIGHT in whole.schema.names:
        if keys is None:
            raise InvalidInput(
                f"{spec.topic!r} is a table, and needs a key to be written by",
                hint='@app.derive(..., key="customer")',
            )
        order, present = last_changes(keys, whole[WEIGHT].to_numpy())
        whole, keys = whole.take(pa.array(order)), keys.take(pa.array(order))
    columns = whole.select([name for name in whole.schema.names if not name.startswith("_")])
    values = format_for(spec.format, columns.schema).encode(columns)
    if not present.all():
        values = pc.if_else(pa.array(present), values, pa.scalar(None, pa.binary()))
    keys = pa.nulls(whole.num_rows, pa.binary()) if keys is None else keys
    stamps = pa.nulls(whole.num_rows, pa.int64())
    if spec.time is not None:
        stamps = pc.divide(whole[spec.time].cast(pa.int64()), 1_000)
    stamps = stamps.cast(SCHEMA.field("timestamp").type)
    names = ["key", "value", "timestamp"]
    records = pa.RecordBatch.from_arrays([keys, values, stamps], names=names)
    return records, _partitions(keys, spec.partitions)


def _partitions(keys: pa.BinaryArray, count: int) -> NDArray[np.int32]:
    """Where the keys say; rows without one stay together, each task's in one partition."""
    context = TaskContext.get()
    home = (context.partitionId() if context else 0) % count
    if keys.null_count == len(keys):
        return np.full(len(keys), home, np.int32)
    places = (home if key is None else murmur2(key, count) for key in keys.to_pylist())
    return np.fromiter(places, np.int32, len(keys))


def last_changes(
    keys: pa.BinaryArray, weights: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One row for each key, as indices in ascending order: what the key has now, or what it lost.

    Of each key's changes the last that appears counts; one of which nothing appears is gone.
    """
    codes = keys.dictionary_encode(null_encoding="encode").indices.to_numpy()
    count = int(codes.max(initial=-1)) + 1
    last_any = np.full(count, -1, np.int64)
    last_new = np.full(count, -1, np.int64)
    places = np.arange(len(codes))
    np.maximum.at(last_any, codes, places)
    appears = weights > 0
    np.maximum.at(last_new, codes[appears], places[appears])
    chosen = np.where(last_new >= 0, last_new, last_any)
    order = np.argsort(chosen, kind="stable")
    return chosen[order], (last_new >= 0)[order]


def _in_batches(rows: pa.Table) -> list[pa.RecordBatch]:
    """The rows of a table in one batch, as their changes are weighed against each other."""
    whole: list[pa.RecordBatch] = rows.combine_chunks().to_batches()
    if len(whole) > 1 and WEIGHT in rows.column_names:
        raise KernelError(
            "the changes of a batch in one task are more than 2 GiB",
            hint="let fewer rows into a batch: app.stream(..., max_rows=...)",
        )
    return whole
