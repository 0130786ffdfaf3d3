"""A stream-processing platform in one `pip install`, on a log that speaks the Kafka protocol."""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.events.record import Position, Record
from penstock.log.contract import Log

if TYPE_CHECKING:
    from penstock.runtime.app import App
    from penstock.sinks.functions import console, each_batch
    from penstock.streams.algebra.aggregates.functions import (
        Aggregation,
        approx_distinct,
        approx_quantile,
        approx_top,
        collect,
        count,
        distinct,
        first,
        histogram,
        last,
        max,
        mean,
        min,
        quantile,
        stddev,
        sum,
        top,
    )
    from penstock.streams.algebra.windows.window import hopping, session, sliding, tumbling
    from penstock.streams.source.event_time import EventTime
    from penstock.streams.spark.analytics import (
        anomaly,
        compare,
        dedup,
        gaps,
        latest,
        rate,
        rolling,
        seen_before,
    )
    from penstock.streams.spark.enriching import enrich, versions
    from penstock.streams.spark.joins import join
    from penstock.streams.spark.operators import (
        aggregate,
        at_processing_time,
        changes,
        timed,
        window,
    )
    from penstock.streams.spark.parquet import parquet
    from penstock.streams.spark.sql import sql

# A library speaks only where its user listens.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = [
    "Aggregation",
    "App",
    "EventTime",
    "Log",
    "Position",
    "Record",
    "__version__",
    "aggregate",
    "anomaly",
    "approx_distinct",
    "approx_quantile",
    "approx_top",
    "at_processing_time",
    "changes",
    "collect",
    "compare",
    "console",
    "count",
    "dedup",
    "distinct",
    "each_batch",
    "enrich",
    "errors",
    "first",
    "gaps",
    "histogram",
    "hopping",
    "join",
    "last",
    "latest",
    "max",
    "mean",
    "min",
    "parquet",
    "quantile",
    "rate",
    "rolling",
    "seen_before",
    "session",
    "sliding",
    "sql",
    "stddev",
    "sum",
    "timed",
    "top",
    "tumbling",
    "versions",
    "window",
]

_AGGREGATES = "penstock.streams.algebra.aggregates.functions"
_ANALYTICS = "penstock.streams.spark.analytics"
_OPERATORS = "penstock.streams.spark.operators"
_WINDOWS = "penstock.streams.algebra.windows.window"
_SINKS = "penstock.sinks.functions"

# Brought when first asked for: who only reads the log need not wait for Spark and Arrow.
_LATER = {
    "App": "penstock.runtime.app",
    "EventTime": "penstock.streams.source.event_time",
    "parquet": "penstock.streams.spark.parquet",
    **dict.fromkeys(("aggregate", "at_processing_time", "changes", "timed", "window"), _OPERATORS),
    **dict.fromkeys(
        (
            "anomaly",
            "compare",
            "dedup",
            "gaps",
            "latest",
            "rate",
            "rolling",
            "seen_before",
        ),
        _ANALYTICS,
    ),
    **dict.fromkeys(
        (
            "Aggregation",
            "approx_distinct",
            "approx_quantile",
            "approx_top",
            "collect",
            "count",
            "distinct",
            "first",
            "histogram",
            "last",
            "max",
            "mean",
            "min",
            "quantile",
            "stddev",
            "sum",
            "top",
        ),
        _AGGREGATES,
    ),
    **dict.fromkeys(("hopping", "session", "sliding", "tumbling"), _WINDOWS),
    **dict.fromkeys(("console", "each_batch"), _SINKS),
    **dict.fromkeys(("enrich", "versions"), "penstock.streams.spark.enriching"),
    "join": "penstock.streams.spark.joins",
    "sql": "penstock.streams.spark.sql",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    found = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = found
    return found
