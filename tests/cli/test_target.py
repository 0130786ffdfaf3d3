from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import Log
from penstock.cli import cli
from penstock.log.owner import find
from tests.cli.conftest import Invoke
from tests.cli.running import ended_server, run


def test_a_command_joins_the_server_of_the_folder_or_starts_one(tmp_path: Path) -> None:
    folder = tmp_path / "penstock-data"
    with ended_server(folder):
        created = run("topics", "create", "orders", cwd=tmp_path)
        assert (created.returncode, created.stdout) == (0, "created orders with 1 partition\n")
        server = find(folder)
        assert server is not None
        assert "orders" in run("topics", cwd=tmp_path).stdout
        assert "orders" in run("topics", "--data", "penstock-data", cwd=tmp_path).stdout
        assert find(folder) == server


@pytest.mark.parametrize("arguments", [["topics"], ["tail", "t"], ["produce", "t"], ["groups"]])
def test_reading_does_not_make_a_log(arguments: list[str], tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    failed = CliRunner().invoke(cli, [*arguments, "--data", str(missing)])
    assert failed.exit_code == 1
    assert failed.stderr.startswith(f"error: there is no log in {missing}\n  hint: ")
    assert not missing.exists()


def test_the_options_may_stand_behind_the_group_or_the_command(address: str, topic: str) -> None:
    invoke = CliRunner().invoke
    assert invoke(cli, ["topics", "--server", address, "create", topic]).exit_code == 0
    assert invoke(cli, ["topics", "describe", topic, "--server", address]).exit_code == 0


def test_a_folder_and_an_address_are_one_too_many(address: str) -> None:
    failed = CliRunner().invoke(cli, ["topics", "--server", address, "--data", "x"])
    assert failed.exit_code == 2
    assert "give one of them" in failed.stderr


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    invoke = CliRunner().invoke
    assert invoke(cli, ["topics", "--data", str(file)]).exit_code == 2
    below = invoke(cli, ["topics", "create", "t", "--data", str(file / "below")])
    assert below.exit_code == 1
    assert below.stderr.startswith("error: Not a directory: opening the log in")


def test_unknown_names_bring_near_ones(penstock: Invoke, log: Log, topic: str) -> None:
    log.create(topic)
    log.commit(f"g-{topic}", {(topic, 0): 0})
    for arguments in (
        ["topics", "describe", topic[:-1]],
        ["topics", "alter", topic[:-1], "--partitions", "2"],
        ["topics", "delete", topic[:-1], "--yes"],
        ["produce", topic[:-1]],
        ["tail", topic[:-1]],
        ["tail", topic[:-1], "--group", "g"],
        ["groups", "reset", f"g-{topic}", "--topic", topic[:-1], "--to-start"],
    ):
        failed = penstock(*arguments)
        assert failed.exit_code == 1
        assert f"error: there is no topic {topic[:-1]!r}\n  hint: did you mean" in failed.stderr
        assert repr(topic) in failed.stderr
    failed = penstock("groups", "describe", f"g-{topic}x")
    assert f"did you mean 'g-{topic}'?" in failed.stderr


def test_an_unknown_name_like_no_other_says_how_to_make_it(penstock: Invoke) -> None:
    assert "hint: make it: penstock topics create qqqq" in penstock("produce", "qqqq").stderr
    assert "hint: see the list: penstock groups" in penstock("groups", "describe", "qqqq").stderr
