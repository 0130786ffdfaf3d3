"""A run's figures for people: a table on the terminal, and a Markdown file with every value."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from rich.console import Console
from rich.table import Table

QUICK = "A quick run: it shows that everything works, and measures nothing."

Figures = TypeVar("Figures")
Lines = Iterable[Sequence[str]]


@dataclass(frozen=True)
class Sheet(ABC, Generic[Figures]):
    """What all benchmarks have in common; each says what its lines are."""

    figures: Figures
    command: str
    date: str
    machine: dict[str, str]
    quick: bool

    title: ClassVar[str]
    method: ClassVar[str]
    contenders: ClassVar[Sequence[str]]
    ratios: ClassVar[Sequence[str]]

    @abstractmethod
    def medians(self) -> Lines:
        """A row's title, the median of each contender, and the ratios."""

    @abstractmethod
    def goals(self) -> Lines:
        """The goal, what was measured, and "met" or "missed"."""

    @abstractmethod
    def values(self) -> Lines:
        """A row's title, and all that was measured of each contender, in order."""

    def sections(self) -> Iterable[str]:
        """What else there is to tell, as Markdown."""
        return ()

    def publish(self, output: Path) -> None:
        """Shows it, and writes it to a file, whose folder is made."""
        self.show()
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(self.markdown())
        Console(stderr=True, highlight=False).print(f"written to {output}")

    def show(self) -> None:
        """Prints the medians, their ranges and ratios, and the goals to standard output."""
        out = Console(highlight=False)
        if not out.is_terminal:
            out.width = 200  # a pipe has no edge at which to fold
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column(no_wrap=True)
        for head in (*self.contenders, *self.ratios):
            table.add_column(head, justify="right")
        for line in self.medians():
            table.add_row(*line)
        out.print(table)
        for text, measured, verdict in self.goals():
            style = "green" if verdict == "met" else "red"
            out.print(f"[{style}]{verdict:6}[/] {text}: {measured}")
        if self.quick:
            out.print(QUICK)

    def markdown(self) -> str:
        heads = ("median (lowest to highest)", *self.contenders, *self.ratios)
        parts = (
            f"# {self.title}",
            f"{self.date}, by `{self.command}`.",
            *([f"**{QUICK}**"] if self.quick else []),
            markdown_table(heads, self.medians()),
            "## Goals",
            markdown_table(("goal", "measured", ""), self.goals()),
            *self.sections(),
            "## Measured with",
            markdown_table(("", ""), self.machine.items()),
            "## How",
            self.method.rstrip(),
            "## Every value, in the order measured",
            markdown_table(("", *self.contenders), self.values()),
        )
        return "\n\n".join(parts) + "\n"


def markdown_table(heads: Sequence[str], lines: Lines) -> str:
    ruled = (heads, ["---"] * len(heads), *lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)
