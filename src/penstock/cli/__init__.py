"""The command line: one file for each group of commands, loaded when it is asked for."""

import importlib
import sys

import click

from penstock.errors import PenstockError

COMMANDS = {
    "log": "penstock.cli.log",
}


class OnDemand(click.Group):
    """Imports a command's module only when that command runs, so that a server starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=OnDemand)
def cli() -> None:
    """penstock: a stream-processing platform in one install."""


def main() -> None:
    try:
        cli(standalone_mode=True)
    except PenstockError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
