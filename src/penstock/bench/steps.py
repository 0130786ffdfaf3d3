"""How far a long run has come, on standard error: a bar on a terminal, a line a step elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Steps:
    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)
        self._total, self._done = total, 0

    def begin(self, step: str) -> None:
        self._bar.update(self._task, description=step)
        self._step = step

    def end(self, outcome: str) -> None:
        self._done += 1
        self._bar.advance(self._task)
        self._console.print(f"[{self._done}/{self._total}] {self._step}: {outcome}")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
