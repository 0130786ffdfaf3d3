"""SQL views on Spark: each operator of a plan as one of DataFrames.

    sql("SELECT customer, sum(amount) AS total FROM orders GROUP BY customer", orders=orders)

Every input is a stream or a table of changes; what comes out is a table of changes, with `_weight`.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from penstock.errors import InvalidInput, InvalidSql
from penstock.streams.spark.call_sites import without_call_sites
from penstock.streams.spark.origin import Origin, origin_of, with_origin
from penstock.streams.spark.place import QueryPlace, building, place_for
from penstock.streams.spark.sql.lowering import Lowering
from penstock.streams.spark.tops import COPY, copies
from penstock.streams.sql import Table, View, plan_view, tables_of
from penstock.streams.sql.plan import Aggregate, Filter, Plan, Project

_ATTRIBUTE = "_penstock_view"


def sql(text: str, /, *, checkpoint: str | None = None, **frames: DataFrame) -> DataFrame:
    """The query over these streams and tables, by their names: a table that follows them.

    On a stream outside an app `checkpoint` is the folder that the query is started with. Raises
    InvalidSql with the place in the text, and what to write instead.
    """
    wanted = {name.lower() for name in tables_of(text)}
    given = {name: frame for name, frame in frames.items() if name.lower() in wanted}
    view = plan_view(text, {name: _table(frame) for name, frame in frames.items()})
    streams = {name for name, frame in given.items() if frame.isStreaming}
    if streams and len(streams) < len(given):
        raise InvalidInput(
            f"{', '.join(sorted(streams))}: a stream; {', '.join(sorted(set(given) - streams))}: "
            "not",
            hint="read all of them as streams, or none",
        )
    try:
        with (
            without_call_sites(),
            _place(given, checkpoint) if streams else nullcontext() as place,
        ):
            lowering = Lowering(given, place)
            frame = lowering.view(view)
    except (AnalysisException, ParseException) as error:
        about = str(error).splitlines()[0]
        raise InvalidSql(
            f"Spark refuses it: {re.sub(r'(?<=[a-z0-9])__(?=[a-z])', '.', about)}",
            hint="look at the types of what is compared and computed, and cast",
        ) from error
    setattr(frame, _ATTRIBUTE, (view, lowering.operators))
    return with_origin(frame, Origin(keys=_spread(view)))


def _spread(view: View) -> tuple[str, ...]:
    """The columns by which the rows are distributed already, if these are the key."""
    plan = view.plan
    while isinstance(plan, Project | Filter):
        plan = plan.input
    return view.key if isinstance(plan, Aggregate) and plan.span is None else ()


def _place(
    frames: Mapping[str, DataFrame], checkpoint: str | None
) -> AbstractContextManager[QueryPlace]:
    """Where operators that look alike are apart by their number."""
    session = next(iter(frames.values())).sparkSession
    buckets = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    one_host = (session.conf.get("spark.master") or "").startswith("local")
    place = place_for(checkpoint, buckets, one_host)
    return building(place if place.numbered else replace(place, numbered=True))


def view_of(df: DataFrame) -> View | None:
    """The plan behind what `sql` gave."""
    view: View | None = getattr(df, _ATTRIBUTE, (None, {}))[0]
    return view


def operators_of(df: DataFrame) -> Mapping[Plan, tuple[str, ...]]:
    """The stateful operators of the query that each part of a view's plan became, by the names
    that their state has."""
    found: Mapping[Plan, tuple[str, ...]] = getattr(df, _ATTRIBUTE, (None, {}))[1]
    return found


def key_of(df: DataFrame) -> tuple[str, ...]:
    """The columns that identify a row, () if none are known."""
    view = view_of(df)
    if view is not None:
        return view.key
    origin = origin_of(df)
    if origin.source is not None:
        return origin.source.key
    is_table = origin.upserts is not None or origin.reread is not None
    return origin.keys if is_table else ()


def keyed(df: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
    """What `sql` gave, and columns that identify a row: where none are known, all of them, with the
    number of each `copy` of a row."""
    if key := key_of(df):
        return df, key
    names = tuple(name for name in df.columns if not name.startswith("_"))
    view = view_of(df)
    if view is not None and view.is_single:
        return df, names
    numbered = copies(df)
    setattr(numbered, _ATTRIBUTE, getattr(df, _ATTRIBUTE, (None, {})))
    return numbered, (*names, COPY)


def _table(df: DataFrame) -> Table:
    names = tuple(name for name in df.columns if not name.startswith("_"))
    return Table(names, key_of(df))
