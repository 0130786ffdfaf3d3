"""`penstock groups`: who reads what, how far behind they are, and moving them."""

import click
from rich.text import Text

from penstock.cli.display import count, left, plural, right, shortened, show, table
from penstock.cli.moment import moment
from penstock.cli.question import YES, confirm
from penstock.cli.target import (
    choose_partitions,
    find_group,
    find_topic,
    log_options,
    open_log,
)
from penstock.errors import InvalidInput


@click.group(invoke_without_command=True)
@log_options
@click.pass_context
def command(context: click.Context) -> None:
    """List the consumer groups, or work on one of them.

    \b
    Examples:
      penstock groups
      penstock groups describe billing
    """
    if context.invoked_subcommand is None:
        _list()


def _list() -> None:
    with open_log() as log:
        groups = [log.describe_group(name) for name in log.groups()]
    if not groups:
        click.echo("no groups yet: penstock tail TOPIC --group NAME", err=True)
        return
    listing = table(left("group"), left("state"), right("members"), right("lag"))
    for group in groups:
        lag = sum(each.lag for each in group.lags)
        listing.add_row(Text(group.name), group.state, count(len(group.members)), _lag(lag))
    show(listing)


def _lag(lag: int) -> Text:
    return Text(count(lag), style="yellow" if lag else "green")


@command.command()
@click.argument("name")
@log_options
def describe(name: str) -> None:
    """Show how far a group is in each partition, and which member reads it.

    \b
    Example:
      penstock groups describe billing
    """
    with open_log() as log:
        group = find_group(log, name)
    click.echo(f"{group.name}: {group.state}, {plural(len(group.members), 'member')}")
    if not group.lags:
        return
    click.echo()
    progress = table(
        left("topic"),
        right("partition"),
        right("committed"),
        right("end"),
        right("lag"),
        left("member"),
    )
    for each in group.lags:
        progress.add_row(
            Text(each.topic),
            str(each.partition),
            count(each.committed) if each.committed >= 0 else "-",
            count(each.end),
            _lag(each.lag),
            Text(shortened(each.member) or "-", style="dim"),
        )
    show(progress)


@command.command()
@click.argument("name")
@click.option("--topic", required=True, metavar="TOPIC")
@click.option("--partition", type=click.IntRange(0), metavar="P", help="This one only.")
@click.option("--to-start", is_flag=True, help="Read everything again.")
@click.option("--to-end", is_flag=True, help="Skip everything there is.")
@click.option(
    "--to",
    type=moment,
    metavar="TIME",
    help="To a time, such as 2026-01-31T10:00, or 10m for so long ago.",
)
@click.option("--to-offset", type=click.IntRange(0), metavar="N")
@click.option("--by", type=int, metavar="±N", help="So many records forward, or back.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@log_options
def reset(
    name: str,
    topic: str,
    partition: int | None,
    to_start: bool,
    to_end: bool,
    to: int | None,
    to_offset: int | None,
    by: int | None,
    dry_run: bool,
) -> None:
    """Move a group that has no members at present to another place in a topic.

    Offsets beyond the start or the end of a partition become its start or its end.

    \b
    Examples:
      penstock groups reset billing --topic orders --to-start --dry-run
      penstock groups reset billing --topic orders --to 2026-01-31T10:00
      penstock groups reset billing --topic orders --partition 0 --by -100
    """
    if sum([to_start, to_end, to is not None, to_offset is not None, by is not None]) != 1:
        raise click.UsageError("Give one of --to-start, --to-end, --to, --to-offset and --by.")
    with open_log() as log:
        group = find_group(log, name)
        committed = {
            each.partition: each.committed
            for each in group.lags
            if each.topic == topic and each.committed >= 0
        }
        bounds = choose_partitions(find_topic(log, topic), partition)
        targets = {}
        for index, (start, end) in bounds.items():
            if by is not None:
                wanted = _current(committed, name, topic, index) + by
            elif to is not None:
                wanted = log.offset_at(topic, index, to)
            elif to_offset is not None:
                wanted = to_offset
            else:
                wanted = start if to_start else end
            targets[index] = min(max(wanted, start), end)
        if not dry_run:
            log.commit(name, {(topic, index): offset for index, offset in targets.items()})
    moves = table(left("topic"), right("partition"), right("from"), right("to"), right("lag"))
    for index, offset in targets.items():
        before = committed.get(index)
        moves.add_row(
            Text(topic),
            str(index),
            "-" if before is None else count(before),
            count(offset),
            _lag(bounds[index].end - offset),
        )
    show(moves)
    if dry_run:
        click.echo("nothing was changed: this was a dry run", err=True)


def _current(committed: dict[int, int], group: str, topic: str, partition: int) -> int:
    if partition not in committed:
        raise InvalidInput(
            f"group {group!r} has committed nothing in {topic}/{partition}",
            hint="move it with --to-start or --to-end first",
        )
    return committed[partition]


@command.command()
@click.argument("name")
@YES
@log_options
def delete(name: str, yes: bool) -> None:
    """Forget a group that has no members, and what it has committed.

    \b
    Example:
      penstock groups delete billing --yes
    """
    with open_log() as log:
        find_group(log, name)
        confirm(f"Delete group {name} and the offsets it has committed?", yes=yes)
        log.delete_group(name)
    click.echo(f"deleted group {name}")
