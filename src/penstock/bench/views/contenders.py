"""The contenders: each keeps a view of tables up to date, and says how long it took."""

import tempfile
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, explode, expr, lit

import penstock as ps
from penstock.bench.flink import FLINK, Files, Flink
from penstock.bench.spark_figures import NATIVE, PENSTOCK
from penstock.bench.spark_queries import milliseconds
from penstock.bench.views.queries import FLINK_TYPES, Asked
from penstock.bench.views.stored import ALL_FILES, SLICES, Stored
from penstock.streams.algebra.changes import WEIGHT

_FILES = 2  # of each table in a batch


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
    def frame(self, asked: Asked, stored: Stored, checkpoint: str) -> DataFrame:
        """The query over the files, two of each table in a batch."""

    def milliseconds(self, asked: Asked, stored: Stored, into: Path | None = None) -> int:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            checkpoint = f"{folder}/checkpoint"
            return milliseconds(self.frame(asked, stored, checkpoint), checkpoint, into)

    def _names(self, asked: Asked) -> str:
        return ALL_FILES if self.name in asked.closed else SLICES

    def changes(self, asked: Asked, into: Path) -> DataFrame:
        rows = self.session.read.parquet(str(into))
        return rows if WEIGHT in rows.columns else rows.withColumn(WEIGHT, lit(1))


class Native(_OnSpark):
    name = NATIVE

    def can(self, asked: Asked) -> bool:
        return asked.spark is not None

    def frame(self, asked: Asked, stored: Stored, checkpoint: str) -> DataFrame:
        assert asked.spark is not None
        return asked.spark({name: self._files(asked, stored, name) for name in asked.tables})

    def _files(self, asked: Asked, stored: Stored, table: str) -> DataFrame:
        files = str(stored.slices(table))
        reader = self.session.readStream.schema(self.session.read.parquet(files).schema)
        reader = reader.option("maxFilesPerTrigger", _FILES)
        return reader.option("pathGlobFilter", self._names(asked)).parquet(files)


class Ours(_OnSpark):
    name = PENSTOCK

    def frame(self, asked: Asked, stored: Stored, checkpoint: str) -> DataFrame:
        read = partial(ps.parquet, self.session, names=self._names(asked), max_files=_FILES)
        tables = {name: partial(read, str(stored.slices(name))) for name in asked.tables}
        return asked.penstock(tables, checkpoint)


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
