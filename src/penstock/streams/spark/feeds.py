"""Where the rows of a DataFrame are made in Python, and can be packed for a kernel at once.

They do not go through the JVM as rows then, which takes longer than most kernels. As an origin, a
feed is kept on the DataFrame itself and is gone when a user derives another from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.rows.selection import ALL, Choice, Expression, Selection
from penstock.streams.source.spec import PACKED
from penstock.streams.spark.origin import Origin, origin_of
from penstock.streams.spark.packing import Packer

_ATTRIBUTE = "_penstock_feed"

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Feed(ABC):
    """Where rows are made."""

    portable_only = False  # whether the packer has to travel as text

    @abstractmethod
    def packed(self, packer: Packer) -> DataFrame:
        """All rows, packed."""

    def timed(self, column: str, wait: int) -> "Feed | None":
        """The same, with a clock so many milliseconds behind this column; None if it has none."""
        return None


class Fed(NamedTuple):
    """What the rows of a DataFrame are: those of a feed, or what is selected of them."""

    feed: Feed
    selection: Selection | None = None


@dataclass(frozen=True)
class _SourceFeed(Feed):
    origin: Origin
    portable_only = True

    def packed(self, packer: Packer) -> DataFrame:
        return self.origin.packed(packer)


@dataclass(frozen=True)
class StepFeed(Feed):
    """A step, and the packed rows that have moved to its buckets."""

    moved: DataFrame
    step: Step

    def packed(self, packer: Packer) -> DataFrame:
        return self.moved.mapInArrow(_Handing(self.step, packer), from_arrow_schema(PACKED))


def fed_by(df: DataFrame) -> Fed | None:
    fed: Fed | None = getattr(df, _ATTRIBUTE, None)
    if fed is not None:
        return fed
    origin = origin_of(df)
    return None if origin.source is None else Fed(_SourceFeed(origin))


def with_feed(df: DataFrame, feed: Feed, selection: Selection = ALL) -> DataFrame:
    setattr(df, _ATTRIBUTE, Fed(feed, selection))
    return df


def still_fed(
    df: DataFrame,
    before: DataFrame,
    columns: Choice | None = None,
    *,
    where: Expression | None = None,
) -> DataFrame:
    """A DataFrame that has these columns of another, new names for old ones, or some of the same
    names; and of its rows those for which a condition holds."""
    fed = fed_by(before)
    if fed is None or not df.columns:  # Arrow cannot count rows of nothing
        return df
    selection = fed.selection or ALL
    if where is not None:
        selection = selection.where(where)
    same = {name: name for name in df.columns}
    return with_feed(df, fed.feed, selection.chosen(same if columns is None else columns))


def without_weight(df: DataFrame) -> DataFrame:
    """As a stream, of rows that are never taken back."""
    return still_fed(df.drop(WEIGHT), df)


class _Handing:
    """A step whose rows are packed for the next one; travels to the workers."""

    def __init__(self, step: Step, packer: Packer) -> None:
        self._step = step
        self._packer = packer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._packer(self._step(batches))
