"""`penstock produce`: lines in, records out."""

import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

import click
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from penstock.cli import INTERRUPTED
from penstock.cli.display import count, plural, right, screen, show, table
from penstock.cli.interrupts import Interrupts
from penstock.cli.lines import LineFormat, LineReader
from penstock.cli.target import find_topic, log_options, open_log
from penstock.events.record import Position

_PLACE = itemgetter(1, 2)  # partition and offset of a position


@click.command()
@click.argument("topic")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--json", is_flag=True, help="Every line must be JSON; blank ones are left out.")
@click.option("--key-field", metavar="NAME", help="The key is this field of each JSON object.")
@click.option("--key-separator", metavar="TEXT", help="Lines are KEY, then this, then VALUE.")
@click.option(
    "--position",
    is_flag=True,
    help="Print nothing but where the last records stand, as penstock query --after takes it.",
)
@log_options
def command(
    topic: str,
    file: str | None,
    json: bool,
    key_field: str | None,
    key_separator: str | None,
    position: bool,
) -> None:
    """Append each line of FILE, or of standard input, as a record.

    A record is durable once it is counted in what this command prints. A line that does not fit
    the options ends it with an error that names the line; the lines before it are in the log.

    \b
    Examples:
      penstock produce notes notes.txt
      penstock produce orders orders.jsonl --json --key-field id
      echo 'ada:2 pens' | penstock produce orders --key-separator :
      penstock produce orders orders.jsonl --position
    """
    if key_field and key_separator:
        raise click.UsageError("Give --key-field or --key-separator, not both.")
    form = LineFormat(bool(json or key_field), key_separator or "", key_field or "")
    tally = Tally()
    with open_log() as log:
        longest = find_topic(log, topic).policy.max_message_bytes
        with Interrupts() as interrupts, _source(file) as (source, name):
            reader = LineReader(source, name, form, longest=longest)
            try:
                with _progress(source, name) as advance:
                    for records in reader:
                        with interrupts.held_back():
                            tally.add(log.append(topic, records))
                            advance(reader.bytes)
            except KeyboardInterrupt:
                click.echo("interrupted", err=True)
                click.get_current_context().exit(INTERRUPTED)
            finally:
                tally.show_position(topic) if position else tally.show(topic)
                if reader.blank:
                    click.echo(f"left out {plural(reader.blank, 'blank line')}", err=True)


class Tally:
    """How many records went to which partition, and the offsets of the first and the last."""

    def __init__(self) -> None:
        self._records: Counter[int] = Counter()
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def add(self, positions: Sequence[Position]) -> None:
        self._records.update(map(itemgetter(1), positions))
        self._last |= dict(map(_PLACE, positions))
        self._first = dict(map(_PLACE, reversed(positions))) | self._first

    def show_position(self, topic: str) -> None:
        """`orders/0@17,orders/1@4`, nothing when nothing was appended."""
        if self._last:
            places = sorted(self._last.items())
            click.echo(",".join(str(Position(topic, number, at)) for number, at in places))

    def show(self, topic: str) -> None:
        total = plural(self._records.total(), "record")
        if len(self._records) == 1:
            [(partition, first)] = self._first.items()
            last = self._last[partition]
            at = f"offset {first}" if first == last else f"offsets {first} to {last}"
            click.echo(f"appended {total} to {topic}/{partition}, {at}")
            return
        click.echo(f"appended {total} to {topic}")
        if self._records:
            places = table(right("partition"), right("records"), right("first"), right("last"))
            for index, records in sorted(self._records.items()):
                ends = count(self._first[index]), count(self._last[index])
                places.add_row(str(index), count(records), *ends)
            show(places)


@contextmanager
def _source(file: str | None) -> Iterator[tuple[int, str]]:
    """A descriptor, and what to call it."""
    if file is not None:
        with Path(file).open("rb", buffering=0) as opened:
            yield opened.fileno(), file
        return
    if sys.stdin.isatty():
        click.echo("one record a line; Ctrl-D ends", err=True)
    yield sys.stdin.fileno(), "standard input"


@contextmanager
def _progress(source: int, name: str) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal while a file is read; its caller says how many bytes are done."""
    facts, out = os.fstat(source), screen(stderr=True)
    if not stat.S_ISREG(facts.st_mode) or not out.is_terminal:
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn())
    with Progress(
        *columns,
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=out,
        transient=True,
    ) as bar:
        task = bar.add_task(Path(name).name, total=facts.st_size)
        yield lambda done: bar.update(task, completed=done)
