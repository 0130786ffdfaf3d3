"""Windows beside those of Spark alone and of Flink, for people."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.bench.beside import Beside
from penstock.bench.flink import FLINK
from penstock.bench.sheet import markdown_table
from penstock.bench.spark_figures import NATIVE, PENSTOCK, Goal
from penstock.bench.windows.figures import CONTENDERS, FROM_LOG, goals
from penstock.bench.windows.queries import ALL
from penstock.bench.windows.state import Kept

_METHOD = f"""\
- 4,000,000 events of 10,000 keys and 100 shops in Parquet, one a millisecond, each up to 3 s late:
  two files side by side for each 1,000,000, then a few rows an hour later that end all windows.
  {PENSTOCK} and {NATIVE} read two files a batch, by `ps.parquet` and by `readStream.parquet`.
  {FLINK} reads files in any order, and would drop what then seems late: it has the same rows in two
  files, one for each of its two readers. {FROM_LOG} reads them as JSON from a topic of 4
  partitions, 1,000,000 a batch.
- Windows: tumbling 1 minute; hopping 10 minutes by 1 minute; the mean of the last 5 minutes at each
  row; sessions with a gap of 30 seconds; all wait 10 seconds for late rows, and give a result once.
  {FLINK} has window functions, and for the mean `OVER (... RANGE BETWEEN ... PRECEDING AND CURRENT
  ROW)`; {NATIVE} has no such thing for streams.
- The percentile is exact: `PERCENTILE` of {FLINK} and `percentile` of {NATIVE} interpolate between
  two values, that of {PENSTOCK} is one of the values, as `percentile_disc` is in SQL.
- Before anything is measured, every contender answers every question about a small set of such
  events into files, which have to be what Polars finds in all rows at once. It also warms them up.
- All rows count, from the first batch to the end of the last window. Of {PENSTOCK} and {NATIVE} the
  time is the sum of `batchDuration`, as Spark reports it; that of {FLINK} is the runtime of the job
  as Flink reports it, without planning and without the start of its cluster. Results go nowhere.
- {FLINK}: streaming mode, state in memory (`hashmap`), no checkpoints, objects reused, as many
  slots as cores, in one warm process; mini-batches are on, as always in its window functions.
  {PENSTOCK} and {NATIVE} make every batch durable. One Spark session for both, with penstock's
  settings; the state of {NATIVE} is in memory and in files, as it is unless asked otherwise.
  For each repeat and row the contenders take turns, in an order that changes.
"""


@dataclass(frozen=True)
class WindowsReport(Beside):
    kept: Kept
    overlapping: dict[int, int]

    title = "Windows"
    method = _METHOD
    contenders = CONTENDERS
    rows = tuple(asked.row for asked in ALL)

    def _goals(self) -> Iterable[Goal]:
        return goals(self.figures)

    def sections(self) -> Iterable[str]:
        kept = self.kept
        yield "## What is kept"
        yield (
            f"{kept.keys:,} keys with an open session each, a count and a mean: {kept.warm:.0f} "
            f"bytes a key in memory, with the index and the room set aside to grow, and "
            f"{kept.durable:.0f} on disk, in {kept.buckets} buckets. One event each of 100,000 "
            "keys in hopping windows:"
        )
        lines = ((str(n), f"{rows:,}") for n, rows in self.overlapping.items())
        yield markdown_table(("windows that an event is in", "rows of state"), lines)
