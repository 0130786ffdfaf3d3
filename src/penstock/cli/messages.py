"""What a command that goes on tells while it does, line by line on standard error."""

import logging
import sys

import click

from penstock.cli import color

_LEVELS = {"DEBUG": "blue", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def show_messages(level: int = logging.INFO) -> None:
    """Penstock's own from this level on, and warnings of everybody else."""
    messages = logging.StreamHandler()
    messages.setFormatter(_Pleasant(coloured=sys.stderr.isatty() and color() is None))
    logging.basicConfig(level=logging.WARNING, handlers=[messages])
    logging.getLogger("penstock").setLevel(level)


class _Pleasant(logging.Formatter):
    """`10:03:00 warning  orders/0: ...`, the level in colour on a terminal."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        time, level = self.formatTime(record, "%H:%M:%S"), f"{record.levelname.lower():8}"
        if self._coloured:
            time = click.style(time, dim=True)
            level = click.style(level, fg=_LEVELS.get(record.levelname))
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{time} {level} {record.getMessage()}{trace}"
