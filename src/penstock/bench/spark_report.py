"""Apps beside Spark alone, for people."""

from statistics import median

from penstock.bench.figures import Row
from penstock.bench.sheet import Lines, Sheet
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
  With few keys a batch is summed up before it travels; with 10,000,000 nearly every row is another
  key, and a batch of a million rows changes 950,000 of them: 1.9 million changes come out, which
  takes Spark 0.16 s of the 0.85 s, the kernel and its state 0.3 s on two cores. Rows in the order
  of the index made the kernel 7 % faster, larger batches on the way out made no difference.
- Last row of each key: rows of seven columns, three of them texts, of about 150 bytes, 100,000
  keys, batches of 500,000. {NATIVE} is `max_by` of the row on penstock's source.
- Batch of 100 rows: nodes of an app with event time, from topic to topic, one with an aggregation,
  one with a filter. Each value is the median of one start's batches.
"""


class SparkReport(Sheet[Figures]):
    title = "Spark on the log"
    method = _METHOD
    contenders = (PENSTOCK, NATIVE)
    ratios = ("ratio",)

    def medians(self) -> Lines:
        for row in ROWS:
            ratio = f"{self.figures.ratio(row):.2f}x" if row in BESIDE else ""
            yield row.title, *(self._median(row, name) for name in self.contenders), ratio

    def _median(self, row: Row, contender: str) -> str:
        values = self.figures.of(row, contender)
        if not values:
            return ""
        low, high = row.short(min(values)), row.short(max(values))
        return f"{row.short(median(values))} ({low}-{high})"

    def goals(self) -> Lines:
        for goal in goals(self.figures):
            yield goal.text, goal.measured, "met" if goal.met else "missed"

    def values(self) -> Lines:
        for row in ROWS:
            values = (self.figures.of(row, name) for name in self.contenders)
            yield row.title, *(", ".join(f"{each:.0f}" for each in some) for some in values)
