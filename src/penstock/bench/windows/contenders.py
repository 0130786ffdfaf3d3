"""The contenders: each answers a question about a set of events, and says how long it took."""

import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.bench.flink import FLINK, Files, Flink
from penstock.bench.spark_figures import NATIVE, PENSTOCK
from penstock.bench.spark_queries import milliseconds
from penstock.bench.windows.events import SCHEMA, TOPIC, Events
from penstock.bench.windows.figures import FROM_LOG
from penstock.bench.windows.queries import FLINK_TYPES, WAIT, Asked
from penstock.events.schema import parse_schema
from penstock.log import Log
from penstock.streams.source.spec import SourceSpec
from penstock.streams.spark.origin import source_frame

_FILES = 2  # of a batch


@dataclass(frozen=True)
class Stored:
    """A set of events in a folder: `slices` and `whole` as files, `log` as a topic."""

    events: Events
    folder: Path

    @property
    def slices(self) -> Path:
        return self.folder / "slices"

    @property
    def whole(self) -> Path:
        return self.folder / "whole"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def write(self) -> None:
        self.events.write_slices(self.slices)
        self.events.write_whole(self.whole)
        with Log.open(self.log) as log:
            self.events.fill(log, log.serve())  # type: ignore[attr-defined]


class Contender(ABC):
    name: str
    interpolates: bool
    """Whether its percentiles lie between two values."""

    def can(self, asked: Asked) -> bool:
        return True

    @abstractmethod
    def milliseconds(self, asked: Asked, stored: Stored, into: Path | None = None) -> int:
        """From the first row to the last result, which go into Parquet files, or nowhere."""


class _OnSpark(Contender):
    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @abstractmethod
    def _frame(self, asked: Asked, stored: Stored, checkpoint: str) -> DataFrame: ...

    def milliseconds(self, asked: Asked, stored: Stored, into: Path | None = None) -> int:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            checkpoint = f"{folder}/checkpoint"
            return milliseconds(self._frame(asked, stored, checkpoint), checkpoint, into)


class Native(_OnSpark):
    name, interpolates = NATIVE, True

    def can(self, asked: Asked) -> bool:
        return asked.spark is not None

    def _frame(self, asked: Asked, stored: Stored, checkpoint: str) -> DataFrame:
        assert asked.spark is not None
        reader = self._session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", _FILES)
        return asked.spark(reader.parquet(str(stored.slices)).withWatermark("at", WAIT))


class Ours(_OnSpark):
    name, interpolates = PENSTOCK, False

    def _frame(self, asked: Asked, stored: Stored, checkpoint: str) -> DataFrame:
        files = ps.parquet(self._session, str(stored.slices), SCHEMA, max_files=_FILES)
        return asked.penstock(ps.timed(files, "at", wait=WAIT), checkpoint)


class FromLog(_OnSpark):
    name, interpolates = FROM_LOG, False

    def _frame(self, asked: Asked, stored: Stored, checkpoint: str) -> DataFrame:
        spec = SourceSpec(
            log=str(stored.log),
            topic=TOPIC,
            schema=parse_schema(SCHEMA),
            rule=ps.EventTime("at", wait=WAIT).rule(),
            ticks=True,
            max_rows=stored.events.slice_rows,
            checkpoint=checkpoint,
        )
        return asked.penstock(source_frame(self._session, spec, streaming=True), checkpoint)


class FlinkSql(Contender):
    name, interpolates = FLINK, True

    def __init__(self, flink: Flink) -> None:
        self._flink = flink

    def milliseconds(self, asked: Asked, stored: Stored, into: Path | None = None) -> int:
        events = Files(FLINK_TYPES, stored.whole)
        return self._flink.milliseconds({"events": events}, asked.flink, asked.flink_types, into)
