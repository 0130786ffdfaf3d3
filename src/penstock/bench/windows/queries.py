"""What is asked of the events, in the words of penstock, of Spark and of Flink SQL."""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

import penstock as ps
from penstock.bench.figures import Row

WAIT = "10 seconds"
FLINK_TYPES = """\
`key` BIGINT, shop BIGINT, amount DOUBLE, `at` TIMESTAMP_LTZ(3),
WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND"""
_MINUTE, _TEN_MINUTES, _FIVE_MINUTES, _GAP = "1 minute", "10 minutes", "5 minutes", "30 seconds"
_SPEED = "records/s"


class Asked(NamedTuple):
    """Each gives columns `by`, `value` and when: `start` and `end`, or `at`.

    Spark alone has no answer to all; what `flink` gives is of the types `flink_types`.
    """

    row: Row
    penstock: Callable[[DataFrame, str], DataFrame]
    flink: str
    flink_types: str
    spark: Callable[[DataFrame], DataFrame] | None = None


def _flink_count(windows: str) -> str:
    return (
        "SELECT `key`, window_start, window_end, COUNT(*) "
        f"FROM TABLE({windows}) GROUP BY `key`, window_start, window_end"
    )


def _shown(table: DataFrame, by: str) -> DataFrame:
    return table.selectExpr(f"{by} AS by", "window.start", "window.end", "value")


def _tumbling(events: DataFrame, checkpoint: str) -> DataFrame:
    over = ps.tumbling(_MINUTE)
    return _shown(ps.window(events, over, "key", checkpoint=checkpoint, value=ps.count()), "key")


def _hopping(events: DataFrame, checkpoint: str) -> DataFrame:
    over = ps.hopping(_TEN_MINUTES, _MINUTE)
    return _shown(ps.window(events, over, "key", checkpoint=checkpoint, value=ps.count()), "key")


def _sessions(events: DataFrame, checkpoint: str) -> DataFrame:
    over = ps.session(_GAP)
    return _shown(ps.window(events, over, "key", checkpoint=checkpoint, value=ps.count()), "key")


def _percentile(events: DataFrame, checkpoint: str) -> DataFrame:
    over, value = ps.tumbling(_MINUTE), ps.quantile("amount", 0.99)
    return _shown(ps.window(events, over, "shop", checkpoint=checkpoint, value=value), "shop")


def _rolling(events: DataFrame, checkpoint: str) -> DataFrame:
    mean = ps.mean("amount")
    rows = ps.rolling(events, _FIVE_MINUTES, by="key", checkpoint=checkpoint, value=mean)
    return rows.selectExpr("key AS by", "at", "value")


def _count_by_spark(window: Callable[[], Column]) -> Callable[[DataFrame], DataFrame]:
    def counted(events: DataFrame) -> DataFrame:
        grouped = events.groupBy("key", window().alias("window"))
        return _shown(grouped.agg(sql.count("*").alias("value")), "key")

    return counted


def _percentile_by_spark(events: DataFrame) -> DataFrame:
    grouped = events.groupBy("shop", sql.window("at", _MINUTE).alias("window"))
    return _shown(grouped.agg(sql.percentile("amount", 0.99).alias("value")), "shop")


_WINDOW_TYPES = "`by` BIGINT, `start` TIMESTAMP(3), `end` TIMESTAMP(3), `value` "
_TUMBLE = "TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' MINUTE)"

TUMBLING = Asked(
    Row("tumbling: count by key", _SPEED),
    _tumbling,
    _flink_count(_TUMBLE),
    _WINDOW_TYPES + "BIGINT",
    _count_by_spark(lambda: sql.window("at", _MINUTE)),
)
HOPPING = Asked(
    Row("hopping, 10 panes: count by key", _SPEED),
    _hopping,
    _flink_count("HOP(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' MINUTE, INTERVAL '10' MINUTE)"),
    _WINDOW_TYPES + "BIGINT",
    _count_by_spark(lambda: sql.window("at", _TEN_MINUTES, _MINUTE)),
)
ROLLING = Asked(
    Row("sliding: rolling mean by key", _SPEED),
    _rolling,
    # Flink's range has both its ends, and times have milliseconds: 5 minutes without the first.
    "SELECT `key`, `at`, AVG(amount) OVER (PARTITION BY `key` ORDER BY `at` "
    "RANGE BETWEEN INTERVAL '299.999' SECOND(3) PRECEDING AND CURRENT ROW) FROM events",
    "`by` BIGINT, `at` TIMESTAMP_LTZ(3), `value` DOUBLE",
)
SESSIONS = Asked(
    Row("sessions: count by key", _SPEED),
    _sessions,
    _flink_count(
        "SESSION(TABLE events PARTITION BY `key`, DESCRIPTOR(`at`), INTERVAL '30' SECOND)"
    ),
    _WINDOW_TYPES + "BIGINT",
    _count_by_spark(lambda: sql.session_window("at", _GAP)),
)
PERCENTILE = Asked(
    Row("tumbling: exact 99th percentile by shop", _SPEED),
    _percentile,
    "SELECT shop, window_start, window_end, PERCENTILE(amount, 0.99) "
    f"FROM TABLE({_TUMBLE}) GROUP BY shop, window_start, window_end",
    _WINDOW_TYPES + "DOUBLE",
    _percentile_by_spark,
)

ALL = (TUMBLING, HOPPING, ROLLING, SESSIONS, PERCENTILE)
