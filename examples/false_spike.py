"""Why rates go by event time: a processor stops for a minute, and works off its backlog.

    python examples/false_spike.py                       a few minutes
    python examples/false_spike.py --stopped 10          sooner
    python examples/false_spike.py --picture spike.png   where to draw it

Requests come in at a steady pace. An app counts them twice: by when they happened, and by when they
are processed. Half way it is stopped for a while and started again. By processing time there is a
spike that never was; by event time nothing can be seen of it.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import click
from pyspark.sql import DataFrame
from rich.console import Console

import penstock as ps
from penstock import clock
from penstock.log import Log
from penstock.runtime.status import AppStatus
from penstock.testing import wait_until

PACE = 200  # requests a second
ABLE = 4 * PACE  # what the app can process
WITHIN = 240.0  # seconds that anything may take, on a machine that has other things to do
EVENT_TIME, PROCESSING_TIME = "by_event_time", "by_processing_time"
BLUE, RED, GREY = "#2563a8", "#c0392b", "#8a8f98"

app = ps.App("spike", data=os.environ.get("SPIKE_DATA", "penstock-data"))
app.stream(
    "requests",
    "at timestamp",
    event_time=ps.EventTime("at", wait="1s"),
    partitions=2,
    rate=ABLE,
)


@app.derive(EVENT_TIME, key="window")
def by_event_time(requests: DataFrame) -> DataFrame:
    return ps.rate(requests, ps.tumbling("2s"))


@app.derive(PROCESSING_TIME, key="window")
def by_processing_time(requests: DataFrame) -> DataFrame:
    return ps.rate(ps.at_processing_time(requests), ps.tumbling("2s"))


Rates = dict[datetime, float]


class Visitors:
    """Send requests at the same pace all the time."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(WITHIN)

    def _run(self) -> None:
        next_ms = clock.now_ms()
        while not self._done.is_set():
            due = range(next_ms, clock.now_ms(), 1_000 // PACE)
            records = [ps.Record(value=json.dumps({"at": at}).encode()) for at in due]
            if records:
                self._log.append("requests", records)
                next_ms = due[-1] + due.step
            self._done.wait(0.05)


class Processor:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._output = (folder / "processor.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "run", __file__],
            env=os.environ | {"SPIKE_DATA": str(self._folder / "data")},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(WITHIN)

    def runs(self) -> bool:
        status = AppStatus.read(self._folder / "data" / "apps" / "spike")
        return status is not None and all(node.state == "waiting" for node in status.nodes)

    def close(self) -> None:
        self.stop()
        self._output.close()


def rates(log: Log, topic: str, since: float = 0.0) -> Rates:
    """The newest result of each window, whole ones only: without the first and the last."""
    if topic not in log.topics():
        return {}
    found: Rates = {}
    for number in range(len(log.describe(topic).partitions)):
        for record in log.read(topic, number, 0):
            if record.value is not None:
                row = json.loads(record.value)
                found[datetime.fromisoformat(row["window"]["start"])] = row["rate"]
    whole = sorted(found)[1:-1]
    return {start: found[start] for start in whole if start.timestamp() >= since}


def play(
    console: Console, log: Log, processor: Processor, visitors: Visitors, seconds: int
) -> tuple[float, float]:
    """When it went its way, and when the processor was stopped, in seconds since 1970."""

    def steady(since: float) -> bool:
        """Whether the last windows have the pace again."""
        found = rates(log, PROCESSING_TIME)
        last = [found[start] for start in sorted(found) if start.timestamp() > since][-4:]
        return len(last) == 4 and max(last) < 2 * PACE

    console.print("Spark starts")
    wait_until(processor.runs, within=WITHIN, what="the app to run")
    console.print(f"requests come in, {PACE} a second, and the app counts them")
    visitors.start()
    wait_until(lambda: steady(0), within=WITHIN, what="the app to count")
    began = clock.now_ms() / 1_000
    clock.sleep(min(10, seconds))
    processor.stop()
    stopped = clock.now_ms() / 1_000
    console.print(f"it is stopped; for {seconds} seconds requests gather that nobody counts")
    clock.sleep(seconds)
    processor.start()
    console.print(f"it is started again, and works them off at up to {ABLE} a second")
    wait_until(lambda: steady(stopped + seconds), within=WITHIN, what="the backlog to be gone")
    return began, stopped


def draw(found: dict[str, Rates], stopped: float, picture: Path) -> None:
    """Both rates beside each other, with the same axes."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("agg")
    begin = min(start.timestamp() for series in found.values() for start in series)
    again = min(t for each in found[PROCESSING_TIME] if (t := each.timestamp()) > stopped)
    fig, sides = plt.subplots(1, 2, figsize=(11, 4), sharex=True, sharey=True, dpi=140)
    titles = {
        PROCESSING_TIME: ("By processing time: a spike that never was", RED),
        EVENT_TIME: ("By event time: nothing happened", BLUE),
    }
    for side, (name, (title, colour)) in zip(sides, titles.items(), strict=True):
        rates_at = {start.timestamp(): rate for start, rate in found[name].items()}
        starts = range(round(min(rates_at)), round(max(rates_at)) + 1, 2)
        seconds = [start - begin for start in starts]
        heights = [rates_at.get(start, 0.0) for start in starts]
        side.axvspan(stopped - begin, again - begin, color=GREY, alpha=0.15, lw=0)
        side.text(
            (stopped + again) / 2 - begin, 0.94, "stopped", transform=side.get_xaxis_transform(),
            ha="center", color=GREY, fontsize=9,
        )  # fmt: skip
        side.step(seconds, heights, where="post", color=colour, lw=1.6)
        side.fill_between(seconds, heights, step="post", color=colour, alpha=0.12, lw=0)
        side.set_title(title, fontsize=11, loc="left", color=colour, weight="bold")
        side.set_xlabel("seconds")
        side.set_ylim(bottom=0)
        side.grid(axis="y", alpha=0.25)
        side.spines[["top", "right"]].set_visible(False)
    sides[0].set_ylabel("requests a second")
    fig.tight_layout()
    fig.savefig(picture)
    plt.close(fig)


@click.command()
@click.option("--stopped", default=60, show_default=True, help="For how many seconds.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("false_spike.png"),
    show_default=True,
)
def main(stopped: int, picture: Path) -> None:
    """A false spike, and how event time does without it."""
    if find_spec("matplotlib") is None:
        raise click.ClickException("the picture is drawn by matplotlib: pip install matplotlib")
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="penstock-spike-") as name:
        folder = Path(name)
        with Log.open(folder / "data") as log:
            log.create("requests", partitions=2)
            log.serve()  # type: ignore[attr-defined]
            visitors, processor = Visitors(log), Processor(folder)
            try:
                began, stop = play(console, log, processor, visitors, stopped)
            finally:
                visitors.stop()
                processor.close()
            found = {each: rates(log, each, began) for each in (PROCESSING_TIME, EVENT_TIME)}
    draw(found, stop, picture)
    spike, steady = max(found[PROCESSING_TIME].values()), found[EVENT_TIME].values()
    console.print(
        f"by processing time: up to {spike:,.0f} a second, {spike / PACE:.1f} times the pace"
    )
    console.print(f"by event time: from {min(steady):,.0f} to {max(steady):,.0f} a second")
    console.print(f"drawn to {picture}")


if __name__ == "__main__":
    main()
