"""Rows that one job of a batch leaves for the next, as files: what Spark goes on with.

Each task leaves one file for each leaf. A later job reads all of them, or some of the rows, where
the rows are looked for that Spark cannot compute.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import SparkContext, TaskContext

from penstock.streams.algebra.changes import OFFSET, PARTITION
from penstock.streams.source.spec import METADATA
from penstock.streams.spark.packing import batch_id

_PROPERTY = "penstock.handed"
PLACE: Final = {PARTITION: METADATA["partition"], OFFSET: METADATA["offset"]}
_GIVER = b"leaf"

Span = tuple[int, int]  # the first row of a file, and the one after the last


class HandedRows(NamedTuple):
    """Rows as they are in a file, with the place of each in its topic if that is known. They were
    made by the leaf `giver`."""

    giver: int
    rows: pa.RecordBatch


def write_handed(
    folder: str, leaf: int | str, task: int, batches: Sequence[pa.RecordBatch]
) -> None:
    _write(_path(folder, batch_id(), leaf, task), [(each, None) for each in batches])


def write_handed_rows(folder: str, leaf: int, task: int, handed: Sequence[HandedRows]) -> None:
    """All in one schema: those whose place is not known have none in their columns for it."""
    batches = [(_placed(rows), {_GIVER: str(giver).encode()}) for giver, rows in handed]
    _write(_path(folder, batch_id(), leaf, task), batches)


def _write(path: Path, batches: Sequence[tuple[pa.RecordBatch, dict[bytes, bytes] | None]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".unfinished")
    schema = batches[0][0].schema
    with pa.OSFile(str(fresh), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for batch, about in batches:
            stream.write_batch(batch, custom_metadata=about)
    fresh.replace(path)


def _placed(rows: pa.RecordBatch) -> pa.RecordBatch:
    for name, field in PLACE.items():
        if name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def handed_files(folder: str, batch: int, leaves: Iterable[int]) -> dict[str, Path]:
    """By leaf and task, as "3/0", in their order."""
    found: dict[str, Path] = {}
    for leaf in sorted(leaves):
        tasks = (Path(folder) / str(batch) / str(leaf)).glob("*.arrow")
        found |= {f"{leaf}/{path.stem}": path for path in sorted(tasks, key=_task)}
    return found


def _task(path: Path) -> int:
    return int(path.stem)


def read_handed_rows(path: Path) -> Iterator[HandedRows]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        while True:
            try:
                rows, about = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            yield HandedRows(int(about[_GIVER]), rows)


def _path(folder: str, batch: str, leaf: int | str, task: int) -> Path:
    return Path(folder) / batch / str(leaf) / f"{task}.arrow"


@dataclass(frozen=True)
class Handed:
    """Reads the rows of a leaf that a stage before has left for Spark; travels to the workers.
    With `columns` it gives those alone. That stage may have more tasks than the `readers` that
    share its files; without a number of them, each reads the file of the task of its number."""

    folder: str
    leaf: int | str
    columns: tuple[str, ...] | None = None
    readers: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Not the task's number: Spark may have put several leaves into one stage.
        (number,) = [each for batch in batches for each in batch.column(0).to_pylist()]
        some = SomeRows.of_task()
        if some is not None and some.is_given_up(self.folder):
            return
        for path in self._files(number):
            found: Iterable[pa.RecordBatch] = pa.ipc.open_stream(pa.memory_map(str(path)))
            if some is not None:
                found = _within(found, some.spans.get(f"{self.leaf}/{path.stem}", []))
            for rows in found:
                yield rows if self.columns is None else rows.select(list(self.columns))

    def _files(self, number: int) -> list[Path]:
        own = _path(self.folder, batch_id(), self.leaf, number)
        if self.readers is None:
            return [own] if own.exists() else []
        there = (
            each for each in own.parent.glob("*.arrow") if _task(each) % self.readers == number
        )
        return sorted(there, key=_task)


@dataclass(frozen=True)
class SomeRows:
    """Which of the rows that were handed over a job reads: spans by leaf and task.

    A job on `trial` is told by the first failure of a task: tried again, the task gets no rows, so
    it comes to an end, and leaves a note. To let it fail as often as Spark tries would take three
    times as long.
    """

    spans: Mapping[str, Sequence[Span]]
    trial: bool = False

    def announce(self, context: SparkContext) -> None:
        """To all jobs that this thread starts, until it is withdrawn."""
        context.setLocalProperty(_PROPERTY, json.dumps(self.__dict__))

    @staticmethod
    def withdraw(context: SparkContext) -> None:
        context._jsc.setLocalProperty(_PROPERTY, None)

    @classmethod
    def of_task(cls) -> "SomeRows | None":
        context = TaskContext.get()
        content = context and context.getLocalProperty(_PROPERTY)
        return cls(**json.loads(content)) if content else None

    def is_given_up(self, folder: str) -> bool:
        context = TaskContext.get()
        if not self.trial or context is None or context.attemptNumber() == 0:
            return False
        note_of_failure(folder, batch_id()).touch()
        return True


def note_of_failure(folder: str, batch: str) -> Path:
    return Path(folder) / batch / "failed"


def _within(batches: Iterable[pa.RecordBatch], spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    at = 0
    for batch in batches:
        for start, stop in spans:
            low, high = max(start, at), min(stop, at + batch.num_rows)
            if low < high:
                yield batch.slice(low - at, high - low)
        at += batch.num_rows
