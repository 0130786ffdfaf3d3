from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from penstock.errors import LogUnreachable
from penstock.testing import LogServerProcess


def broker_at(address: str) -> str:
    brokers = AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).brokers
    return ", ".join(f"{broker.host}:{broker.port}" for broker in brokers.values())


def test_answers_as_soon_as_it_is_there(log_server: LogServerProcess) -> None:
    assert broker_at(log_server.address) == log_server.address
    assert 0 < log_server.startup_seconds < 10
    assert 1_000_000 < log_server.resident_bytes < 500_000_000


def test_stops_cleanly(log_server: LogServerProcess) -> None:
    assert log_server.stop() == 0
    assert not log_server.running


@pytest.mark.parametrize("end", ["kill", "stop", "neither"])
def test_comes_back_at_the_same_address(log_server: LogServerProcess, end: str) -> None:
    address, pid = log_server.address, log_server.pid
    getattr(log_server, end, lambda: None)()

    log_server.restart()

    assert log_server.pid != pid
    assert broker_at(address) == log_server.address == address


def test_says_why_it_does_not_start(log_server: LogServerProcess) -> None:
    owner = f"process {log_server.pid} at {log_server.address}"

    with pytest.raises(LogUnreachable, match=owner), LogServerProcess(log_server.data):
        pass


def test_hands_its_options_to_the_server(tmp_path: Path) -> None:
    refusal = r"No such option.*--sideways"

    with pytest.raises(LogUnreachable, match=refusal), LogServerProcess(tmp_path, "--sideways"):
        pass
