"""A run beside Flink and Spark alone, for people: medians, their ranges and ratios, every value."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from penstock.bench.figures import Row
from penstock.bench.flink import FLINK
from penstock.bench.sheet import Lines, Sheet
from penstock.bench.spark_figures import NATIVE, Figures, Goal


@dataclass(frozen=True)
class Beside(Sheet[Figures]):
    rows: ClassVar[Sequence[Row]]
    ratios = (f"to {FLINK}", f"to {NATIVE}")

    @abstractmethod
    def _goals(self) -> Iterable[Goal]: ...

    def medians(self) -> Lines:
        for row in self.rows:
            ratios = (self._ratio(row, other) for other in (FLINK, NATIVE))
            yield row.title, *(self._median(row, name) for name in self.contenders), *ratios

    def _median(self, row: Row, contender: str) -> str:
        values = self.figures.of(row, contender)
        if not values:
            return ""
        low, high = row.short(min(values)), row.short(max(values))
        return f"{row.short(median(values))} ({low}-{high})"

    def _ratio(self, row: Row, other: str) -> str:
        return f"{self.figures.ratio(row, other):.2f}x" if self.figures.of(row, other) else ""

    def goals(self) -> Lines:
        for goal in self._goals():
            yield goal.text, goal.measured, "met" if goal.met else "missed"

    def values(self) -> Lines:
        for row in self.rows:
            values = (self.figures.of(row, name) for name in self.contenders)
            yield row.title, *(", ".join(f"{each:.0f}" for each in some) for some in values)
