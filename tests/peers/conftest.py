"""The clients that the suite runs with, each against one log server for the whole module."""

import gc
import itertools
import re
import shutil
import warnings
from collections.abc import Iterator
from uuid import UUID

import pytest

from penstock.events.batch import decode
from penstock.events.record import Record
from penstock.testing import LogServerProcess, kafka_missing
from tests.conftest import without_peer
from tests.log.server.plain_client import PlainClient
from tests.peers.clients.aiokafka import AioKafka
from tests.peers.clients.confluent import Confluent
from tests.peers.clients.contract import Client
from tests.peers.clients.java import Java
from tests.peers.clients.kafka_python import KafkaPython
from tests.peers.clients.kcat import Kcat

CLIENTS: list[type[Client]] = [Confluent, KafkaPython, AioKafka, Kcat, Java]
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asks(*things): runs with the clients that can do all these")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a client runs with each that can do what its marker `asks` names."""
    if "client" in metafunc.fixturenames:
        asks = [name for mark in metafunc.definition.iter_markers("asks") for name in mark.args]
        able = [client for client in CLIENTS if client.able(*asks)]
        metafunc.parametrize("client", able, indirect=True, ids=lambda client: client.name)


@pytest.fixture(autouse=True, scope="module")
def leaking_clients() -> Iterator[None]:
    """Collects here what a client of another project leaves open, so that no later test is blamed.

    The server runs in a process of its own: no socket of penstock's is among them.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def opened(kind: type[Client], address: str) -> Client:
    if kind is Kcat and shutil.which("kcat") is None:
        without_peer("kcat is not installed")
    if kind is Java and (missing := kafka_missing()):
        without_peer(missing)
    return kind(address)


def topic_id(client: PlainClient, topic: str) -> UUID:
    wanted = {"topics": [{"name": topic, "topic_id": None}], "allow_auto_topic_creation": False}
    answer = client.ask("metadata", 12, **wanted, include_topic_authorized_operations=False)
    identity: UUID = answer.topics[0].topic_id
    return identity


def stored_in(client: PlainClient, topic: str) -> list[Record]:
    """What the topic's first partition holds."""
    return list(decode(memoryview(client.fetch(topic_id(client, topic)).records or b"")))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServerProcess]:
    with LogServerProcess(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def client(request: pytest.FixtureRequest, server: LogServerProcess) -> Client:
    return opened(request.param, server.address)


@pytest.fixture
def plain(server: LogServerProcess) -> Iterator[PlainClient]:
    """Looks at the server from the side."""
    with PlainClient(server.address) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic is not there yet."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"{name[:60]}-{next(_numbers)}"
