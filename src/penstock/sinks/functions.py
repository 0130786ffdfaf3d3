"""Sinks that are a function of the user's, or the terminal."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class EachBatch:
    """Calls `function(rows, batch)` with a DataFrame and the number of its batch.

    At least once: after a crash the last batch comes again with the same rows and number, so a
    function that remembers the number writes exactly once.
    """

    function: Callable[[DataFrame, int], None]
    kind: str = "each_batch"

    def writer(self, rows: DataFrame, *, node: str) -> DataStreamWriter:
        return rows.writeStream.foreachBatch(self.function)


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

        return rows.writeStream.foreachBatch(show)


def each_batch(function: Callable[[DataFrame, int], None]) -> EachBatch:
    return EachBatch(function)


def console(rows: int = 20) -> Console:
    return Console(rows)
