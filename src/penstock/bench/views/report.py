"""Views beside those of Spark alone and of Flink, for people."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from penstock.bench.beside import Beside
from penstock.bench.flink import FLINK
from penstock.bench.sheet import markdown_table
from penstock.bench.spark_figures import NATIVE, PENSTOCK, Goal
from penstock.bench.views.figures import CONTENDERS, Changed, goals
from penstock.bench.views.queries import ALL

_METHOD = f"""\
- Tables in Parquet. `person`, `auction` and `bid` are in the proportions of Nexmark, 1:3:46, ten
  events a millisecond, with its hot sellers, bidders and auctions; `profile` has one change of a
  bidder for every 46 bids. Interval and temporal join, q4, q9 and q20 have 2,760,000 bids and
  180,000 auctions or 60,000 changes of profiles, q3 and q8 750,000 people and 2,250,000 auctions.
  200,000 tweets of 10,000 users, each of whom follows 20 others: 4,000,000 rows of timelines.
- Four slices of the same time in two files a table; where results wait for the clock, in the
  temporal join of {PENSTOCK} and in q8 of {NATIVE}, two batches of a few rows an hour later follow,
  to pass it. {PENSTOCK} and {NATIVE} read one slice of each table a batch, by `ps.parquet` and by
  `readStream.parquet`; {FLINK} reads files in any order: it has the same rows in two files a table,
  one for each of its two readers. All wait 4 seconds for late rows.
- q3, q4, q8, q9 and q20 are Nexmark's, with columns named for what they hold; of equal bids q9
  takes that of the bidder with the lower number, and q4 gives a mean with its fraction. The
  queries of {PENSTOCK} are SQL views, but for the two joins, which are `ps.join` and `ps.enrich`.
  The timelines are those of `array_agg` as rows, the newest 100 of each user, since {FLINK} has no
  `array_agg` with an order.
- {NATIVE} has no temporal join of streams, and behind a join neither groups that are taken back nor
  their first rows.
- Before anything is measured, every contender answers every question about small tables into
  files; after all that was taken back, there has to be what Spark finds in all rows at once.
  It also warms them up.
- Rows a second of both tables together, from the first batch to the last. Of {PENSTOCK} and
  {NATIVE} the time is the sum of `batchDuration`, as Spark reports it; that of {FLINK} is the
  runtime of the job as Flink reports it, without planning and without the start of its cluster.
  Results go nowhere.
- {FLINK}: streaming mode, state in memory (`hashmap`), no checkpoints, objects reused, as many
  slots as cores, mini-batches of 50,000 rows or 2 seconds, in one warm process. {PENSTOCK} and
  {NATIVE} make every batch durable. One Spark session for both, with penstock's settings; the state
  of {NATIVE} is in memory and in files, as it is unless asked otherwise. For each repeat and row
  the contenders take turns, in an order that changes.
- One changed row: a table of orders is loaded in ten batches, then one order has another amount in
  each of 20 more; the milliseconds are Spark's whole batch, of the last 15.
"""


@dataclass(frozen=True)
class ViewsReport(Beside):
    changed: Changed

    title = "Views"
    method = _METHOD
    contenders = CONTENDERS
    rows = tuple(asked.row for asked in ALL)

    def _goals(self) -> Iterable[Goal]:
        return goals(self.figures, self.changed)

    def sections(self) -> Iterable[str]:
        kinds = tuple(dict.fromkeys(kind for kind, _ in self.changed))
        sizes = dict.fromkeys(size for _, size in self.changed)
        yield "## One changed row"
        yield "Milliseconds of a batch, by the rows that there are, median (lowest to highest):"
        yield markdown_table(
            ("rows", *kinds),
            [
                (f"{size:,}", *(_range(self.changed[kind, size]) for kind in kinds))
                for size in sizes
            ],
        )


def _range(took: list[int]) -> str:
    return f"{median(took):.0f} ({min(took)}-{max(took)})"
