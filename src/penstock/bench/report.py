"""A run's figures for people: a table on the terminal, and a Markdown file with every value."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from penstock.bench.contenders import CONTENDERS, KAFKA, KAFKA_FSYNC, PENSTOCK
from penstock.bench.figures import GOALS, ROWS, Figures, Goal, Row

_METHOD = f"""\
- The three servers run at the same time on the same machine, and those not measured are idle. For
  each repeat and each workload they take turns, in an order that changes with every repeat. Before
  the first repeat each gets every workload once, so that Java has compiled what it will.
- {PENSTOCK} syncs with `fdatasync` before every acknowledgement, its default. {KAFKA} does not
  sync, its default; {KAFKA_FSYNC} has `log.flush.interval.messages=1`. Kafka's heap is 1 GB.
- Every measurement is a new client process, on a new topic with 4 partitions that is deleted
  afterwards. Before it begins, all that earlier ones left to write is on the disk (`sync`).
- Throughput: `produce_batch` of 10,000 records, `acks=all`, `linger.ms=5`, no compression; then
  `consume(10000)` of the same records with `fetch.queue.backoff.ms=5`, `fetch.wait.max.ms=10` and
  `queued.min.messages=1000000`. 1 KB is 1,024 bytes, 1 MB a million.
- Sync produce: 100 B, one record in flight, `linger.ms=0`. End to end: 100 B, 1,000 records a
  second, `linger.ms=0`, one client that produces and consumes.
- Start-up: from the start of the process on an empty folder to the first answer to a Metadata
  request. Memory: as the kernel counts it, after start, after all workloads of a repeat, and the
  highest it had ever been by then.
"""
QUICK = "A quick run: it shows that everything works, and measures nothing."
_HEADS = ("median (lowest to highest)", *CONTENDERS, "to Kafka", "to fsync")


@dataclass(frozen=True)
class Report:
    figures: Figures
    command: str
    date: str
    machine: dict[str, str]
    quick: bool

    def show(self) -> None:
        """Prints the medians, their ranges and ratios, and the goals to standard output."""
        out = Console(highlight=False)
        if not out.is_terminal:
            out.width = 200  # a pipe has no edge at which to fold
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column(no_wrap=True)
        for head in _HEADS[1:]:
            table.add_column(head, justify="right")
        for line in self._medians():
            table.add_row(*line)
        out.print(table)
        for text, measured, verdict in self._goals():
            style = "green" if verdict == "met" else "red"
            out.print(f"[{style}]{verdict:6}[/] {text}: {measured}")
        if self.quick:
            out.print(QUICK)

    def markdown(self) -> str:
        parts = (
            "# The log beside Apache Kafka",
            f"{self.date}, by `{self.command}`.",
            *([f"**{QUICK}**"] if self.quick else []),
            markdown_table(_HEADS, self._medians()),
            "## Goals",
            markdown_table(("goal", "measured", ""), self._goals()),
            "## Measured with",
            markdown_table(("", ""), self.machine.items()),
            "## How",
            _METHOD.rstrip(),
            "## Every value, in the order measured",
            markdown_table(("", *CONTENDERS), self._values()),
        )
        return "\n\n".join(parts) + "\n"

    def _medians(self) -> Iterable[Sequence[str]]:
        for row in ROWS:
            ratios = (f"{self.figures.ratio(row, other):.2f}x" for other in (KAFKA, KAFKA_FSYNC))
            yield (row.title, *(self._median(row, name) for name in CONTENDERS), *ratios)

    def _median(self, row: Row, contender: str) -> str:
        low, high = self.figures.range(row, contender)
        median = self.figures.median(row, contender)
        return f"{row.short(median)} ({row.short(low)}-{row.short(high)})"

    def _goals(self) -> Iterable[Sequence[str]]:
        for goal in GOALS:
            measured = _measured(goal, goal.measured(self.figures))
            yield goal.text, measured, "met" if goal.met(self.figures) else "missed"

    def _values(self) -> Iterable[Sequence[str]]:
        for row, by_contender in self.figures.values.items():
            values = (by_contender[name] for name in CONTENDERS)
            yield row.title, *(", ".join(map(_precise, each)) for each in values)


def _measured(goal: Goal, value: float) -> str:
    return f"{value:.2f}x" if goal.against else f"{goal.row.short(value)} {goal.row.unit}"


def _precise(value: float) -> str:
    return f"{value:.0f}" if value >= 1_000 else f"{value:.4g}"


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    ruled = (heads, ["---"] * len(heads), *lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)
