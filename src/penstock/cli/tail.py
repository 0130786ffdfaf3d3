"""`penstock tail`: the records of a topic, and those to come."""

import select
import sys
from collections.abc import Iterable
from operator import attrgetter

import click

from penstock.cli.display import screen
from penstock.cli.interrupts import Interrupts
from penstock.cli.moment import local_time, moment
from penstock.cli.rendering import ForPeople, json_line
from penstock.cli.target import choose_partitions, find_topic, log_options, open_log
from penstock.clock import now_ms
from penstock.events.record import Record
from penstock.log.contract import Log
from penstock.streams.source.punctuation import HEADER as MARK

LAST = 10  # records shown when neither a start nor following is asked for
_ROUND = 0.5  # seconds between two looks at whether anybody still reads the output
_by_time = attrgetter("timestamp", "position")


@click.command()
@click.argument("topic")
@click.option("--from-start", is_flag=True, help="From the first record on.")
@click.option(
    "--from",
    "since",
    type=moment,
    metavar="TIME",
    help="From a time on, such as 2026-01-31T10:00, or 10m for so long ago.",
)
@click.option("-n", "--last", type=click.IntRange(0), metavar="N", help="The last N, by time.")
@click.option("--no-follow", is_flag=True, help="End at the end.")
@click.option("--partition", type=click.IntRange(0), metavar="P", help="This one only.")
@click.option(
    "--group", metavar="NAME", help="Read as a member of a group, and commit what was shown."
)
@click.option("--marks", is_flag=True, help="Also the records by which a node tells its clock.")
@log_options
def command(
    topic: str,
    from_start: bool,
    since: int | None,
    last: int | None,
    no_follow: bool,
    partition: int | None,
    group: str | None,
    marks: bool,
) -> None:
    """Show what is appended to TOPIC from now on, until Ctrl-C.

    On a terminal a record is a line with its time, partition@offset, key and value; in a pipe it
    is a JSON object. Records of one partition come in their order.

    A group begins where it has committed, and at the end, or with --from-start at the start, where
    it has not.

    \b
    Examples:
      penstock tail orders
      penstock tail orders -n 5 --no-follow
      penstock tail orders --from 10m --partition 0
      penstock tail orders --from-start --no-follow | jq .value
      penstock tail orders --group billing --from-start
    """
    if from_start + (since is not None) + (last is not None) > 1:
        raise click.UsageError("Give one of --from-start, --from and --last.")
    if group and not (since is last is partition is None):
        raise click.UsageError("A group has its own place; with --group, give --from-start only.")
    if no_follow and not from_start and since is last is None:
        last = LAST
    with open_log() as log, Interrupts() as interrupts:
        bounds = choose_partitions(find_topic(log, topic), partition)
        output = Output(marks)
        try:
            if group:
                _read_as_member(log, topic, group, from_start, no_follow, output, interrupts)
                return
            starts = {}
            for index, (start, end) in bounds.items():
                if from_start:
                    starts[index] = start
                elif since is not None:
                    starts[index] = max(log.offset_at(topic, index, since), start)
                else:
                    starts[index] = _start_of_last(
                        log, topic, index, range(start, end), last or 0, output
                    )
            _read(log, topic, starts, partition is None, last, no_follow, output)
        except KeyboardInterrupt:
            pass  # the usual end of following


def _start_of_last(
    log: Log, topic: str, partition: int, offsets: range, count: int, output: "Output"
) -> int:
    """Where so many records to be shown begin, looked for further back each time."""
    back = count
    while True:
        start = max(offsets.stop - back, offsets.start)
        found = log.read(topic, partition, start, limit=offsets.stop - start) if count else ()
        if start == offsets.start or sum(map(output.shows, found)) >= count:
            return start
        back *= 4


def _read(
    log: Log,
    topic: str,
    starts: dict[int, int],
    grow: bool,
    last: int | None,
    no_follow: bool,
    output: "Output",
) -> None:
    with log.follow(topic, starts, grow=grow) as records:
        if last:
            # So many of each partition have been read, and these are the last of them all.
            some = filter(output.shows, records.until_end())
            output.write(sorted(some, key=_by_time)[-last:])
        if no_follow:
            output.write(records.until_end())
            return
        while output.wanted():
            output.write(records.poll(_ROUND))


def _read_as_member(
    log: Log,
    topic: str,
    group: str,
    from_start: bool,
    no_follow: bool,
    output: "Output",
    interrupts: Interrupts,
) -> None:
    with log.subscribe(group, [topic], start="earliest" if from_start else "latest") as records:
        if no_follow:
            output.write(records.until_end())
            return
        while output.wanted():
            if some := records.poll(_ROUND):
                with interrupts.held_back():
                    output.write(some)
                    records.commit()


class Output:
    def __init__(self, marks: bool) -> None:
        self._marks = marks
        self._screen = screen()
        # Python's own may be without a buffer, and then may write half of what it is given.
        self._pipe = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115
        self._for_people = ForPeople(local_time(now_ms()))

    def shows(self, record: Record) -> bool:
        return self._marks or all(name != MARK for name, _ in record.headers)

    def write(self, records: Iterable[Record]) -> None:
        records = filter(self.shows, records)
        if self._screen.is_terminal:
            for record in records:
                self._screen.print(self._for_people.line(record), soft_wrap=True)
        else:
            for record in records:
                self._pipe.write(json_line(record))
            self._pipe.flush()

    def wanted(self) -> bool:
        """False once whoever read a pipe has gone: while no record comes, no write would tell."""
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return not poll.poll(0)
