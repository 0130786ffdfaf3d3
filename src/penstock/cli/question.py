"""Asking before something is gone for good."""

import sys

import click

YES = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the person says yes. Where nobody can be asked, --yes must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on: give --yes.")
    if not click.confirm(question, err=True):
        click.echo("nothing was deleted", err=True)
        click.get_current_context().exit(1)
