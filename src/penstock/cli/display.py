"""Tables and numbers on a terminal, and the same plainly in a pipe."""

import sys

from rich.console import Console, RenderableType
from rich.table import Column, Table

from penstock.log.policy import FOREVER

ANY_WIDTH = 100_000  # a pipe has no edge at which to cut

_SPANS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def screen(*, stderr: bool = False) -> Console:
    out = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not out.is_terminal:
        out.width = ANY_WIDTH
    return out


def left(heading: str) -> Column:
    return Column(heading, overflow="fold")


def right(heading: str) -> Column:
    return Column(heading, justify="right", no_wrap=True)


def table(*columns: Column) -> Table:
    return Table(*columns, box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))


def show(content: RenderableType) -> None:
    out = screen()
    with out.capture() as rendered:
        out.print(content)
    for line in rendered.get().splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")


def count(number: int) -> str:
    """With commas for people, without for programs."""
    return f"{number:,}" if sys.stdout.isatty() else str(number)


def plural(number: int, what: str) -> str:
    return f"{count(number)} {what if number == 1 else what + 's'}"


def shortened(identity: str) -> str:
    """For people, the two ends of an id that nobody reads as a whole."""
    if len(identity) <= 20 or not sys.stdout.isatty():
        return identity
    return f"{identity[:11]}…{identity[-8:]}"


def span(milliseconds: int) -> str:
    """`7d`, `1h 30m`: as short as it can be said without rounding, and readable as a duration."""
    if milliseconds == FOREVER:
        return "forever"
    parts = []
    for unit, size in _SPANS:
        amount, milliseconds = divmod(milliseconds, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return " ".join(parts) or "0ms"


def size(number: int) -> str:
    """`256 MiB`, `1.5 KiB`; exact below 1 KiB."""
    if number == FOREVER:
        return "no limit"
    amount, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f}".removesuffix(".0") + f" {unit}"
