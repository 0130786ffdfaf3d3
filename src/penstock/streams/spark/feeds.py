"""Where the rows of a DataFrame are made in Python, and can be packed for a kernel at once.

They do not go through the JVM as rows then, which takes longer than most kernels. As an origin, a
feed is kept on the DataFrame itself and is gone when a user derives another from it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.streams.algebra.rows.selection import Condition, Selection
from penstock.streams.source.spec import PACKED
from penstock.streams.spark.origin import origin_of
from penstock.streams.spark.packing import Packer

_ATTRIBUTE = "_penstock_feed"

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Feed(NamedTuple):
    """`packed` gives all rows, packed; those of the DataFrame are what is selected of them."""

    packed: Callable[[Packer], DataFrame]
    selection: Selection | None = None
    portable_only: bool = False  # whether the packer has to travel as text


def feed_of(df: DataFrame) -> Feed | None:
    feed: Feed | None = getattr(df, _ATTRIBUTE, None)
    if feed is not None:
        return feed
    origin = origin_of(df)
    return Feed(origin.packed, portable_only=True) if origin.source is not None else None


def fed_by_step(df: DataFrame, moved: DataFrame, step: Step) -> DataFrame:
    """The DataFrame of what a step gives, with packed rows that have moved to their buckets."""

    def packed(packer: Packer) -> DataFrame:
        return moved.mapInArrow(_Handing(step, packer), from_arrow_schema(PACKED))

    setattr(df, _ATTRIBUTE, Feed(packed, Selection()))
    return df


def still_fed(
    df: DataFrame,
    before: DataFrame,
    columns: Mapping[str, str] | None = None,
    *,
    where: Condition | None = None,
) -> DataFrame:
    """A DataFrame that has these columns of another, new names for old ones, or some of the same
    names; and of its rows those for which a condition holds."""
    feed = feed_of(before)
    if feed is not None:
        selection = feed.selection or Selection()
        if where is not None:
            selection = selection.where(where)
        selection = selection.chosen(columns or {name: name for name in df.columns})
        setattr(df, _ATTRIBUTE, feed._replace(selection=selection))
    return df


class _Handing:
    """A step whose rows are packed for the next one; travels to the workers."""

    def __init__(self, step: Step, packer: Packer) -> None:
        self._step = step
        self._packer = packer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._packer(self._step(batches))
