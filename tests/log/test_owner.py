import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Log
from penstock.errors import LogClosed, LogLocked
from penstock.log.owner import LOCK_FILE, Ownership, find, find_or_start
from penstock.testing import LogServerProcess, wait_until


def test_the_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    with Log.open(tmp_path), pytest.raises(LogLocked, match=f"process {os.getpid()}"):
        Log.open(tmp_path)
    Log.open(tmp_path).close()


def test_the_refusal_names_the_address_of_a_server(log_server: LogServerProcess) -> None:
    with pytest.raises(LogLocked, match=f"process {log_server.pid} at {log_server.address}"):
        Log.open(log_server.data)
    assert find(log_server.data) == log_server.address


def test_a_killed_owner_leaves_the_folder_free(log_server: LogServerProcess) -> None:
    log_server.kill()
    assert json.loads((log_server.data / LOCK_FILE).read_text())["pid"] == log_server.pid
    assert find(log_server.data) is None
    with Log.open(log_server.data) as log:
        assert log.topics() == []


def test_joining_starts_one_server_for_everybody(tmp_path: Path) -> None:
    with Log.join(tmp_path) as first, Log.join(tmp_path) as second:
        pid = json.loads((tmp_path / LOCK_FILE).read_text())["pid"]
        try:
            first.create("orders")
            assert second.topics() == ["orders"]
            assert pid != os.getpid()
        finally:
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: find(tmp_path) is None, within=10, what="the server's end")


def test_a_server_started_for_others_ends_when_they_are_gone(tmp_path: Path) -> None:
    address = find_or_start(tmp_path, idle_exit="1s")
    with Log.connect(address) as log:
        assert log.topics() == []
    wait_until(lambda: find(tmp_path) is None, within=30, what="the server's end")


def test_a_killed_server_is_started_again_where_it_was(log_server: LogServerProcess) -> None:
    with Log.connect(log_server.address) as log:
        log.create("orders")
        log_server.kill()
        found = find_or_start(log_server.data, listen=log_server.address, idle_exit="1s")
        assert found == log_server.address
        assert log.topics() == ["orders"]  # whoever was connected goes on
    wait_until(lambda: find(log_server.data) is None, within=30, what="the server's end")


def test_ownership_ends_with_the_process_however_it_ends(tmp_path: Path) -> None:
    hold = (
        "import os; from pathlib import Path; from penstock.log.owner import Ownership;"
        f"Ownership(Path({str(tmp_path)!r})); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", hold], check=False)
    Ownership(tmp_path).release()


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.create("orders")
    log.close()
    log.close()
    with pytest.raises(LogClosed):
        log.topics()
    with pytest.raises(LogClosed):
        list(log.read("orders", 0, 0))


def test_joining_a_folder_that_a_program_has_for_itself_says_which(tmp_path: Path) -> None:
    with Log.open(tmp_path), pytest.raises(LogLocked, match=f"process {os.getpid()}"):
        Log.join(tmp_path)
