"""`penstock bench`: measurements, loaded only when they are run."""

from collections.abc import Callable
from pathlib import Path

import click

Measurement = Callable[..., None]


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


class Counts(click.ParamType[tuple[int, ...]]):
    """Numbers with commas between, none at all being allowed."""

    name = "counts"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(each) for each in str(value).split(",") if each.strip())
        except ValueError:
            counts = (0,)
        if any(each < 1 for each in counts):
            self.fail(f"{value!r} is no list of counts, such as 1,10", param, ctx)
        return counts


@measured
@click.option(
    "--views", type=Counts(), metavar="N,...", help="Views over one stream [default: 1,10,30,100]."
)
@click.option(
    "--chains", type=Counts(), metavar="N,...", help="Views in a row [default: 1,3,5,10]."
)
@click.option(
    "--seconds",
    default=20,
    show_default=True,
    type=click.IntRange(1),
    help="How long orders are appended one by one.",
)
@click.option(
    "--before",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Another checkout of penstock, measured in the same run.",
)
@click.option("--flink/--no-flink", default=True, show_default=True, help="Measure Flink too.")
def apps(
    repeats: int,
    quick: bool,
    output: Path,
    views: tuple[int, ...] | None,
    chains: tuple[int, ...] | None,
    seconds: int,
    before: Path | None,
    flink: bool,
) -> None:
    """Run apps with many views beside an older version and Flink, and write a table of all.

    \b
    Examples:
      penstock bench apps --views 1,10 --chains 1,5
      git worktree add --detach ../before HEAD~10
      penstock bench apps --before . --no-flink
    """
    from penstock.bench.apps.run import run

    run(
        repeats=repeats,
        quick=quick,
        output=output,
        views=views,
        chains=chains,
        seconds=seconds,
        before=before,
        flink=flink,
    )
