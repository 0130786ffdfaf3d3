"""The figures of a run of Spark, and the goals they are held against."""

from dataclasses import dataclass, field
from statistics import median

from penstock.bench.figures import Row
from penstock.bench.spark_floor import STATEFUL, STATELESS

PENSTOCK, NATIVE = "penstock", "Spark alone"
KEYS = (10**4, 10**5, 10**6, 10**7)

_SPEED = "records/s"
TYPED = Row("JSON to six typed columns", _SPEED)
COUNTED = {keys: Row(f"count and sum, {keys:,} keys", _SPEED) for keys in KEYS}
LAST = Row("last row of each key", _SPEED)
FLOOR = {kind: Row(f"batch of 100 rows, {kind}", "ms") for kind in (STATEFUL, STATELESS)}

BESIDE = (TYPED, COUNTED[10**5], LAST)
ROWS = (TYPED, LAST, *COUNTED.values(), *FLOOR.values())


@dataclass
class Figures:
    """Values by row and contender, in the order in which they were measured."""

    values: dict[tuple[Row, str], list[float]] = field(default_factory=dict)

    def add(self, row: Row, contender: str, value: float) -> None:
        self.values.setdefault((row, contender), []).append(value)

    def of(self, row: Row, contender: str = PENSTOCK) -> list[float]:
        return self.values.get((row, contender), [])

    def ratio(self, row: Row, other: str = NATIVE) -> float:
        """Of penstock's median to another contender's."""
        return median(self.of(row)) / median(self.of(row, other))


@dataclass(frozen=True)
class Goal:
    text: str
    measured: str
    met: bool


def goals(figures: Figures) -> list[Goal]:
    found = []
    for row in BESIDE:
        ratio = figures.ratio(row)
        found.append(Goal(f"{row.what} at least 2.0x {NATIVE}", f"{ratio:.2f}x", ratio >= 2.0))
    few, many = COUNTED[KEYS[0]], COUNTED[KEYS[-1]]
    kept = median(figures.of(many)) / median(figures.of(few))
    text = f"{many.what} at least 0.5x that of {KEYS[0]:,} keys"
    found.append(Goal(text, f"{kept:.2f}x", kept >= 0.5))
    for kind, limit in ((STATEFUL, 250), (STATELESS, 100)):
        row = FLOOR[kind]
        value = median(figures.of(row))
        found.append(Goal(f"{row.what} under {limit} ms", f"{value:.0f} ms", value < limit))
    return found
