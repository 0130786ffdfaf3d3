"""The contenders: each keeps a view of tables up to date, and says how long it took."""

import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, explode, expr, lit

from penstock.bench.flink import FLINK, Files, Flink
from penstock.bench.spark_figures import NATIVE, PENSTOCK
from penstock.bench.spark_queries import milliseconds
from penstock.bench.views.queries import FLINK_TYPES, Asked, Frames
from penstock.bench.views.stored import ALL_FILES, SLICES, Stored
from penstock.streams.algebra.changes import WEIGHT


class Contender(ABC):
    name: str

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def can(self, asked: Asked) -> bool:
        return True

    @abstractmethod
    def milliseconds(self, asked: Asked, stored: Stored, into: Path | None = None) -> int:
        """From the first row to the last change, which go into files, or nowhere."""

    @abstractmethod
    def changes(self, asked: Asked, into: Path) -> DataFrame:
        """What was written into files, each row with its `_weight`; the tables are views of the
        session."""


class _OnSpark(Contender):
    @abstractmethod
    def _frame(self, asked: Asked, frames: Frames, checkpoint: str) -> DataFrame: ...

    def milliseconds(self, asked: Asked, stored: Stored, into: Path | None = None) -> int:
        names = ALL_FILES if self.name in asked.closed else SLICES
        frames = {name: self._files(stored, name, names) for name in asked.tables}
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            checkpoint = f"{folder}/checkpoint"
            return milliseconds(self._frame(asked, frames, checkpoint), checkpoint, into)

    def _files(self, stored: Stored, table: str, names: str) -> DataFrame:
        files = str(stored.slices(table))
        reader = self.session.readStream.schema(self.session.read.parquet(files).schema)
        reader = reader.option("maxFilesPerTrigger", 2).option("pathGlobFilter", names)
        return reader.parquet(files)

    def changes(self, asked: Asked, into: Path) -> DataFrame:
        rows = self.session.read.parquet(str(into))
        return rows if WEIGHT in rows.columns else rows.withColumn(WEIGHT, lit(1))


class Native(_OnSpark):
    name = NATIVE

    def can(self, asked: Asked) -> bool:
        return asked.spark is not None

    def _frame(self, asked: Asked, frames: Frames, checkpoint: str) -> DataFrame:
        assert asked.spark is not None
        return asked.spark(frames)


class Ours(_OnSpark):
    name = PENSTOCK

    def _frame(self, asked: Asked, frames: Frames, checkpoint: str) -> DataFrame:
        return asked.penstock(frames, checkpoint)


class FlinkSql(Contender):
    name = FLINK

    def __init__(self, session: SparkSession, flink: Flink) -> None:
        super().__init__(session)
        self._flink = flink

    def milliseconds(self, asked: Asked, stored: Stored, into: Path | None = None) -> int:
        tables = {name: Files(FLINK_TYPES[name], stored.whole(name)) for name in asked.tables}
        return self._flink.milliseconds(
            tables, asked.flink, asked.flink_types, into, taken_back=True
        )

    def changes(self, asked: Asked, into: Path) -> DataFrame:
        row = self.session.sql(asked.truth).schema.simpleString()
        lines = self.session.read.schema(f"before {row}, after {row}, op string").json(str(into))
        both = expr(
            f"array(struct(after AS row, 1 AS {WEIGHT}), struct(before AS row, -1 AS {WEIGHT}))"
        )
        sides = lines.select(explode(both).alias("side")).where("side.row IS NOT NULL")
        return sides.select("side.row.*", col(f"side.{WEIGHT}"))
