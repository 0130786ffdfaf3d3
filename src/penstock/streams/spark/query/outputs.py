"""What a task makes of the rows of a node for its topic: encoded record batches by partition.

A table is written as upserts, and as tombstones for the keys that are gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka.cimpl import murmur2
from numpy.typing import NDArray

from penstock.errors import InvalidInput, KernelError
from penstock.events.batch import HEADER_BYTES
from penstock.events.columns import SCHEMA
from penstock.events.encoding import BATCH_BYTES, encode_columns
from penstock.events.formats import Format, format_for
from penstock.streams.algebra.changes import DELETED, WEIGHT
from penstock.streams.source.keys import encode_keys
from penstock.streams.source.spec import METADATA

KEY = METADATA["key"].name
_SHOWN = 5_000  # rows of a view that a task sends beside their records
_BESIDES = HEADER_BYTES + 40  # bytes of a batch of one record, beside its key and value, at most


@dataclass(frozen=True)
class Output:
    """The topic that a node writes; `time` is the column of its event time. What a `view` writes is
    kept as a table beside its topic. `most` bytes are what the topic takes of one record batch."""

    node: str
    topic: str
    partitions: int
    key: tuple[str, ...] = ()
    time: str | None = None
    format: str = "json"
    view: bool = False
    most: int = BATCH_BYTES + HEADER_BYTES


class TooLarge(NamedTuple):
    """A row whose record has more bytes than the topic takes: its number among all rows."""

    row: int
    size: int


class Encoded(NamedTuple):
    """Record batches, one partition's after the other's; `parts` has the partitions and the number
    of bytes of each, in order. `rows` are the same as rows with their `_key` and `_deleted`, of a
    view that has not too many: its table need not read them from the topic. Those that are
    `too_large` are not among them; what a table had under their key before is gone."""

    parts: list[tuple[int, int]]
    content: bytes
    records: int
    rows: pa.RecordBatch | None = None
    too_large: Sequence[TooLarge] = ()


def encode_rows(batches: Sequence[pa.RecordBatch], output: Output, home: int) -> Encoded:
    """`home` is where rows without a key go, all of them together and in their order."""
    parts, content, count, shown = [], [], 0, []
    too_large: list[TooLarge] = []
    before = 0
    for whole in _in_batches(batches):
        is_table = output.view or WEIGHT in whole.schema.names
        written, refused = _fitting(_records(whole, output), output, is_table=is_table)
        too_large += [each._replace(row=each.row + before) for each in refused]
        before += whole.num_rows
        records = written.records
        partitions = _partitions(records["key"], output.partitions, home % output.partitions)
        count += records.num_rows
        shown.append(written)
        for partition in np.unique(partitions):
            own = records.filter(pa.array(partitions == partition))
            size = min(BATCH_BYTES, output.most - HEADER_BYTES)
            encoded = b"".join(encode_columns(own, size=size))
            parts.append((int(partition), len(encoded)))
            content.append(encoded)
    rows = None
    if output.view and count <= _SHOWN and len(shown) == 1:
        (only,) = shown
        deleted = pa.array(~only.present)
        arrays = [*only.columns.columns, only.records["key"], deleted]
        rows = pa.RecordBatch.from_arrays(arrays, [*only.columns.schema.names, KEY, DELETED])
    return Encoded(parts, b"".join(content), count, rows, too_large)


def last_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The last of each key, of rows that have a `_key`."""
    codes = rows[KEY].dictionary_encode(null_encoding="encode").indices.to_numpy()
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    return rows if len(last) == len(codes) else rows.take(pa.array(np.sort(last)))


class _Written(NamedTuple):
    """Records, and the rows that they are made of: their columns, their numbers among those that
    were given, and whether each is there or is gone."""

    records: pa.RecordBatch
    columns: pa.RecordBatch
    numbers: NDArray[np.int64]
    present: NDArray[np.bool_]

    def without(self, left_out: NDArray[np.int64]) -> Self:
        kept = np.delete(np.arange(len(self.numbers)), left_out)
        places = pa.array(kept)
        return type(self)(
            self.records.take(places),
            self.columns.take(places),
            self.numbers[kept],
            self.present[kept],
        )


