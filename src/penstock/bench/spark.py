"""Spark with penstock and Spark alone, on the same rows and the same machine, taking turns."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyspark

from penstock.bench.figures import Row
from penstock.bench.machine import facts
from penstock.bench.spark_figures import (
    COUNTED,
    FLOOR,
    KEYS,
    LAST,
    NATIVE,
    PENSTOCK,
    TYPED,
    Figures,
)
from penstock.bench.spark_floor import Floor
from penstock.bench.spark_queries import (
    Bench,
    Query,
    counted,
    counted_by_spark,
    last,
    last_by_spark,
    speed,
    typed,
    typed_by_spark,
)
from penstock.bench.spark_report import SparkReport
from penstock.bench.spark_topics import Rows, fill_kafka, fill_log
from penstock.bench.steps import Steps
from penstock.clock import instant_text, now_ms
from penstock.log import Log
from penstock.streams.spark.session import open_session
from penstock.streams.spark.source import register
from penstock.testing import KafkaProcess
from penstock.testing.spark_kafka import spark_kafka_jars

_NATIVE_STATE = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state"
    ".RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class Amount(NamedTuple):
    unit: int
    """Rows of a batch."""
    counted: int
    """Batches that count, after those that bring the keys."""
    small: int
    """Small batches."""
    scale: int
    """What the numbers of keys are divided by."""


FULL = Amount(unit=1_000_000, counted=3, small=40, scale=1)
# Enough to see that everything runs, too little to measure anything.
QUICK = Amount(unit=1_000, counted=1, small=3, scale=1_000)


class Turn(NamedTuple):
    """One measurement of one contender."""

    row: Row
    contender: str
    take: Callable[[], float]


def run(*, repeats: int, quick: bool, output: Path) -> None:
    """Measures, prints a table and writes a report to `output` as Markdown.

    A quick run shows that everything works; its figures mean nothing. Raises LogUnreachable when
    Apache Kafka, or Spark's connector to it, is missing.
    """
    machine = facts() | {"Spark": pyspark.__version__}
    date = instant_text(now_ms())
    command = f"penstock bench spark --repeats {repeats}{' --quick' if quick else ''}"
    figures = measure(repeats, QUICK if quick else FULL)
    report = SparkReport(figures, command, date, machine, quick)
    report.publish(output)


def measure(repeats: int, amount: Amount) -> Figures:
    """One value for each row, contender and repeat."""
    figures = Figures()
    jars = ",".join(map(str, spark_kafka_jars()))
    settings = {**_NATIVE_STATE, "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        KafkaProcess(heap="1g") as kafka,
        _session(settings | {"spark.jars": jars}) as session,
        Log.open(Path(folder) / "rows") as log,
    ):
        bench = Bench(session, Path(folder) / "rows", kafka.address)
        groups = _groups(bench, Floor(session, Path(folder) / "floor"), amount)
        topics = _topics(amount)
        turns = sum(len(group) for group in groups)
        with Steps(len(topics) + repeats * turns) as steps:
            address = log.serve()  # type: ignore[attr-defined]
            for rows in topics:
                steps.begin(f"topic {rows.topic}")
                fill_log(log, address, rows)
                if rows.kind == "orders":
                    fill_kafka(kafka.address, rows)
                steps.end(f"{rows.count:,} rows")
            for repeat in range(repeats):
                for group in groups:
                    for row, contender, take in group if repeat % 2 else reversed(group):
                        steps.begin(f"{repeat + 1} of {repeats}: {row.what}, {contender}")
                        value = take()
                        figures.add(row, contender, value)
                        steps.end(f"{row.short(value)} {row.unit}")
    return figures


@contextmanager
def _session(settings: dict[str, str]) -> Iterator[pyspark.sql.SparkSession]:
    session = open_session("penstock bench", settings=settings)
    register(session)
    try:
        yield session
    finally:
        session.stop()


def _orders(amount: Amount) -> Rows:
    return Rows("orders", (1 + amount.counted) * amount.unit, 100_000 // amount.scale)


def _wide(amount: Amount) -> Rows:
    return Rows("wide", (1 + amount.counted) * amount.unit // 2, 100_000 // amount.scale)


def _numbers(amount: Amount, keys: int) -> Rows:
    keys //= amount.scale
    return Rows("numbers", max(keys, amount.unit) + amount.counted * amount.unit, keys)


def _topics(amount: Amount) -> list[Rows]:
    return [_orders(amount), _wide(amount), *(_numbers(amount, keys) for keys in KEYS)]


def _groups(bench: Bench, floor: Floor, amount: Amount) -> list[list[Turn]]:
    """What is measured in turn, one after the other, is beside each other in a group."""
    unit = amount.unit

    def turn(row: Row, query: Query, rows: Rows, batch: int) -> Turn:
        contender = (
            NATIVE if query in (counted_by_spark, last_by_spark, typed_by_spark) else PENSTOCK
        )
        warm = max(1, rows.keys // batch)
        return Turn(row, contender, partial(speed, query, bench, rows, batch, warm=warm))

    orders, wide = _orders(amount), _wide(amount)
    by_keys = {keys: _numbers(amount, keys) for keys in KEYS}
    counting = [turn(COUNTED[keys], counted, rows, unit) for keys, rows in by_keys.items()]
    native = turn(COUNTED[10**5], counted_by_spark, by_keys[10**5], unit)
    return [
        [turn(TYPED, typed, orders, unit), turn(TYPED, typed_by_spark, orders, unit)],
        [*counting[:2], native, *counting[2:]],
        [turn(LAST, last, wide, unit // 2), turn(LAST, last_by_spark, wide, unit // 2)],
        [
            Turn(row, PENSTOCK, partial(floor.median_ms, kind, amount.small))
            for kind, row in FLOOR.items()
        ],
    ]
