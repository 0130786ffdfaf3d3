"""Computing segments one by one, after the job that computes all of them has failed.

A row that makes Spark fail, as by an error that a user's function raises, is looked for among those
that were handed over, and rejected; the others go on. Segments are computed row by row, so it is
the same rows whenever the batch is run, and whatever else is in it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock import clock
from penstock.streams.spark.blame import blame
from penstock.streams.spark.leaves import is_row_by_row, leaves_in, run_fresh
from penstock.streams.spark.packing import batch_id
from penstock.streams.spark.query.bisection import TooMany, failing
from penstock.streams.spark.query.data_errors import reason_of
from penstock.streams.spark.query.graph import Leaf, QueryGraph
from penstock.streams.spark.query.handed import (
    Handed,
    SomeRows,
    Span,
    handed_files,
    note_of_failure,
    read_handed_rows,
    write_handed,
)
from penstock.streams.spark.query.rejections import Reason, Rejection, rejection

MOST_ROWS = 100  # that are looked for in one batch; where there are more, the node fails
PATIENCE = 15.0  # seconds of looking while others wait; then the node has to look by itself


class Segments:
    """The segments of one phase of a query."""

    def __init__(self, graph: QueryGraph, phase: int) -> None:
        self._graph = graph
        found = [each for each in graph.leaves if each.frame is not None and each.phase == phase]
        self._segments = [_Segment(graph, each) for each in found]

    def compute(self, batch: int, error: Exception) -> dict[str, list[Rejection]]:
        """Has every segment leave its rows for the job that goes on with them. Returns those that
        it could not compute, by node.

        Raises `error`, which the job of all segments failed with, where that does not come of some
        rows, or comes of too many.
        """
        rejected: dict[str, list[Rejection]] = {}
        for segment in self._segments:
            with blame("leaf", segment.leaf.number):
                if found := segment.compute(batch, error):
                    node = self._graph.program.nodes.get(segment.leaf.number, "")
                    rejected.setdefault(node, []).extend(found)
        return rejected

    def frame(self, segment: Leaf) -> DataFrame:
        """The rows that a segment has left, in as many partitions as it has them in."""
        (own,) = [each for each in self._segments if each.leaf is segment]
        return own.left()


class _Segment:
    def __init__(self, graph: QueryGraph, leaf: Leaf) -> None:
        assert leaf.frame is not None
        self.leaf = leaf
        self._session = graph.session
        self._program = graph.program
        self._frame = leaf.frame
        self._above = leaves_in(leaf.frame)
        self._name = f"of-{leaf.number}"
        nodes = {output.node for output in graph.program.outputs}
        self._is_waited_for = bool(nodes - graph.users.get(leaf.number, set()))
        self._leaving = leaf.frame.mapInArrow(_Leave(graph.program.handed, self._name), "n long")

    def left(self) -> DataFrame:
        # A row keeps its partition, by which it finds the one of its topic if it has no key.
        count = run_fresh(self._session, self._frame).toRdd().getNumPartitions()
        read = Handed(self._program.handed, self._name)
        numbers = self._session.range(0, count, 1, count)
        return numbers.mapInArrow(read, from_arrow_schema(self.leaf.schema))

    def compute(self, batch: int, error: Exception) -> list[Rejection]:
        files = handed_files(self._program.handed, batch, self._above)
        rows = _Rows([*files], [_count(path) for path in files.values()])
        found = self._run(rows.but([]))
        if found is None:
            return []
        note = note_of_failure(self._program.handed, str(batch))
        if reason_of(found) is None:
            raise found
        if not is_row_by_row(self._frame) or self._run(rows.within(0, 0)) is not None:
            raise error  # it fails without any row

        deadline = clock.monotonic() + (PATIENCE if self._is_waited_for else math.inf)

        def fails(start: int, stop: int) -> bool:
            if clock.monotonic() > deadline:
                raise error
            note.unlink(missing_ok=True)
            failed = self._run(SomeRows(rows.within(start, stop).spans, trial=True))
            if failed is not None and reason_of(failed) is None:
                raise failed
            return failed is not None or note.exists()

        try:
            suspects = failing(rows.count, fails, most=MOST_ROWS)
        except TooMany:
            raise error from None
        reasons = {row: reason for row in suspects if (reason := self._reason(rows, row))}
        if (still := self._run(rows.but([*reasons]))) is not None:
            raise still
        return [
            told
            for row, reason in reasons.items()
            if (told := self._rejection(files, *rows.place(row), reason, batch)) is not None
        ]

    def _reason(self, rows: "_Rows", row: int) -> Reason | None:
        """None if it can be computed by itself, as when a machine was lost in a trial."""
        found = self._run(rows.within(row, row + 1))
        if found is None:
            return None
        reason = reason_of(found)
        if reason is None:
            raise found
        return reason

    def _run(self, some: SomeRows) -> Exception | None:
        """Computes it from some of the rows. Returns what that raised."""
        context = self._session.sparkContext
        some.announce(context)
        try:
            run_fresh(self._session, self._leaving).executedPlan().executeCollect()
        except Exception as raised:
            return raised
        finally:
            SomeRows.withdraw(context)
        return None

    def _rejection(
        self, files: dict[str, Path], file: str, row: int, reason: Reason, batch: int
    ) -> Rejection | None:
        for giver, rows in read_handed_rows(files[file]):
            if row < rows.num_rows:
                made = self._program.maker(giver, str(batch))
                return rejection(rows, row, reason, made)
            row -= rows.num_rows
        raise IndexError(f"{file} has no row {row}")


@dataclass(frozen=True)
class _Leave:
    """Leaves the rows of a segment in a file for each of its partitions; travels to the workers."""

    folder: str
    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        found = [each for each in batches if each.num_rows]
        task = context.partitionId()
        if found:
            write_handed(self.folder, self.name, task, found)
        else:  # there may be rows of a trial
            (Path(self.folder) / batch_id() / self.name / f"{task}.arrow").unlink(missing_ok=True)
        yield pa.RecordBatch.from_pydict({"n": pa.array([len(found)], pa.int64())})


class _Rows:
    """The rows of several files, counted through."""

    def __init__(self, files: Sequence[str], counts: Sequence[int]) -> None:
        self._files = files
        self._ends = [*accumulate(counts)]
        self._begins = [end - count for end, count in zip(self._ends, counts, strict=True)]
        self.count = sum(counts)

    def within(self, start: int, stop: int) -> SomeRows:
        return SomeRows(
            {
                file: [(max(start - begin, 0), min(stop, end) - begin)]
                for file, begin, end in zip(self._files, self._begins, self._ends, strict=True)
                if max(start, begin) < min(stop, end)
            }
        )

    def but(self, left_out: Sequence[int]) -> SomeRows:
        spans: dict[str, list[Span]] = {}
        starts = [0, *(row + 1 for row in left_out)]
        for start, stop in zip(starts, [*left_out, self.count], strict=True):
            for file, some in self.within(start, stop).spans.items():
                spans.setdefault(file, []).extend(some)
        return SomeRows(spans)

    def place(self, row: int) -> tuple[str, int]:
        """The file of a row, and its number there."""
        which = next(n for n, end in enumerate(self._ends) if row < end)
        return self._files[which], row - self._begins[which]


def _count(path: Path) -> int:
    return sum(each.rows.num_rows for each in read_handed_rows(path))
