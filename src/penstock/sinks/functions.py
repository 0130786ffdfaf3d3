"""Sinks that are a function of the user's, or the terminal."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

BatchFunction = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class EachBatch:
    """Calls `function(rows, batch)` with a DataFrame and the number of its batch.

    At least once: after a crash the last batch comes again with the same rows and number, so a
    function that remembers the number writes exactly once.
    """

    function: BatchFunction
    kind: str = "each_batch"

    def writer(self, rows: DataFrame, *, node: str) -> DataStreamWriter:
        return rows.writeStream.foreachBatch(_whole(self.function))


@dataclass(frozen=True)
class Console:
    """Prints rows as they come, at most `rows` of a batch."""

    rows: int = 20
    kind: str = "console"

    def writer(self, rows: DataFrame, *, node: str) -> DataStreamWriter:
        def show(batch: DataFrame, number: int) -> None:
            if not batch.isEmpty():
                print(f"{node}, batch {number}")  # noqa: T201
                batch.show(self.rows, truncate=False)

        return rows.writeStream.foreachBatch(_whole(show))


def _whole(function: BatchFunction) -> BatchFunction:
    """Computes the batch once, to its end: only where rows were read are progress and state kept,
    and a function may look at a few of them, or at all of them twice."""

    def run(rows: DataFrame, batch: int) -> None:
        rows.persist()
        try:
            rows.count()
            function(rows, batch)
        finally:
            rows.unpersist()

    return run


def each_batch(function: BatchFunction) -> EachBatch:
    return EachBatch(function)


def console(rows: int = 20) -> Console:
    return Console(rows)
