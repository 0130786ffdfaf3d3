"""What penstock knows of a DataFrame that Spark does not: the source it is, and its keys.

It is kept on the DataFrame itself and is gone when a user derives another from it: then the rows
go the ordinary way, and only speed is lost.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from penstock.streams.source.spec import SourceSpec

if TYPE_CHECKING:
    from penstock.streams.spark.packing import Packer

_ATTRIBUTE = "_penstock_origin"
# In a field's metadata: marks the column that says when a row happened, as withWatermark does.
TIME_MARK = "penstock.event_time"


@dataclass(frozen=True)
class Origin:
    """`source` is what the DataFrame reads, when it is nothing but that; `keys` what a table of
    changes is distributed by."""

    source: SourceSpec | None = None
    session: SparkSession | None = None
    streaming: bool = False
    keys: tuple[str, ...] = ()

    def packed(self, packer: "Packer") -> DataFrame | None:
        """The source again, packing its rows by itself."""
        if self.source is None or self.session is None:
            return None
        return _load(self.session, self._with_order(), self.streaming, pack=packer.text())

    def _with_order(self) -> SourceSpec:
        assert self.source is not None
        metadata = dict.fromkeys((*self.source.metadata, "partition", "offset"))
        return replace(self.source, metadata=tuple(metadata))

    @property
    def schema(self) -> pa.Schema | None:
        """Of the rows as they are packed: their place in the log is among the columns."""
        return None if self.source is None else self._with_order().row_schema


def with_origin(df: DataFrame, origin: Origin) -> DataFrame:
    setattr(df, _ATTRIBUTE, origin)
    return df


def origin_of(df: DataFrame) -> Origin:
    return getattr(df, _ATTRIBUTE, Origin())


def source_frame(session: SparkSession, spec: SourceSpec, *, streaming: bool) -> DataFrame:
    """The rows of a source, the column of their event time marked."""
    df = _load(session, spec, streaming)
    if spec.time_column is not None and not spec.rejected:
        df = mark_time(df, spec.time_column)
    return with_origin(df, Origin(spec, session, streaming))


def _load(session: SparkSession, spec: SourceSpec, streaming: bool, **more: str) -> DataFrame:
    reader = session.readStream if streaming else session.read
    return reader.format("penstock").options(**spec.options(), **more).load()


def mark_time(df: DataFrame, column: str) -> DataFrame:
    marked = col(column).alias(column, metadata={TIME_MARK: True})
    return df.select([marked if name == column else col(name) for name in df.columns])


def time_column(df: DataFrame) -> str | None:
    for field in df.schema.fields:
        if field.metadata.get(TIME_MARK):
            return field.name
    return None
