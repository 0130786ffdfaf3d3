"""Apps with many views, of this penstock, of one before and of Flink, taking turns."""

import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pyspark

import penstock
from penstock.bench.apps.cases import Case, all_cases, different
from penstock.bench.apps.contenders import Contender, Ours, Pace
from penstock.bench.apps.figures import BEFORE
from penstock.bench.apps.flink_sql import FlinkSql
from penstock.bench.apps.orders import Backlog
from penstock.bench.apps.report import AppsReport, BeforeReport
from penstock.bench.flink import FLINK_VERSION
from penstock.bench.machine import facts
from penstock.bench.spark_figures import PENSTOCK, Figures
from penstock.bench.steps import Steps
from penstock.clock import instant_text, now_ms
from penstock.errors import InvalidInput, NodeFailed

VIEWS, CHAINS, SECONDS = (1, 10, 30, 100), (1, 3, 5, 10), 20
_SETTLE, _IDLE = 5.0, 10.0
_ROWS = 500_000
# Too little to measure anything.
_QUICK = Pace(live=1.0, settle=0.0, idle=0.5)
_QUICK_ROWS = 2_000
_WARM_UP = 10


def run(
    *,
    repeats: int,
    quick: bool,
    output: Path,
    views: Sequence[int] | None = None,
    chains: Sequence[int] | None = None,
    seconds: int = SECONDS,
    before: Path | None = None,
    flink: bool = True,
) -> None:
    """Measures, prints a table and writes a report to `output` as Markdown.

    `views` and `chains` are how many views apps have; `before` is another checkout of penstock. A
    quick run shows that everything works; its figures mean nothing. Raises PenstockError when Flink
    is missing, or a view holds something wrong.
    """
    source = Path(penstock.__file__).parents[1]
    machine = facts() | {"penstock": _version(source), "Spark": pyspark.__version__}
    ours = [Ours(PENSTOCK, source)]
    if before is not None:
        ours.append(Ours(BEFORE, _source_of(before)))
        machine[BEFORE] = _version(before)
    if flink:
        machine["Flink"] = FLINK_VERSION
    asked_views = ((1,) if quick else VIEWS) if views is None else views
    asked_chains = (() if quick else CHAINS) if chains is None else chains
    cases = all_cases(asked_views, asked_chains)
    backlog = Backlog(_QUICK_ROWS if quick else _ROWS)
    pace = _QUICK if quick else Pace(seconds, _SETTLE, _IDLE)
    date = instant_text(now_ms())
    with (
        _ended_by_sigterm(),
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
    ):
        contenders: list[Contender] = [*ours]
        if flink:
            contenders.append(FlinkSql(Path(folder) / "orders"))
        turns = [(case, each) for case in cases for each in contenders]
        warmed = [] if quick else ours
        figures, notes = measure(repeats, turns, warmed, backlog, pace)
    options = [
        f"--repeats {repeats}",
        f"--views {_listed(asked_views)}",
        f"--chains {_listed(asked_chains)}",
        *([] if quick else [f"--seconds {seconds}"]),
        *([f"--before {before}"] if before else []),
        *([] if flink else ["--no-flink"]),
        *(["--quick"] if quick else []),
    ]
    command = f"penstock bench apps {' '.join(options)}"
    kind = BeforeReport if before else AppsReport
    kind(figures, command, date, machine, quick, cases, notes).publish(output)


def measure(
    repeats: int,
    turns: list[tuple[Case, Contender]],
    warmed: Sequence[Contender],
    backlog: Backlog,
    pace: Pace,
) -> tuple[Figures, list[str]]:
    """One value for each measure, case, contender and repeat; a contender that fails once with an
    app is left out with it from then on."""
    figures, notes = Figures(), []
    failed: set[tuple[Case, Contender]] = set()
    most = min(_WARM_UP, max((len(case.views) for case, _ in turns), default=1))
    with Steps(len(warmed) + repeats * len(turns)) as steps:
        for each in warmed:
            steps.begin(f"warm-up: {each.name}")
            try:
                for _ in each.measure(different(most), Backlog(_QUICK_ROWS), _QUICK):
                    pass
            except NodeFailed as error:
                steps.end(f"failed: {error}")  # and is measured with what it can do
            else:
                steps.end("done")
        for repeat in range(repeats):
            for case, each in reversed(turns) if repeat % 2 else turns:
                steps.begin(f"{repeat + 1} of {repeats}: {case.name}, {each.name}")
                if (case, each) in failed:
                    steps.end("left out, as it failed before")
                    continue
                told = []
                try:
                    for measure, value in each.measure(case, backlog, pace):
                        row = measure.row(case)
                        figures.add(row, each.name, value)
                        told.append(f"{measure.what} {row.short(value)} {measure.unit}")
                except NodeFailed as error:
                    failed.add((case, each))
                    notes.append(f"{each.name}, {case.name}: {_first_line(error)}")
                    told.append(f"failed: {error}")
                steps.end(", ".join(told))
    notes += [f"{each.name}, {note}" for each in {each for _, each in turns} for note in each.notes]
    return figures, notes


def _first_line(error: NodeFailed) -> str:
    return str(error).partition("\n")[0]


def _source_of(checkout: Path) -> Path:
    source = checkout.absolute() / "src"
    if not (source / "penstock" / "__init__.py").exists():
        raise InvalidInput(
            f"{checkout} is no checkout of penstock",
            hint=f"git worktree add --detach {checkout} COMMIT makes one",
        )
    return source


def _version(folder: Path) -> str:
    """The commit that is checked out, with a mark when files have changed since."""
    command = ("git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return penstock.__version__
    return f"{penstock.__version__}, {done.stdout.strip() or 'no commit'}"


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)) or '""'


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does, so that no app is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
