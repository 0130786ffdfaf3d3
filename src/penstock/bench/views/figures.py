"""The goals that the figures of views are held against."""

from collections.abc import Mapping
from statistics import median

from penstock.bench.flink import FLINK
from penstock.bench.spark_figures import NATIVE, PENSTOCK, Figures, Goal
from penstock.bench.views.queries import ALL

CONTENDERS = (PENSTOCK, NATIVE, FLINK)
Changed = Mapping[tuple[str, int], list[int]]
"""Milliseconds of batches with one changed row, by the kind of view and its rows."""


def goals(figures: Figures, changed: Changed) -> list[Goal]:
    found = []
    for asked in ALL:
        ratio = figures.ratio(asked.row, FLINK)
        text = f"{asked.row.what} at least 2.0x {FLINK}"
        found.append(Goal(text, f"{ratio:.2f}x", ratio >= 2.0))
    for kind in dict.fromkeys(kind for kind, _ in changed):
        medians = [median(took) for (each, _), took in changed.items() if each == kind]
        spread = max(medians) / min(medians)
        text = f"one changed row, {kind}: the slowest at most 2.0x the fastest"
        found.append(Goal(text, f"{spread:.2f}x", spread <= 2.0))
    return found