def _records(whole: pa.RecordBatch, output: Output) -> _Written:
    keys = encode_keys(whole, output.key) if output.key else None
    numbers, present = np.arange(whole.num_rows), np.ones(whole.num_rows, np.bool_)
    if WEIGHT in whole.schema.names:
        if keys is None:
            raise InvalidInput(
                f"{output.topic!r} is a table, and needs a key to be written by",
                hint='@app.derive(..., key="customer")',
            )
        numbers, present = last_changes(keys, whole[WEIGHT].to_numpy())
        whole, keys = whole.take(pa.array(numbers)), keys.take(pa.array(numbers))
    columns = whole.select([name for name in whole.schema.names if not name.startswith("_")])
    values = _format(output.format, columns.schema).encode(columns)
    if not present.all():
        values = _or_null(present, values)
    keys = pa.nulls(whole.num_rows, pa.binary()) if keys is None else keys
    stamps = pa.nulls(whole.num_rows, pa.int64())
    if output.time is not None:
        stamps = pc.divide(whole[output.time].cast(pa.int64()), 1_000)
    stamps = stamps.cast(SCHEMA.field("timestamp").type)
    names = ["key", "value", "timestamp"]
    records = pa.RecordBatch.from_arrays([keys, values, stamps], names=names)
    return _Written(records, columns, numbers, present)


def _or_null(present: NDArray[np.bool_], values: pa.BinaryArray) -> pa.BinaryArray:
    return pc.if_else(pa.array(present), values, pa.scalar(None, pa.binary()))


def _fitting(
    written: _Written, output: Output, *, is_table: bool
) -> tuple[_Written, list[TooLarge]]:
    """The records that the topic takes, and the rows of the others.

    In a table, the key of such a row gets a tombstone: what it had before is true no more.
    """
    sizes = _sizes(written.records, output.most)
    if not sizes:
        return written, []
    refused = [
        TooLarge(int(written.numbers[place]), size)
        for place, size in sizes.items()
        if written.present[place]
    ]
    places = np.fromiter(sizes, np.int64)
    if not is_table:
        return written.without(places), refused
    present = written.present.copy()
    present[places] = False
    records = written.records
    at = records.schema.get_field_index("value")
    records = records.set_column(at, records.schema.field(at), _or_null(present, records["value"]))
    gone = written._replace(records=records, present=present)
    return gone.without(np.fromiter(_sizes(records, output.most), np.int64)), refused


def _sizes(records: pa.RecordBatch, most: int) -> dict[int, int]:
    """By place, the bytes of each record that is too large, in a batch of its own."""
    contents = [pc.fill_null(pc.binary_length(records[name]), 0) for name in ("key", "value")]
    suspects = pc.add(*(each.cast(pa.int64()) for each in contents)).to_numpy() + _BESIDES > most
    sizes = {
        int(place): sum(map(len, encode_columns(records.slice(place, 1))))
        for place in np.flatnonzero(suspects)
    }
    return {place: size for place, size in sizes.items() if size > most}


def _partitions(keys: pa.BinaryArray, count: int, home: int) -> NDArray[np.int32]:
    """Where the keys say; rows without one stay together."""
    if count == 1 or keys.null_count == len(keys):
        return np.full(len(keys), home if count > 1 else 0, np.int32)
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


def _in_batches(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """The rows of a table in one batch, as their changes are weighed against each other."""
    if len(batches) == 1:
        return batches
    whole: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(whole) > 1 and WEIGHT in batches[0].schema.names:
        raise KernelError(
            "the changes of a batch in one task are more than 2 GiB",
            hint="let fewer rows into a batch: app.stream(..., max_rows=...)",
        )
    return whole


@lru_cache(maxsize=1024)
def _format(name: str, schema: pa.Schema) -> Format:
    """Kept between batches: with many small outputs, to make it takes as long as to use it."""
    return format_for(name, schema)
