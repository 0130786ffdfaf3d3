"""`penstock topics`: what topics there are, and what they are told."""

from collections.abc import Iterable

import click
from rich.text import Text

from penstock.cli.display import count, left, plural, right, show, size, span, table
from penstock.cli.question import YES, confirm
from penstock.cli.target import find_topic, log_options, open_log
from penstock.log.contract import TopicDescription
from penstock.log.policy import TopicPolicy

SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting, such as retention.ms=7d or durability=os; may be repeated.",
)


@click.group(invoke_without_command=True)
@log_options
@click.pass_context
def command(context: click.Context) -> None:
    """List the topics, or work on one of them.

    \b
    Examples:
      penstock topics
      penstock topics --server 127.0.0.1:9092
      penstock topics describe orders
    """
    if context.invoked_subcommand is None:
        _list()


def _list() -> None:
    with open_log() as log:
        topics = [log.describe(name) for name in log.topics()]
    if not topics:
        click.echo("no topics yet: penstock topics create NAME", err=True)
        return
    listing = table(
        left("topic"), right("partitions"), right("records"), left("durability"), left("retention")
    )
    for topic in topics:
        listing.add_row(
            Text(topic.name),
            count(len(topic.partitions)),
            count(_records(topic)),
            topic.policy.durability,
            _retention(topic.policy),
        )
    show(listing)


def _records(topic: TopicDescription) -> int:
    return sum(bounds.end - bounds.start for bounds in topic.partitions)


def _retention(policy: TopicPolicy) -> str:
    kept = span(policy.retention_ms)
    return kept if policy.retention_bytes < 0 else f"{kept} or {size(policy.retention_bytes)}"


@command.command()
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(1), metavar="N")
@SET
@log_options
def create(name: str, partitions: int, settings: tuple[str, ...]) -> None:
    """Make a topic, and the log itself if its folder has none.

    Times may be given as durations (7d, "1h 30m"); -1 is without limit.

    \b
    Examples:
      penstock topics create orders --partitions 4
      penstock topics create clicks --set retention.ms=1d --set durability=os
    """
    chosen = _read(settings)
    with open_log(make=True) as log:
        log.create(name, partitions=partitions, **chosen)
    click.echo(f"created {name} with {plural(partitions, 'partition')}")


@command.command()
@click.argument("name")
@log_options
def describe(name: str) -> None:
    """Show a topic's partitions and settings; * marks what differs from penstock's default.

    \b
    Example:
      penstock topics describe orders
    """
    with open_log() as log:
        topic = find_topic(log, name)
    click.echo(f"{topic.name}: {plural(_records(topic), 'record')}, id {topic.id}\n")
    partitions = table(right("partition"), right("start"), right("end"), right("records"))
    for index, (start, end) in enumerate(topic.partitions):
        partitions.add_row(str(index), count(start), count(end), count(end - start))
    show(partitions)
    click.echo()
    _show_settings(topic.policy)


def _show_settings(policy: TopicPolicy) -> None:
    settings = table(left(""), left("setting"), left("value"), left("default"))
    defaults = TopicPolicy().settings()
    for name, text in policy.settings().items():
        if text == defaults[name]:
            settings.add_row("", name, _readable(name, text), "", style="dim")
        else:
            default = Text(_readable(name, defaults[name]), style="dim")
            settings.add_row("*", name, Text(_readable(name, text), style="bold"), default)
    show(settings)


def _readable(name: str, text: str) -> str:
    if name.endswith(".ms"):
        return span(int(text))
    if name.endswith(".bytes"):
        # With the number itself, which `size` may round and --set asks for.
        return f"{text} ({size(int(text))})"
    return text


@command.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), metavar="N", help="Add some, up to N.")
@SET
@click.option(
    "--unset", multiple=True, metavar="NAME", help="Back to the default; may be repeated."
)
@log_options
def alter(
    name: str, partitions: int | None, settings: tuple[str, ...], unset: tuple[str, ...]
) -> None:
    """Change a topic's settings, or add partitions.

    With more partitions, a key's records go to another one than before.

    \b
    Examples:
      penstock topics alter orders --partitions 8
      penstock topics alter orders --set retention.ms=30d --unset segment.ms
    """
    if partitions is None and not settings and not unset:
        raise click.UsageError("Nothing to change: give --partitions, --set or --unset.")
    chosen = _read(settings)
    TopicPolicy().changed(dict.fromkeys(unset))
    with open_log() as log:
        find_topic(log, name)
        log.alter(name, partitions=partitions, **chosen, **dict.fromkeys(unset))
    click.echo(f"altered {name}")


@command.command()
@click.argument("name")
@YES
@log_options
def delete(name: str, yes: bool) -> None:
    """Delete a topic and all its records.

    \b
    Example:
      penstock topics delete orders --yes
    """
    with open_log() as log:
        records = plural(_records(find_topic(log, name)), "record")
        confirm(f"Delete topic {name} with {records}?", yes=yes)
        log.delete(name)
    click.echo(f"deleted {name} with {records}")


def _read(settings: Iterable[str]) -> dict[str, str]:
    """Checked here, so that a wrong one is not taken for an argument of a function."""
    chosen = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"{setting!r} is not a setting: write NAME=VALUE.")
        chosen[name.strip()] = value.strip()
    TopicPolicy.of(chosen)
    return chosen
