"""Rows on their way to the buckets of a kernel: few large values instead of many rows.

A bucket's rows travel as one Arrow payload. On one host a large payload is written to a file in
memory and only its path goes through the JVM, which moves about 100 MB/s; the files of a batch are
removed by the next one. A file that is lost fails the batch, which is then run again.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from penstock.streams.algebra.kernel import Packing
from penstock.streams.algebra.kernels import kernel_from_spec
from penstock.streams.algebra.rows.selection import Selection
from penstock.streams.algebra.spreading import Spread
from penstock.streams.source.spec import PACKED

BATCH_ID = "streaming.sql.batchId"  # as Spark's own streams call it, for those who look there
_INLINE = 64 * 1024
_MOST = 256 << 20  # bytes of rows that are packed at once


class Packer:
    """Turns rows, or those of them that are selected, into payloads; `folder` is where large ones
    are written, None for nowhere."""

    def __init__(
        self,
        kernel: Packing,
        buckets: int,
        folder: str | None,
        spread: Spread = Spread.BY_KEY,
        selection: Selection | None = None,
    ) -> None:
        self._kernel = kernel
        self._selection = selection
        self._buckets = buckets
        self._folder = folder
        self._spread = spread

    def reads(self, names: Sequence[str]) -> set[str]:
        """Which of the columns of these names it needs."""
        return set(names) if self._selection is None else self._selection.reads(names)

    def text(self) -> str:
        """As an option of a source, which packs by itself then."""
        content = {
            "kernel": self._kernel.spec(),
            "buckets": self._buckets,
            "folder": self._folder,
            "spread": self._spread,
            "selection": None if self._selection is None else self._selection.spec(),
        }
        return json.dumps(content)

    @classmethod
    def parse(cls, text: str) -> Self:
        content = json.loads(text)
        selection = content["selection"]
        return cls(
            kernel_from_spec(content["kernel"]),
            content["buckets"],
            content["folder"],
            Spread(content["spread"]),
            None if selection is None else Selection.from_spec(selection),
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Every bucket is named at least once, so that each takes its step in every batch."""
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(self._buckets, dtype=np.int32)),
                pa.nulls(self._buckets, pa.binary()),
                pa.nulls(self._buckets, pa.string()),
            ],
            schema=PACKED,
        )
        for rows in batches:
            found = [*self.payloads(rows)]
            columns = zip(*found, strict=True) if found else [[]] * len(PACKED)
            arrays = [
                pa.array(each, field.type) for each, field in zip(columns, PACKED, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=PACKED)

    def payloads(self, rows: pa.RecordBatch) -> Iterator[tuple[int, bytes | None, str | None]]:
        """For each bucket that gets any of the rows, the payload, or the file that it is in."""
        for bucket, part in self.parts(rows):
            payload = packed(part)
            if self._folder is not None and payload.size > _INLINE:
                yield bucket, None, self._left(bucket, payload)
            else:
                yield bucket, payload.to_pybytes(), None

    def parts(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """For each bucket that gets any of the rows, what it gets."""
        if self._selection is not None:
            rows = self._selection(rows)
        for some in _pieces(rows):
            partial = self._kernel.partial(some)
            yield from self._spread.parts(partial, self._kernel.keys, self._buckets)

    def _left(self, bucket: int, payload: pa.Buffer) -> str:
        assert self._folder is not None
        folder = Path(self._folder) / str(bucket) / batch_id()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / uuid.uuid4().hex
        with path.open("wb") as file:
            file.write(payload)
        return str(path)


def unpack(batches: Iterator[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    """The packed rows of each bucket that is named, most often of one."""
    found: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        for bucket, payload, file in zip(*batch.columns, strict=True):
            packed = found.setdefault(bucket.as_py(), [])
            if file.is_valid:
                packed.extend(pa.ipc.open_stream(pa.memory_map(file.as_py())))
            elif payload.is_valid:
                packed.extend(pa.ipc.open_stream(payload.as_buffer()))
    return found


def forget_files(folder: str, bucket: int, batch: str) -> None:
    """Removes what earlier batches left for this bucket."""
    with suppress(FileNotFoundError), os.scandir(f"{folder}/{bucket}") as found:
        for old in found:
            if old.name != batch:
                shutil.rmtree(old, ignore_errors=True)


def batch_id() -> str:
    """Of the batch that this task belongs to, "" in a query that is not a stream."""
    context = TaskContext.get()
    return (context and context.getLocalProperty(BATCH_ID)) or ""


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """None of no rows, and none of more bytes than an array of Arrow has room for."""
    count = max(1, rows.nbytes // _MOST)
    length = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, max(1, length)):
        yield rows.slice(start, length)


def packed(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()
