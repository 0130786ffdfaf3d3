import re
import signal
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from penstock import Log, Record
from penstock.cli import cli
from penstock.log.owner import Ownership, find
from penstock.testing import LogServerProcess
from tests.cli.running import OnTerminal, Running, run


def serving(data: Path, *options: str) -> Running:
    return Running("log", "serve", "--data", str(data), "--listen", "127.0.0.1:0", *options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_until_a_signal(tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        server.shows("serving")
        address = find(data)
        assert address is not None
        with Log.connect(address) as log:
            log.create("t")
        assert server.interrupt(number) == 0
        lines = server.text.splitlines()
    assert lines[0] == f"listening on {address}"
    messages = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines[1:]]
    assert messages[0] == f"info     serving {data} with 0 topics"
    assert messages[-1] == f"info     ending: {signal.Signals(number).name}"
    assert find(data) is None


def test_standard_output_is_the_address_alone(tmp_path: Path) -> None:
    listen = ("--listen", "127.0.0.1:0", "--idle-exit", "1ms")
    done = run("log", "serve", "--data", str(tmp_path / "data"), *listen)
    assert done.returncode == 0
    assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+\n", done.stdout)
    assert "ending: nobody is connected" in done.stderr


def test_a_second_server_is_told_who_the_first_is(log_server: LogServerProcess) -> None:
    data = str(log_server.data)
    for arguments in (["serve", "--listen", "127.0.0.1:0"], ["verify"]):
        refused = run("log", *arguments, "--data", data)
        assert refused.returncode == 1
        assert refused.stdout == ""
        assert refused.stderr.startswith(
            f"error: {data} is in use by process {log_server.pid} at {log_server.address}\n  hint: "
        )
    assert log_server.running


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = run("log", "serve", "--data", str(tmp_path / "data"), "--listen", address)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: cannot listen on {address}: ")
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("options", "partitions"), [(["--partitions", "3"], 3), (["--no-auto-create"], None)]
)
def test_options_reach_the_server(
    tmp_path: Path, options: list[str], partitions: int | None
) -> None:
    with LogServerProcess(tmp_path / "data", *options) as server:
        client = Consumer(
            {
                "bootstrap.servers": server.address,
                "group.id": "g",
                "allow.auto.create.topics": True,
            }
        )
        # Asking for a topic by its name makes it, if the server does that.
        client.list_topics("made-by-asking", timeout=20)
        client.close()
        with Log.connect(server.address) as log:
            found = {name: len(log.describe(name).partitions) for name in log.topics()}
    assert found == ({} if partitions is None else {"made-by-asking": partitions})


@pytest.mark.parametrize(
    "options",
    [["--idle-exit", "soon"], ["--partitions", "0"], ["--max-connections", "0"], ["--port", "1"]],
)
def test_wrong_options(tmp_path: Path, options: list[str]) -> None:
    data = tmp_path / "data"
    failed = CliRunner().invoke(cli, ["log", "serve", "--data", str(data), *options])
    assert failed.exit_code == 2
    assert not data.exists()


def test_messages_are_coloured_on_a_terminal(tmp_path: Path) -> None:
    arguments = ("log", "serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0")
    with OnTerminal(*arguments) as server:
        assert "\x1b[32minfo" in server.shows("serving")
    with OnTerminal(*arguments, NO_COLOR="1") as server:
        assert "\x1b" not in server.shows("serving")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log that was closed: a topic of three batches in its one partition, and one in memory."""
    with Log.open(tmp_path / "data") as log:
        log.create("t")
        for _ in range(3):
            log.append("t", [Record(value=b"v" * 100)])
        log.create("m", durability="memory")
        log.append("m", [Record(value=b"v")])
    return tmp_path / "data"


def segment(data: Path) -> Path:
    [path] = (data / "topics" / "t" / "0").glob("*.log")
    return path


def test_verify_a_sound_log(data: Path) -> None:
    checked = CliRunner().invoke(cli, ["log", "verify", "--data", str(data)])
    assert checked.exit_code == 0
    assert re.fullmatch(
        r"checked 2 partitions, 2 segments, [\d.]+ (B|KiB): sound\n", checked.output
    )


def test_verify_reports_damage_with_file_and_position(data: Path) -> None:
    path = segment(data)
    size = path.stat().st_size
    content = bytearray(path.read_bytes())
    content[size // 3 + 80] ^= 1
    path.write_bytes(content)
    checked = CliRunner().invoke(cli, ["log", "verify", "--data", str(data)])
    assert checked.exit_code == 1
    damage, summary = checked.stdout.splitlines()
    assert damage == f"{path} is damaged at byte {size // 3}: the checksum does not fit the bytes"
    assert summary.endswith(": 1 damaged place")
    assert path.read_bytes() == content


def test_verify_without_a_log(tmp_path: Path) -> None:
    failed = CliRunner().invoke(cli, ["log", "verify", "--data", str(tmp_path / "no")])
    assert failed.exit_code == 1
    assert failed.stderr.startswith(f"error: there is no log in {tmp_path / 'no'}\n")
    assert not (tmp_path / "no").exists()


def test_verify_says_what_it_cannot_read(data: Path) -> None:
    facts = data / "topics" / "t" / "topic.json"
    facts.unlink()
    facts.mkdir()
    failed = CliRunner().invoke(cli, ["log", "verify", "--data", str(data)])
    assert failed.exit_code == 1
    assert failed.stderr.startswith("error: the disk failed")
    Ownership(data).release()  # it has let go of it
