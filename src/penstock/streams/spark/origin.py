"""What penstock knows of a DataFrame that Spark does not: the source it is, and its keys.

It is kept on the DataFrame itself and is gone when a user derives another from it: then the rows
go the ordinary way, and only speed is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from penstock.streams.source.spec import SourceSpec

if TYPE_CHECKING:
    from penstock.streams.spark.packing import Packer

_ATTRIBUTE = "_penstock_origin"
# In a field's metadata: marks the column that says when a row happened, as withWatermark does, and
# says for how many microseconds rows may still come once the clock has passed them.
_TIME_MARK = "penstock.event_time"
_WALL_MARK = "penstock.by_wall_clock"  # it is when a batch was planned, not when things happened


@dataclass(frozen=True)
class Origin:
    """`source` is what the DataFrame reads, when it is nothing but that; `keys` what a table of
    changes is distributed by; `upserts` are the rows that a table was made of, and `reread` gives
    the same table made of such rows, where it was made of changes. A table that has either has
    one row for each of its keys."""

    source: SourceSpec | None = None
    session: SparkSession | None = None
    streaming: bool = False
    keys: tuple[str, ...] = ()
    upserts: DataFrame | None = None
    reread: Callable[[], DataFrame] | None = None

    def packed(self, packer: "Packer") -> DataFrame:
        """The source again, packing its rows by itself."""
        assert self.session is not None
        return _load(self.session, self._ordered(), self.streaming, pack=packer.text())

    def with_order(self) -> DataFrame | None:
        """The source again, with the place of each row in the log."""
        if self.source is None or self.session is None:
            return None
        return _load(self.session, self._ordered(), self.streaming)

    def _ordered(self) -> SourceSpec:
        assert self.source is not None
        metadata = dict.fromkeys((*self.source.metadata, "partition", "offset"))
        return replace(self.source, metadata=tuple(metadata))

    @property
    def schema(self) -> pa.Schema | None:
        """Of the rows as they are packed: their place in the log is among the columns."""
        return None if self.source is None else self._ordered().row_schema


def with_origin(df: DataFrame, origin: Origin) -> DataFrame:
    setattr(df, _ATTRIBUTE, origin)
    return df


def origin_of(df: DataFrame) -> Origin:
    return getattr(df, _ATTRIBUTE, Origin())


def source_frame(session: SparkSession, spec: SourceSpec, *, streaming: bool) -> DataFrame:
    """The rows of a source, the column of their event time marked."""
    df = _load(session, spec, streaming)
    if spec.time_column is not None and not spec.rejected:
        assert spec.rule is not None
        df = mark_time(df, spec.time_column, spec.rule.correct_for)
    return with_origin(df, Origin(spec, session, streaming))


def _load(session: SparkSession, spec: SourceSpec, streaming: bool, **more: str) -> DataFrame:
    reader = session.readStream if streaming else session.read
    return reader.format("penstock").options(**spec.options(), **more).load()


def mark_time(
    df: DataFrame, column: str, correct_for: int, *, by_wall_clock: bool = False
) -> DataFrame:
    """Any other column is no longer marked."""
    before = time_column(df)
    marks: dict[str, dict[str, Any]] = {before.name: {}} if before else {}
    marks[column] = {_TIME_MARK: correct_for, _WALL_MARK: by_wall_clock}
    columns = {name: col(quoted(name)) for name in df.columns}
    marked = {name: columns[name].alias(name, metadata=mark) for name, mark in marks.items()}
    return df.select(*(columns | marked).values())


def quoted(name: str) -> str:
    """As Spark takes it for one name, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


class EventTimeColumn(NamedTuple):
    name: str
    correct_for: int  # microseconds
    by_wall_clock: bool = False


def time_column(df: DataFrame) -> EventTimeColumn | None:
    for field in df.schema.fields:
        if _TIME_MARK in field.metadata:
            about = field.metadata
            return EventTimeColumn(field.name, about[_TIME_MARK], about[_WALL_MARK])
    return None
