"""The figures of a run: every value by row and contender, and the goals they are held against."""

from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from penstock.bench.contenders import KAFKA, KAFKA_FSYNC, PENSTOCK


class Row(NamedTuple):
    what: str
    unit: str

    @property
    def title(self) -> str:
        return f"{self.what}, {self.unit}"

    def short(self, value: float) -> str:
        """A value for people, in about three digits, without its unit."""
        if self.unit == "records/s":
            return f"{value / 1_000:.0f}k"
        return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


PRODUCE_1K = Row("produce 1 KB", "MB/s")
CONSUME_1K = Row("consume 1 KB", "MB/s")
CONSUME_100 = Row("consume 100 B", "MB/s")
SYNC_P50 = Row("sync produce p50", "ms")
START_UP = Row("start-up", "s")
AFTER_START = Row("resident after start", "MB")
AFTER_LOAD = Row("resident after load", "MB")
PEAK = Row("resident at its peak", "MB")

ROWS = (
    PRODUCE_1K,
    Row("produce 1 KB", "records/s"),
    CONSUME_1K,
    Row("consume 1 KB", "records/s"),
    Row("produce 100 B", "MB/s"),
    Row("produce 100 B", "records/s"),
    CONSUME_100,
    Row("consume 100 B", "records/s"),
    SYNC_P50,
    Row("sync produce p99", "ms"),
    Row("end to end p50", "ms"),
    Row("end to end p99", "ms"),
    START_UP,
    AFTER_START,
    AFTER_LOAD,
    PEAK,
)


@dataclass
class Figures:
    """Values in the order in which they were measured."""

    values: dict[Row, dict[str, list[float]]] = field(
        default_factory=lambda: {row: {} for row in ROWS}
    )

    def add(self, contender: str, measured: dict[Row, float]) -> None:
        for row, value in measured.items():
            self.values[row].setdefault(contender, []).append(value)

    def median(self, row: Row, contender: str) -> float:
        return median(self.values[row][contender])

    def range(self, row: Row, contender: str) -> tuple[float, float]:
        values = self.values[row][contender]
        return min(values), max(values)

    def ratio(self, row: Row, other: str) -> float:
        """The log's median to another contender's."""
        return self.median(row, PENSTOCK) / self.median(row, other)


@dataclass(frozen=True)
class Goal:
    row: Row
    limit: float
    against: str = ""
    """Whose median the limit is a multiple of; none for a limit in the row's own unit."""
    at_least: bool = False

    @property
    def text(self) -> str:
        bound = "at least" if self.at_least else "at most" if self.against else "under"
        limit = f"{self.limit:.1f}x {self.against}" if self.against else f"{self.limit:g}"
        return f"{self.row.what} {bound} {limit}{'' if self.against else f' {self.row.unit}'}"

    def measured(self, figures: Figures) -> float:
        if self.against:
            return figures.ratio(self.row, self.against)
        return figures.median(self.row, PENSTOCK)

    def met(self, figures: Figures) -> bool:
        measured = self.measured(figures)
        if self.at_least:
            return measured >= self.limit
        return measured <= self.limit if self.against else measured < self.limit


GOALS = (
    Goal(PRODUCE_1K, 1.0, KAFKA, at_least=True),
    Goal(CONSUME_1K, 1.0, KAFKA, at_least=True),
    Goal(CONSUME_100, 1.0, KAFKA, at_least=True),
    Goal(SYNC_P50, 1.5, KAFKA_FSYNC),
    Goal(START_UP, 0.5),
    Goal(AFTER_LOAD, 200),
    Goal(PEAK, 200),
)
