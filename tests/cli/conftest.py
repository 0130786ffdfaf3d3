"""A log server for all tests of the command line, and its commands in this process."""

import itertools
import re
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from penstock import Log
from penstock.cli import cli
from penstock.testing import LogServerProcess

_numbers = itertools.count()

Invoke = Callable[..., Result]


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Shared: tests keep apart by the names of their topics and groups."""
    with LogServerProcess(tmp_path_factory.mktemp("log") / "data") as server:
        yield server.address


@pytest.fixture(scope="session")
def log(address: str) -> Iterator[Log]:
    with Log.connect(address) as log:
        yield log


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic is not there yet."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"{name[:40]}-{next(_numbers)}"


@pytest.fixture
def group(topic: str) -> str:
    return f"readers-of-{topic}"


@pytest.fixture
def penstock(address: str) -> Invoke:
    """Runs a command in this process on the shared log."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--server", address])

    return invoke
