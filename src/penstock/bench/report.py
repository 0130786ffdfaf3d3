"""The log beside Apache Kafka, for people."""

from penstock.bench.contenders import CONTENDERS, KAFKA, KAFKA_FSYNC, PENSTOCK
from penstock.bench.figures import GOALS, ROWS, Figures, Goal, Row
from penstock.bench.sheet import Lines, Sheet

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


class Report(Sheet[Figures]):
    title = "The log beside Apache Kafka"
    method = _METHOD
    contenders = tuple(CONTENDERS)
    ratios = ("to Kafka", "to fsync")

    def medians(self) -> Lines:
        for row in ROWS:
            ratios = (f"{self.figures.ratio(row, other):.2f}x" for other in (KAFKA, KAFKA_FSYNC))
            yield (row.title, *(self._median(row, name) for name in CONTENDERS), *ratios)

    def _median(self, row: Row, contender: str) -> str:
        low, high = self.figures.range(row, contender)
        median = self.figures.median(row, contender)
        return f"{row.short(median)} ({row.short(low)}-{row.short(high)})"

    def goals(self) -> Lines:
        for goal in GOALS:
            measured = _measured(goal, goal.measured(self.figures))
            yield goal.text, measured, "met" if goal.met(self.figures) else "missed"

    def values(self) -> Lines:
        for row, by_contender in self.figures.values.items():
            values = (by_contender[name] for name in CONTENDERS)
            yield row.title, *(", ".join(map(_precise, each)) for each in values)


def _measured(goal: Goal, value: float) -> str:
    return f"{value:.2f}x" if goal.against else f"{goal.row.short(value)} {goal.row.unit}"


def _precise(value: float) -> str:
    return f"{value:.0f}" if value >= 1_000 else f"{value:.4g}"
