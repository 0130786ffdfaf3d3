"""`penstock bench`: measurements, loaded only when they are run."""

from collections.abc import Callable
from pathlib import Path

import click

Measurement = Callable[[int, bool, Path], None]


@click.group()
def command() -> None:
    """Measure the log, Spark on it and windows, each beside others that do the same.

    \b
    Example:
      penstock bench log --quick
    """


def measured(function: Measurement) -> click.Command:
    """The options that all measurements have; the report is named for the function."""
    for option in (
        click.option(
            "--output",
            default=f"bench/results/{function.__name__}.md",
            show_default=True,
            metavar="FILE",
            type=click.Path(path_type=Path, dir_okay=False),
        ),
        click.option("--quick", is_flag=True, help="Small loads, to see that it runs."),
        click.option(
            "--repeats", default=3, show_default=True, type=click.IntRange(1), metavar="N"
        ),
    ):
        function = option(function)
    return command.command()(function)


@measured
def log(repeats: int, quick: bool, output: Path) -> None:
    """Run the log and Apache Kafka in turn, and write a table of both.

    \b
    Example:
      penstock bench log --repeats 5 --output results.md
    """
    from penstock.bench.log import run

    run(repeats=repeats, quick=quick, output=output)


@measured
def spark(repeats: int, quick: bool, output: Path) -> None:
    """Run apps and Spark alone in turn, and write a table of both.

    \b
    Example:
      penstock bench spark --repeats 5 --output results.md
    """
    from penstock.bench.spark import run

    run(repeats=repeats, quick=quick, output=output)


@measured
def windows(repeats: int, quick: bool, output: Path) -> None:
    """Run windows, those of Spark alone and those of Flink in turn, and write a table of all.

    \b
    Example:
      penstock bench windows --repeats 5 --output results.md
    """
    from penstock.bench.windows.run import run

    run(repeats=repeats, quick=quick, output=output)


@measured
def views(repeats: int, quick: bool, output: Path) -> None:
    """Run joins and views, those of Spark alone and of Flink in turn, and write a table of all.

    \b
    Example:
      penstock bench views --repeats 5 --output results.md
    """
    from penstock.bench.views.run import run

    run(repeats=repeats, quick=quick, output=output)
