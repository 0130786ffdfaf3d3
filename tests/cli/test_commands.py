"""The frame around all commands: help, examples, errors, and what is loaded when."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock import Log, __version__
from penstock.cli import cli
from tests.cli.conftest import Invoke
from tests.cli.running import PENSTOCK, OnTerminal, environment, run

HEAVY = ("confluent_kafka", "hypothesis", "numba", "numpy", "pyarrow", "rich")


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name))


ALL = dict(commands(cli))


def parse(arguments: list[str]) -> None:
    """Reads a command line down to its last command, without running it."""
    command: click.Command = cli
    while True:
        context = command.make_context("penstock", arguments)
        if not isinstance(command, click.Group) or not context._protected_args:
            return
        name, found, arguments = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert found is not None, name
        command = found


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_examples_that_parse(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("app.py", "notes.txt", "orders.jsonl"):
        (tmp_path / file).touch()
    shown = CliRunner().invoke(cli, [*path, "--help"]).output
    examples = [line for line in shown.split("Example")[1].splitlines() if "penstock " in line]
    assert any(" ".join(("penstock", *path)) in line for line in examples)
    for example in examples:
        _, _, arguments = example.partition("penstock ")
        parse(shlex.split(arguments.partition(" |")[0]))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_80_columns(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80).output
    assert max(map(len, shown.splitlines())) <= 80


def test_the_version() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"penstock {__version__}\n"


def test_an_unknown_command_is_refused() -> None:
    assert CliRunner().invoke(cli, ["nothing"]).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [["--help"], ["log", "serve", "--data", "{folder}/none/such", "--listen", "x"]]
)
def test_serving_and_listing_commands_load_nothing_heavy(
    arguments: list[str], tmp_path: Path
) -> None:
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*[name for name, it in sys.modules.items() if it]))\n"
        f"sys.argv[1:] = {[each.format(folder=tmp_path) for each in arguments]}\n"
        "from penstock.cli import main; main()"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=False
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert "penstock.cli" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_an_error_is_a_message_and_a_hint_without_a_traceback(penstock: Invoke) -> None:
    failed = penstock("topics", "create", "a/b")
    assert failed.exit_code == 1
    assert failed.stdout == ""
    assert failed.stderr == (
        "error: 'a/b' is not a topic name\n"
        "  hint: use 1 to 249 letters, digits, dots, underscores and hyphens\n"
    )


def test_nobody_at_the_address() -> None:
    failed = CliRunner().invoke(cli, ["topics", "--server", "127.0.0.1:1"])
    assert failed.exit_code == 1
    assert failed.stderr.startswith("error: no log answers at 127.0.0.1:1")


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_is_for_terminals_that_want_it(address: str, no_color: str, coloured: bool) -> None:
    arguments = ("topics", "describe", "nix", "--server", address)
    with OnTerminal(*arguments, NO_COLOR=no_color) as command:
        assert command.wait() == 1
        assert ("\x1b[31m" in command.text) == coloured
        assert "error: there is no topic 'nix'" in command.plain
    assert "\x1b" not in run(*arguments).stderr


def test_a_reader_that_has_gone_is_no_error(address: str, log: Log, topic: str) -> None:
    log.create(topic)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        (*PENSTOCK, "topics", "--server", address),
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_while_connecting_is_quiet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts and says nothing
        silent.settimeout(30)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with OnTerminal("topics", "--server", address) as command:
            connection, _ = silent.accept()
            with connection:
                assert command.interrupt() == 130
            assert command.text == ""
