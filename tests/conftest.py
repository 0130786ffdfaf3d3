"""Fixtures for the servers and programs that tests need, and the profiles of hypothesis."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import settings

from penstock.testing import KafkaProcess, LogServerProcess, kafka_missing

if TYPE_CHECKING:  # most runs need no Spark
    from pyspark.sql import SparkSession

# What these assert is to be explained as in a test, whoever imports them first.
pytest.register_assert_rewrite("tests.log.server.plain_client", "tests.log.server.scenes")

IN_CI = os.environ.get("CI") == "true"

# Rooms whose tests start processes, wait for clients, or try out thousands of cases.
LONG_ROOMS = (
    "tests/cli/",
    "tests/examples/",
    "tests/faults/",
    "tests/log/client/",
    "tests/log/server/",
    "tests/log/test_contract",
    "tests/log/test_owner",
    "tests/peers/",
    "tests/streams/state/",
    "tests/test_pages",
)

# No deadline: how long one example takes says more about the machine than about the code.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if IN_CI else "here")


def without_peer(reason: str) -> NoReturn:
    """Skips the test on a person's machine; in CI, where every peer must be there, fails it."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Whoever asks for a peer is marked as needing one, and whoever lives in a room of long tests
    # as slow, so that `make fast` leaves them out.
    for item in items:
        if any(room in item.path.as_posix() for room in LONG_ROOMS):
            item.add_marker(pytest.mark.slow)
        if "tests/peers/" in item.path.as_posix():
            # Clients of other projects leave sockets open now and then.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
        if {"kafka", "require_program"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.peer)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaProcess]:
    """One Apache Kafka for the whole run: tests keep apart by the names of their topics."""
    if missing := kafka_missing():
        without_peer(missing)
    with KafkaProcess() as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One Spark for the whole process: tests keep apart by the folders of their checkpoints."""
    from penstock.streams.spark.session import open_session

    session = open_session("tests", master="local[2]", settings={"spark.driver.memory": "1g"})
    yield session
    session.stop()


@pytest.fixture(autouse=True, scope="module")
def no_arenas_left() -> Iterator[None]:
    """State that a test has used stays mapped in its process; hundreds would take all the file
    descriptors that `select` can wait for."""
    yield
    if state := sys.modules.get("penstock.streams.state.bucket"):
        state.unmap("/")


@pytest.fixture
def log_server(tmp_path: Path) -> Iterator[LogServerProcess]:
    with LogServerProcess(tmp_path / "data") as server:
        yield server


@pytest.fixture
def require_program() -> Callable[[str], str]:
    """Gives the path of a program, or skips the test where there is none."""

    def path_of(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            without_peer(f"{name} is not installed")
        return path

    return path_of
