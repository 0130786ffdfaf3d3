"""What is measured of every app, by whom, and the goals that the figures are held against."""

from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple

from penstock.bench.apps.cases import ALIKE, CHAIN, DIFFERENT, Case
from penstock.bench.figures import Row
from penstock.bench.flink import FLINK
from penstock.bench.spark_figures import PENSTOCK, Figures, Goal

BEFORE = f"{PENSTOCK} before"


class Measure(NamedTuple):
    what: str
    unit: str

    def row(self, case: Case) -> Row:
        return Row(f"{self.what}, {case.name}", self.unit)


FIRST = Measure("first result", "s")
AGAIN = Measure("next result after kill -9", "s")
PROCESSES = Measure("processes", "count")
MEMORY = Measure("memory", "MB")
IDLE = Measure("idle", "cores")
P50, P99 = Measure("append to visible p50", "ms"), Measure("append to visible p99", "ms")
SPEED = Measure("backlog", "thousand orders/s")

MEASURES = (FIRST, AGAIN, PROCESSES, MEMORY, IDLE, P50, P99, SPEED)


def percentile(values: Sequence[float], percent: int) -> float:
    """Between two values where it falls between them; never beyond the highest."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def rows(cases: Sequence[Case]) -> list[Row]:
    """By measure, so that one sees how each grows with the views."""
    return [measure.row(case) for measure in MEASURES for case in cases]


# On two cores: for apps of a family with this many views.
_WIDE = (ALIKE, DIFFERENT)
_LIMITS: tuple[tuple[Measure, tuple[str, ...], int, float], ...] = (
    (FIRST, _WIDE, 1, 10.0),
    (FIRST, _WIDE, 30, 15.0),
    (AGAIN, _WIDE, 1, 10.0),
    (AGAIN, _WIDE, 30, 15.0),
    (MEMORY, _WIDE, 30, 1_500.0),
    (IDLE, _WIDE, 1, 0.05),
    (IDLE, _WIDE, 30, 0.05),
    (P50, _WIDE, 1, 100.0),
    (P50, _WIDE, 30, 150.0),
    (P50, (CHAIN,), 5, 150.0),
)


def goals(figures: Figures, cases: Sequence[Case]) -> list[Goal]:
    """The cost of an app follows its data: many views take about what one takes, and no longer than
    people wait. Those of figures that were not measured are left out."""
    found = []
    for measure, most in ((FIRST, 2.0), (PROCESSES, 1.5), (MEMORY, 2.0), (IDLE, 2.0), (P50, 3.0)):
        for one, many in _grown(cases):
            few, more = figures.of(measure.row(one)), figures.of(measure.row(many))
            if few and more and median(few):
                ratio = median(more) / median(few)
                text = f"{measure.what}, {many.name} at most {most:.1f}x that of {one.name}"
                found.append(Goal(text, f"{ratio:.2f}x", ratio <= most))
    for measure, families, views, most in _LIMITS:
        for case in cases:
            values = figures.of(measure.row(case))
            if case.family in families and len(case.views) == views and values:
                row, found_value = measure.row(case), median(values)
                text = f"{row.what} under {most:g} {measure.unit}"
                found.append(Goal(text, row.short(found_value), found_value < most))
    for case in cases:
        row = SPEED.row(case)
        if figures.of(row) and figures.of(row, FLINK):
            ratio = figures.ratio(row, FLINK)
            found.append(Goal(f"{row.what} at least 1.0x {FLINK}", f"{ratio:.2f}x", ratio >= 1.0))
    return found


def _grown(cases: Sequence[Case]) -> list[tuple[Case, Case]]:
    """Of each family the app with the fewest views and that with the most."""
    families: dict[str, list[Case]] = {}
    for case in cases:
        families.setdefault(case.family, []).append(case)
    found = []
    for family in families.values():
        ordered = sorted(family, key=lambda case: len(case.views))
        if len(ordered) > 1:
            found.append((ordered[0], ordered[-1]))
    return found
