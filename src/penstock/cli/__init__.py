"""The command line: one file for each command or group of them, loaded when it is asked for."""

import importlib
import os
import sys
from typing import Any

import click

from penstock import __version__
from penstock.errors import PenstockError

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended

# Where each command is, and its line in the list, so that listing them loads none of them.
COMMANDS = {
    "init": ("penstock.cli.init", "Write a small app and its test, to begin with."),
    "run": ("penstock.cli.run", "Run the app in a file."),
    "query": ("penstock.cli.query", "Read the views of an app by SQL."),
    "diff": ("penstock.cli.diff", "Show what changed in a view between two times or positions."),
    "explain": ("penstock.cli.explain", "Show the plan of a view, and what each part keeps."),
    "rebuild": ("penstock.cli.rebuild", "Build a view anew beside the one there is, then switch."),
    "status": ("penstock.cli.status", "Show how the nodes of an app are doing."),
    "why": ("penstock.cli.why", "Say why a node waits, failed, lags or rejects rows."),
    "state": ("penstock.cli.state", "Show what a node keeps, or look up a key in it."),
    "rescale": ("penstock.cli.rescale", "Spread a node's state over another number of buckets."),
    "log": ("penstock.cli.log", "Serve a log to Kafka clients, or check its files."),
    "topics": ("penstock.cli.topics", "List, make, describe, change and delete topics."),
    "produce": ("penstock.cli.produce", "Append lines of a file or of standard input."),
    "tail": ("penstock.cli.tail", "Show the records of a topic, and those to come."),
    "groups": ("penstock.cli.groups", "List, describe, reset and delete consumer groups."),
    "bench": (
        "penstock.cli.bench",
        "Measure the log beside Kafka, and apps beside native Spark.",
    ),
}


class Failure(click.ClickException):
    """An error that was foreseen: its message and its hint, without a traceback."""

    def show(self, file: Any = None) -> None:
        click.secho("error: ", fg="red", bold=True, nl=False, err=True, color=color())
        click.echo(self.message, err=True)


class OnDemand(click.Group):
    """Imports a command's module only when that command runs, so that a server starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except PenstockError as error:
            raise Failure(str(error)) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except SystemError as error:
            # What becomes of a Ctrl-C that comes upon the Kafka client at the wrong moment.
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Whoever read the output has seen enough. Python would complain once more when it
            # flushes what is left at its own end, so that goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


@click.group(
    cls=OnDemand, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="penstock", message="%(prog)s %(version)s")
def cli() -> None:
    """A stream-processing platform in one install, on a log that speaks the Kafka protocol.

    Commands work on the apps and the log in the folder ./penstock-data or in another one (--data),
    those for the log also on one at an address (--server), which may be Apache Kafka.

    \b
    Examples:
      penstock init shop
      penstock topics create orders --partitions 2
      echo '{"id": 7}' | penstock produce orders --json --key-field id
      penstock tail orders --from-start
    """


def color() -> bool | None:
    """None leaves it to whether the output is a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def main() -> None:
    cli(color=color())
