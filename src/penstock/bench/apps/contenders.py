"""The contenders: each runs an app, and tells its figures as they come."""

import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.bench.apps.cases import Case
from penstock.bench.apps.client import live_order
from penstock.bench.apps.figures import (
    AGAIN,
    FIRST,
    IDLE,
    MEMORY,
    P50,
    P99,
    PROCESSES,
    SPEED,
    Measure,
    percentile,
)
from penstock.bench.apps.orders import Backlog
from penstock.bench.apps.running import RunningApp
from penstock.clock import monotonic, sleep
from penstock.errors import PenstockError

_STARTED_WITHIN = 600.0
_DRAINED_WITHIN = 1_200.0
_AFTER_BACKLOG = 100_000_000  # the id of the order after a restart

Measured = Iterator[tuple[Measure, float]]


class Pace(NamedTuple):
    """Seconds: of orders one by one, before an app counts as idle, and of idling."""

    live: float
    settle: float
    idle: float


class Contender(ABC):
    name: str

    def __init__(self) -> None:
        self.notes: list[str] = []
        """What else there is to tell, such as processes that had to be killed."""

    @abstractmethod
    def measure(self, case: Case, backlog: Backlog, pace: Pace) -> Measured:
        """Raises NodeFailed when it cannot go on, and what it gave until then counts. Raises
        PenstockError when a view holds something wrong."""


class Ours(Contender):
    def __init__(self, name: str, source: Path) -> None:
        """`source` is the folder that penstock is imported from."""
        super().__init__()
        self.name = name
        self._source = source

    def measure(self, case: Case, backlog: Backlog, pace: Pace) -> Measured:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
            RunningApp(self._source, case, Path(folder)) as app,
        ):
            try:
                yield from self._measure(app, case, backlog, pace)
            finally:
                if app.left:
                    self.notes.append(f"{case.name}: had to kill {_counted(app.left)}")

    def _measure(self, app: RunningApp, case: Case, backlog: Backlog, pace: Pace) -> Measured:
        began = app.start()
        seen = app.ask("first", within=_STARTED_WITHIN)
        yield FIRST, seen - began

        sleep(pace.settle)
        yield IDLE, _idle_cores(app, pace.idle)

        took = app.ask("latencies", seconds=pace.live)
        yield P50, percentile(took, 50)
        yield P99, percentile(took, 99)
        yield PROCESSES, len(app.processes.ids())
        yield MEMORY, app.processes.pss_bytes() / 1e6

        app.stand_still()
        backlog.send(app.address)
        ends = app.ask("ends")
        began = app.go_on()
        reached = app.ask("reached", ends=ends, within=_DRAINED_WITHIN)
        self._check(app, case, backlog, live=1 + len(took))
        yield SPEED, backlog.rows / (reached - began) / 1_000

        app.kill()
        began = app.start()
        seen = app.ask("next", number=_AFTER_BACKLOG, within=_STARTED_WITHIN)
        yield AGAIN, seen - began

    def _check(self, app: RunningApp, case: Case, backlog: Backlog, *, live: int) -> None:
        """Raises PenstockError when the last view does not hold what it has to."""
        orders = Counter(str(live_order(number)["customer"]) for number in range(1, live + 1))
        right = backlog.totals(case, orders)
        found = {name: tuple(row) for name, row in app.ask("rows").items()}
        if found != right:
            name = next(each for each in {*found, *right} if found.get(each) != right.get(each))
            raise PenstockError(
                f"{self.name} does not have what there is in the last of {case.name}",
                hint=f"of customer {name} it has {found.get(name)} instead of {right.get(name)}",
            )


def _idle_cores(app: RunningApp, seconds: float) -> float:
    used, began = app.processes.cpu_seconds(), monotonic()
    sleep(seconds)
    return (app.processes.cpu_seconds() - used) / (monotonic() - began)


def _counted(names: list[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(names).items()))
