"""A run of Spark for people: a table on the terminal, and a Markdown file with every value."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from penstock.bench.figures import Row
from penstock.bench.report import QUICK, markdown_table
from penstock.bench.spark_figures import BESIDE, NATIVE, PENSTOCK, ROWS, Figures, goals

_METHOD = f"""\
- One Spark session for all, on all cores, with penstock's settings; state of {NATIVE} in RocksDB
  with its changelog on, as many shuffle partitions as cores. For each repeat and each row of the
  table the contenders take turns, in an order that changes with every repeat.
- Every measurement is a new query over a whole topic of 4 partitions, with `availableNow`, into
  `noop`. Its first batches are not counted: the first of all, and those that bring the keys. What
  is counted is `batchDuration`, as Spark reports it.
- JSON to six typed columns: rows of about 120 bytes, batches of 1,000,000. {PENSTOCK} reads its own
  log; {NATIVE} reads the same rows from Apache Kafka by its connector, and parses by `from_json`.
- Count and sum: rows of two numbers, batches of 1,000,000, every key there before the counting
  begins. {NATIVE} is `groupBy("key").agg(count, sum)` on penstock's source.
- Last row of each key: rows of seven columns, three of them texts, of about 150 bytes, 100,000
  keys, batches of 500,000. {NATIVE} is `max_by` of the row on penstock's source.
- Batch of 100 rows: nodes of an app with event time, from topic to topic, one with an aggregation,
  one with a filter. Each value is the median of one start's batches.
"""
_HEADS = ("median (lowest to highest)", PENSTOCK, NATIVE, "ratio")


@dataclass(frozen=True)
class SparkReport:
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
        for goal in goals(self.figures):
            verdict = "[green]met   [/]" if goal.met else "[red]missed[/]"
            out.print(f"{verdict} {goal.text}: {goal.measured}")
        if self.quick:
            out.print(QUICK)

    def markdown(self) -> str:
        verdicts = (
            (goal.text, goal.measured, "met" if goal.met else "missed")
            for goal in goals(self.figures)
        )
        parts = (
            "# Spark on the log",
            f"{self.date}, by `{self.command}`.",
            *([f"**{QUICK}**"] if self.quick else []),
            markdown_table(_HEADS, self._medians()),
            "## Goals",
            markdown_table(("goal", "measured", ""), verdicts),
            "## Measured with",
            markdown_table(("", ""), self.machine.items()),
            "## How",
            _METHOD.rstrip(),
            "## Every value, in the order measured",
            markdown_table(("", PENSTOCK, NATIVE), self._values()),
        )
        return "\n\n".join(parts) + "\n"

    def _medians(self) -> Iterable[Sequence[str]]:
        for row in ROWS:
            cells = (self._median(row, contender) for contender in (PENSTOCK, NATIVE))
            ratio = f"{self.figures.ratio(row):.2f}x" if row in BESIDE else ""
            yield row.title, *cells, ratio

    def _median(self, row: Row, contender: str) -> str:
        values = self.figures.of(row, contender)
        if not values:
            return ""
        low, high = row.short(min(values)), row.short(max(values))
        return f"{row.short(median(values))} ({low}-{high})"

    def _values(self) -> Iterable[Sequence[str]]:
        for row in ROWS:
            values = (self.figures.of(row, contender) for contender in (PENSTOCK, NATIVE))
            yield row.title, *(", ".join(f"{each:.0f}" for each in some) for some in values)
