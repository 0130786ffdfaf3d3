"""The same requests, byte by byte, to the log and to Apache Kafka: the answers must be alike."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.log.extension import API_KEY
from penstock.log.policy import SETTINGS
from penstock.log.server import handlers as _handlers  # noqa: F401  fills the table
from penstock.log.server.call import APIS
from penstock.testing import KafkaProcess, LogServerProcess, wait_until
from tests.log.server.batches import MALFORMED, SEQUENCES, Answer, Sent
from tests.log.server.plain_client import PlainClient, plain
from tests.log.server.scenes import SCENES
from tests.log.server.scenes.stage import await_coordinator, new_producer_id, new_topic

# Given out by chance: all that can be alike is whether there is one.
BY_CHANCE = {"topic_id", "member_id", "leader", "producer_id", "leader_epoch"}
# Who answers.
OWN = {"host", "port", "cluster_id", "rack", "client_host", "throttle_time"}
# Every text is our own; rights and transactions are not there to be lacking.
NOT_OURS = {
    "error_message",
    "authorized_operations",
    "topic_authorized_operations",
    "aborted_transactions",
    "config_source",
    "config_type",
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
    "api_keys",
}
LEFT_OUT = OWN | NOT_OURS
SETTINGS_ALIKE = {*SETTINGS, "num.partitions"} - {"durability", "segment.bytes"}


@pytest.fixture(scope="module")
def peers(
    kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The addresses of the log and of Kafka, both ready for groups."""
    with (
        LogServerProcess(tmp_path_factory.mktemp("data")) as server,
        PlainClient(kafka.address) as client,
    ):
        await_coordinator(client)
        wait_until(lambda: new_producer_id(client) >= 0, within=30, what="an id for a producer")
        yield server.address, kafka.address


@pytest.fixture
def clients(peers: tuple[str, str]) -> Iterator[tuple[PlainClient, PlainClient]]:
    with PlainClient(peers[0]) as ours, PlainClient(peers[1]) as theirs:
        yield ours, theirs


def comparable(answer: Any) -> Any:
    match answer:
        case dict():
            return {
                name: _part(name, part) for name, part in answer.items() if name not in LEFT_OUT
            }
        case list():
            return [comparable(part) for part in answer]
        case str():
            return re.sub("[0-9a-f]{32}", "#", answer)
    return answer


def _part(name: str, part: Any) -> Any:
    if name in BY_CHANCE:
        return part not in (None, "", -1)
    return _settings(part) if name == "configs" else comparable(part)


def _settings(configs: list[dict[str, Any]]) -> dict[str, Any]:
    """Those that both know, in any order."""
    return {each["name"]: comparable(each) for each in configs if each["name"] in SETTINGS_ALIKE}


@pytest.mark.parametrize(
    ("schema", "version"),
    [
        pytest.param(api.schema, version, id=f"{api.schema}-{version}")
        for api in sorted(APIS.values())
        for version in range(api.oldest, api.newest + 1)
    ],
)
def test_every_version_is_answered_alike(
    clients: tuple[PlainClient, PlainClient], schema: str, version: int
) -> None:
    ours, theirs = (plain(SCENES[schema](client, version)) for client in clients)

    assert comparable(ours) == comparable(theirs)


def test_kafka_offers_every_version_that_the_log_offers(
    clients: tuple[PlainClient, PlainClient],
) -> None:
    ours, theirs = (
        {
            (key.api_key, version)
            for key in client.ask("api_versions", 0).api_keys
            for version in range(key.min_version, key.max_version + 1)
        }
        for client in clients
    )

    assert ours - {(API_KEY, 0)} <= theirs  # but for the one that is our own


@pytest.mark.parametrize("story", SEQUENCES.values(), ids=SEQUENCES)
def test_kafka_answers_an_idempotent_producer_alike(
    clients: tuple[PlainClient, PlainClient], story: list[tuple[Sent, Answer]]
) -> None:
    _, client = clients
    topic, producer = new_topic(client, 1, records=0), new_producer_id(client)

    answers = [client.produce(topic, sent(producer)) for sent, _ in story]

    assert [(a.error_code, a.base_offset) for a in answers] == [expected for _, expected in story]


def test_kafka_refuses_malformed_batches_alike(
    clients: tuple[PlainClient, PlainClient],
) -> None:
    _, client = clients
    topic, producer = new_topic(client, 1, records=0), new_producer_id(client)

    codes = {
        name: client.produce(topic, sent(producer)).error_code
        for name, (sent, _) in MALFORMED.items()
    }

    assert codes == {name: code for name, (_, code) in MALFORMED.items()}
