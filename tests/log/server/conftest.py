"""A server for each module of tests, and a client for each test."""

from collections.abc import Iterator

import pytest

from tests.log.server.plain_client import PlainClient
from tests.log.server.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Tests keep apart by the names of their topics."""
    with Served(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[PlainClient]:
    with PlainClient(served.address) as client:
        yield client
