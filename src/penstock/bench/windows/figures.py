"""Whom windows are measured with, and the goals that the figures are held against."""

from penstock.bench.flink import FLINK
from penstock.bench.spark_figures import NATIVE, PENSTOCK, Figures, Goal
from penstock.bench.windows.queries import ALL

FROM_LOG = f"{PENSTOCK}, from its log"
CONTENDERS = (PENSTOCK, FROM_LOG, NATIVE, FLINK)


def goals(figures: Figures) -> list[Goal]:
    """Those of a row that somebody else was measured with."""
    found = []
    for asked in ALL:
        for other, least in ((FLINK, 2.0), (NATIVE, 1.0)):
            if figures.of(asked.row, other):
                ratio = figures.ratio(asked.row, other)
                text = f"{asked.row.what} at least {least:.1f}x {other}"
                found.append(Goal(text, f"{ratio:.2f}x", ratio >= least))
    return found
