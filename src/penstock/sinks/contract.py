"""What every sink offers."""

from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter


class Sink(Protocol):
    @property
    def kind(self) -> str:
        """What its nodes are called by, after the name of what they read."""

    def writer(self, rows: DataFrame, *, node: str) -> DataStreamWriter:
        """A writer over these rows; the runtime gives it its checkpoint and starts it."""
