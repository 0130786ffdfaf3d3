"""What every sink offers."""

from typing import Protocol

from pyspark.sql import DataFrame


class Sink(Protocol):
    @property
    def kind(self) -> str:
        """What its nodes are called by, after the name of what they read."""

    def write(self, rows: DataFrame, batch: int, *, node: str) -> None:
        """Writes the rows of a batch, whose numbers grow; after a crash the last one comes again
        with the same rows. The rows may be looked at more than once."""
