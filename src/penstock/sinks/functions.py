"""Sinks that are a function of the user's, or the terminal."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

BatchFunction = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class EachBatch:
    """Calls `function(rows, batch)` with a DataFrame and the number of its batch.

    At least once: after a crash the last batch comes again with the same rows and number, so a
    function that remembers the number writes exactly once.
    """

    function: BatchFunction
    kind: str = "each_batch"

    def write(self, rows: DataFrame, batch: int, *, node: str) -> None:
        self.function(rows, batch)


@dataclass(frozen=True)
class Console:
    """Prints rows as they come, at most `rows` of a batch."""

    rows: int = 20
    kind: str = "console"

    def write(self, rows: DataFrame, batch: int, *, node: str) -> None:
        if not rows.isEmpty():
            print(f"{node}, batch {batch}")  # noqa: T201
            rows.show(self.rows, truncate=False)


def each_batch(function: BatchFunction) -> EachBatch:
    return EachBatch(function)


def console(rows: int = 20) -> Console:
    return Console(rows)
