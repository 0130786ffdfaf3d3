"""What apps with many views cost, beside an older version and Flink, for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from penstock.bench.apps.cases import Case
from penstock.bench.apps.figures import BEFORE, goals, rows
from penstock.bench.figures import Row
from penstock.bench.flink import FLINK
from penstock.bench.sheet import Lines, Sheet
from penstock.bench.spark_figures import PENSTOCK, Figures

_METHOD = f"""\
- Views over one stream of orders with 2 partitions. Alike: the sum of a customer's amounts plus
  another number in every view, and the highest id; equal operators can be shared. Different: no two
  views read the same rows, since each has another filter, and they take turns at sums, means,
  minima, maxima, counts and distinct counts by customer, shop, item or both, a join with a table of
  1,000 customers, a top-10, and a tumbling window of one minute. A chain: the sums, then views that
  add 1 to the total of the view before.
- Each app is a `penstock run` of its own, in a new folder, ended by its process id at the end.
  All that was running with it has to be gone then. A client in a process of its own, with the
  version of penstock that the app has, appends orders and looks at the last view with
  `app.views[...].get`, as often as a quarter of a core allows.
- First result: from the start of `penstock run` on an empty folder until an order is visible in the
  last view that was appended as soon as the topic was there.
- Idle: processor time of all processes, the server of the log included, over 10 s, in which nothing
  is appended. It begins 5 s after the first result.
- Append to visible: one order every 200 to 300 ms after the last was seen; from before the append
  until it is visible in the last view. Of a few dozen orders a repeat, the p99 is nearly the
  slowest.
- Processes and memory: of all, the server of the log included, after that. Memory is PSS: pages
  that processes share count once.
- Backlog: all processes but the server of the log are stopped (SIGSTOP) while the orders are
  appended, and go on when they are there, so that the app is warm, and neither its start nor the
  producer is measured. From then on until `app.views.wait` says that every view has all orders.
  Then the last view has to hold exactly the totals that follow from the orders.
- Next result after kill -9: the driver is killed after that, all but the server of the log ends,
  and `penstock run` is started again; from then until an order is visible that is appended at once.
- {FLINK}: all views as one statement set, so one job that may share what they have in common, over
  the same orders in Parquet, results go nowhere. Settings are those of the other benchmarks: state
  in memory, no checkpoints, mini-batches. First result: from the start of a process to the end of a
  job over one order. Backlog: the runtime of the job as Flink reports it, without planning, in the
  second run of the same process. Its sources are files here, which nothing is appended to, and its
  sinks cannot be looked at: so there is no time to visible, no idle app and nothing to kill, and
  the memory of a process with Java's heap as it comes would say little.
- For each repeat the contenders take turns, in an order that changes. Before the first, each
  version of penstock runs up to ten different views once, so that all is compiled that will be.
"""


@dataclass(frozen=True)
class AppsReport(Sheet[Figures]):
    cases: Sequence[Case]
    notes: Sequence[str]
    """What did not run to its end, and why."""

    title = "Apps with many views"
    method = _METHOD
    contenders: ClassVar[Sequence[str]] = (PENSTOCK, FLINK)
    ratios: ClassVar[Sequence[str]] = (f"to {FLINK}",)

    def medians(self) -> Lines:
        for row in rows(self.cases):
            ratios = (self._ratio(row, name) for name in self.contenders[:0:-1])
            yield row.title, *(self._median(row, name) for name in self.contenders), *ratios

    def _median(self, row: Row, contender: str) -> str:
        values = self.figures.of(row, contender)
        if not values:
            return ""
        low, high = row.short(min(values)), row.short(max(values))
        return f"{row.short(median(values))} ({low}-{high})"

    def _ratio(self, row: Row, other: str) -> str:
        values, others = self.figures.of(row), self.figures.of(row, other)
        return f"{median(values) / median(others):.2f}x" if values and any(others) else ""

    def goals(self) -> Lines:
        for goal in goals(self.figures, self.cases):
            yield goal.text, goal.measured, "met" if goal.met else "missed"

    def values(self) -> Lines:
        for row in rows(self.cases):
            values = (self.figures.of(row, name) for name in self.contenders)
            yield row.title, *(", ".join(f"{each:.4g}" for each in some) for some in values)

    def sections(self) -> Iterable[str]:
        if self.notes:
            yield "## What did not run to its end"
            yield "\n".join(f"- {note}" for note in self.notes)


@dataclass(frozen=True)
class BeforeReport(AppsReport):
    """With the version before."""

    contenders = (PENSTOCK, BEFORE, FLINK)
    ratios = (f"to {FLINK}", "to before")
