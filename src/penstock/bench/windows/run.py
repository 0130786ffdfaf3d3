"""Windows of penstock, of Spark alone and of Flink, on the same events, taking turns."""

import tempfile
from pathlib import Path

import pyspark

from penstock.bench.flink import FLINK_VERSION, Flink
from penstock.bench.machine import facts
from penstock.bench.spark_figures import Figures
from penstock.bench.steps import Steps
from penstock.bench.windows import state
from penstock.bench.windows.contenders import Contender, FlinkSql, FromLog, Native, Ours, Stored
from penstock.bench.windows.events import Events
from penstock.bench.windows.queries import ALL, Asked
from penstock.bench.windows.report import WindowsReport
from penstock.bench.windows.truth import check
from penstock.clock import instant_text, now_ms
from penstock.streams.spark.session import open_session
from penstock.streams.spark.source import register

FULL = Events(slices=4, slice_rows=1_000_000, keys=10_000, shops=100)
# Ten minutes, so that every kind of window ends; too little to measure anything.
SMALL = Events(slices=4, slice_rows=15_000, keys=1_000, shops=10, apart=10)


def run(*, repeats: int, quick: bool, output: Path) -> None:
    """Checks the answers, measures, prints a table and writes a report to `output` as Markdown.

    A quick run shows that everything works; its figures mean nothing. Raises PenstockError when
    Flink is missing, or somebody's answer is wrong.
    """
    machine = facts() | {"Spark": pyspark.__version__, "Flink": FLINK_VERSION}
    date = instant_text(now_ms())
    command = f"penstock bench windows --repeats {repeats}{' --quick' if quick else ''}"
    kept = state.sessions(10_000 if quick else 10_000_000)
    overlapping = {each: state.hopping(each, 100_000) for each in state.OVERLAPS}
    figures = measure(repeats, SMALL if quick else FULL)
    report = WindowsReport(figures, command, date, machine, quick, kept, overlapping)
    report.publish(output)


def measure(repeats: int, events: Events) -> Figures:
    """One value for each question, contender and repeat."""
    figures = Figures()
    session = open_session(
        "penstock bench", settings={"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    )
    register(session)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
            Flink() as flink,
        ):
            contenders = Ours(session), FromLog(session), Native(session), FlinkSql(flink)
            _measure(figures, repeats, events, contenders, Path(folder))
    finally:
        session.stop()
    return figures


def _measure(
    figures: Figures, repeats: int, events: Events, contenders: tuple[Contender, ...], folder: Path
) -> None:
    turns = [(asked, each) for asked in ALL for each in contenders if each.can(asked)]
    with Steps(2 + len(turns) * (1 + repeats)) as steps:
        small, large = Stored(SMALL, folder / "small"), Stored(events, folder / "large")
        for stored in (small, large):
            steps.begin("events")
            stored.write()
            steps.end(f"{stored.events.rows:,} rows")
        for asked, each in turns:
            steps.begin(f"answers: {asked.row.what}, {each.name}")
            _check(asked, each, small)
            steps.end("right")
        for repeat in range(repeats):
            for asked, each in turns if repeat % 2 else reversed(turns):
                steps.begin(f"{repeat + 1} of {repeats}: {asked.row.what}, {each.name}")
                value = events.rows * 1_000 / each.milliseconds(asked, large)
                figures.add(asked.row, each.name, value)
                steps.end(f"{asked.row.short(value)} {asked.row.unit}")


def _check(asked: Asked, contender: Contender, stored: Stored) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        into = Path(folder) / "results"
        contender.milliseconds(asked, stored, into)
        check(contender.name, asked, into, stored.events, interpolated=contender.interpolates)
