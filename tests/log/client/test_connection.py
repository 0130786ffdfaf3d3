import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import (
    GroupNotEmpty,
    InvalidInput,
    InvalidPolicy,
    LogError,
    LogUnreachable,
    PenstockError,
    RecordTooLarge,
    StorageFailed,
    TopicExists,
    TopicNotFound,
)
from penstock.log.client.connection import logger, meaning, meaningful, settings


@pytest.mark.parametrize(
    ("address", "servers"),
    [
        ("localhost:9092", "localhost:9092"),
        ("kafka://localhost:9092", "localhost:9092"),
        ("kafka://a:9092,b:9093/", "a:9092,b:9093"),
        ("[::1]:9092", "[::1]:9092"),
    ],
)
def test_an_address_is_read(address: str, servers: str) -> None:
    assert settings(address)["bootstrap.servers"] == servers


@pytest.mark.parametrize("address", ["", "localhost", "kafka://", "a:1,b", "kafka://a:1,"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="host:port"):
        settings(address)


def test_own_settings_are_named_as_in_kafka() -> None:
    assert settings("a:1", fetch_wait_max_ms=5)["fetch.wait.max.ms"] == 5


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicNotFound),
        (KafkaError.TOPIC_ALREADY_EXISTS, TopicExists),
        (KafkaError.INVALID_CONFIG, InvalidPolicy),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLarge),
        (KafkaError.KAFKA_STORAGE_ERROR, StorageFailed),
        (KafkaError.NON_EMPTY_GROUP, GroupNotEmpty),
        (KafkaError._ALL_BROKERS_DOWN, LogUnreachable),
    ],
)
def test_an_error_has_a_meaning_and_a_hint(code: int, kind: type[PenstockError]) -> None:
    error = meaning(KafkaError(code, "as told"), "topic 'orders' cannot be written")
    assert type(error) is kind
    assert error.message == "topic 'orders' cannot be written: as told"
    assert error.hint


def test_an_error_that_is_not_known_is_still_one_of_ours() -> None:
    with pytest.raises(LogError, match="cannot be read: odd"), meaningful("it cannot be read"):
        raise KafkaException(KafkaError(KafkaError.INVALID_VOTER_KEY, "odd"))


def test_the_client_s_reports_of_failed_connections_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        logger.error("FAIL [penstock#consumer-1]: Connect to 127.0.0.1:1 failed")
        logger.warning("OFFSET [penstock#consumer-1]: offset reset")
    assert [line.levelname for line in caplog.records] == ["WARNING"]
