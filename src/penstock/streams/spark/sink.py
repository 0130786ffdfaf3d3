"""Rows into a topic, exactly once: tasks stage them, and `commit` publishes a batch as a whole.

What is published carries the number of its batch, so a batch that is run again after a crash is
known and skipped. This file stays light: the process that commits starts with every query.
"""

import gc
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import fsspec
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import InvalidInput
from penstock.streams.source.offsets import clock_of_batch
from penstock.streams.spark.crash import AFTER_COMMIT, BEFORE_COMMIT, crash_at

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Staged(WriterCommitMessage):
    """Record batches of one task, one partition's after the other's: as bytes, or in a file.

    `parts` has the partitions and the number of bytes of each, in order.
    """

    parts: tuple[tuple[int, int], ...] = ()
    content: bytes = b""
    file: str = ""


@dataclass(frozen=True)
class SinkSpec:
    """`writer` is the name that batches are told apart by, `epoch` keeps an older one of the same
    name out; `time` is the column of the event time."""

    log: str
    topic: str
    partitions: int
    writer: str
    epoch: int
    checkpoint: str
    key: tuple[str, ...] = ()
    time: str | None = None
    format: str = "json"
    crash_points: str = ""

    def options(self) -> dict[str, str]:
        return {"sink": json.dumps(self.__dict__)}

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        if "sink" not in options:
            raise InvalidInput(
                "the format penstock is written to by an app alone",
                hint="@app.derive(name) writes what its function returns",
            )
        content = json.loads(options["sink"])
        return cls(**content | {"key": tuple(content["key"])})


class TopicSink(DataSourceStreamArrowWriter):
    def __init__(self, spec: SinkSpec, schema: StructType) -> None:
        self._spec = spec
        self._schema = schema
        _set_apart()

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Staged:
        from penstock.streams.spark.staging import stage

        return stage(iterator, self._spec, self._schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        from penstock.streams.spark.publishing import publisher_for

        crash_at(self._spec.crash_points, BEFORE_COMMIT)
        staged = [each for each in messages if isinstance(each, Staged)]
        parts: defaultdict[int, list[bytes]] = defaultdict(list)
        for each in staged:
            content, at = self._content(each), 0
            for partition, size in each.parts:
                parts[partition].append(content[at : at + size])
                at += size
        batches = {partition: b"".join(some) for partition, some in parts.items()}
        publisher_for(self._spec).publish(batchId, batches, self._promise(batchId))
        crash_at(self._spec.crash_points, AFTER_COMMIT)
        self._tidy(staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._tidy([each for each in messages if isinstance(each, Staged)])

    def _content(self, staged: Staged) -> bytes:
        if not staged.file:
            return staged.content
        found: bytes = staging_folder(self._spec.checkpoint)[0].cat_file(staged.file)
        return found

    def _tidy(self, staged: list[Staged]) -> None:
        """Removes all that is staged: batches of a query do not overlap, the rest is of a crash."""
        if any(each.file for each in staged):
            files, folder = staging_folder(self._spec.checkpoint)
            files.rm(folder, recursive=True)

    def _promise(self, batch: int) -> int | None:
        """The clock of the node, if this batch moved it."""
        clock = clock_of_batch(self._spec.checkpoint, batch)
        moved = batch == 0 or clock != clock_of_batch(self._spec.checkpoint, batch - 1)
        return clock if moved else None


@cache
def _set_apart() -> None:
    """Takes what is loaded out of the collection of garbage, once.

    Spark's processes that plan a write and commit it collect after each, and go over everything
    that is loaded then: 20 ms each, twice a batch.
    """
    gc.freeze()


def staging_folder(checkpoint: str) -> tuple[Any, str]:
    files, path = fsspec.core.url_to_fs(checkpoint)
    return files, f"{path.rstrip('/')}/staged"
