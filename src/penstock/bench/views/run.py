"""Views of penstock, of Spark alone and of Flink, over the same tables, taking turns."""

import tempfile
from pathlib import Path
from statistics import median

import pyspark
from pyspark.sql import SparkSession

from penstock.bench.flink import FLINK_VERSION, Flink
from penstock.bench.machine import facts
from penstock.bench.spark_figures import Figures
from penstock.bench.steps import Steps
from penstock.bench.views.auctions import Auctions
from penstock.bench.views.contenders import Contender, FlinkSql, Native, Ours
from penstock.bench.views.one_change import KINDS, SIZES, milliseconds
from penstock.bench.views.queries import ALL, AUCTIONS, SALES, TWEETS
from penstock.bench.views.report import ViewsReport
from penstock.bench.views.stored import Stored, Tables
from penstock.bench.views.truth import check
from penstock.bench.views.tweets import Tweets
from penstock.clock import instant_text, now_ms
from penstock.streams.spark.session import open_session

FULL: dict[str, Tables] = {
    AUCTIONS: Auctions(slices=4, rounds=15_000),
    SALES: Auctions(slices=4, rounds=187_500, bids=False),
    TWEETS: Tweets(slices=4, tweets=50_000, users=10_000, followed=20),
}
# Too little to measure anything, enough for windows to end and lists to be full.
SMALL: dict[str, Tables] = {
    AUCTIONS: Auctions(slices=4, rounds=1_000),
    SALES: Auctions(slices=4, rounds=2_000, bids=False),
    TWEETS: Tweets(slices=4, tweets=1_000, users=100, followed=10),
}


def run(*, repeats: int, quick: bool, output: Path) -> None:
    """Checks the answers, measures, prints a table and writes a report to `output` as Markdown.

    A quick run shows that everything works; its figures mean nothing. Raises PenstockError when
    Flink is missing, or somebody's answer is wrong.
    """
    machine = facts() | {"Spark": pyspark.__version__, "Flink": FLINK_VERSION}
    date = instant_text(now_ms())
    command = f"penstock bench views --repeats {repeats}{' --quick' if quick else ''}"
    session = open_session(
        "penstock bench", settings={"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    )
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, Flink() as flink:
            figures = measure(repeats, SMALL if quick else FULL, session, flink, Path(folder))
        changed = measure_changes(session, SIZES[:2] if quick else SIZES)
    finally:
        session.stop()
    report = ViewsReport(figures, command, date, machine, quick, changed)
    report.publish(output)


def measure(
    repeats: int, given: dict[str, Tables], session: SparkSession, flink: Flink, folder: Path
) -> Figures:
    """One value for each question, contender and repeat."""
    figures = Figures()
    contenders: tuple[Contender, ...] = Ours(session), Native(session), FlinkSql(session, flink)
    turns = [(asked, each) for asked in ALL for each in contenders if each.can(asked)]
    with Steps(2 * len(given) + len(turns) * (1 + repeats)) as steps:
        small = {name: Stored(each, folder / "small" / name) for name, each in SMALL.items()}
        large = {name: Stored(each, folder / "large" / name) for name, each in given.items()}
        for stored in (*small.values(), *large.values()):
            steps.begin("tables")
            stored.write()
            rows = stored.rows(*stored.tables.schemas)
            steps.end(f"{', '.join(stored.tables.schemas)}: {rows:,} rows")
        for asked, each in turns:
            steps.begin(f"answers: {asked.row.what}, {each.name}")
            check(each, asked, small[asked.given])
            steps.end("right")
        for repeat in range(repeats):
            for asked, each in turns if repeat % 2 else reversed(turns):
                steps.begin(f"{repeat + 1} of {repeats}: {asked.row.what}, {each.name}")
                stored = large[asked.given]
                took = each.milliseconds(asked, stored)
                value = stored.rows(*asked.tables) * 1_000 / took
                figures.add(asked.row, each.name, value)
                steps.end(f"{asked.row.short(value)} {asked.row.unit}")
    return figures


def measure_changes(
    session: SparkSession, sizes: tuple[int, ...]
) -> dict[tuple[str, int], list[int]]:
    """Milliseconds of each batch with one changed row, by the kind of view and its rows."""
    found: dict[tuple[str, int], list[int]] = {}
    with Steps(len(sizes) * len(KINDS)) as steps:
        for size in sizes:
            for kind in KINDS:
                steps.begin(f"one change: {kind}, {size:,} rows")
                found[kind, size] = milliseconds(session, kind, size)
                steps.end(f"{median(found[kind, size]):.0f} ms")
    return found
