"""What the tests of faults share."""

import os
from collections.abc import Iterator

import pytest

from penstock.testing import KafkaProcess, kafka_missing
from tests.conftest import without_peer
from tests.log.storage.conftest import syncs

__all__ = ["syncs"]


@pytest.fixture
def kafka() -> Iterator[KafkaProcess]:
    """One for each test, as its app has the names of topics for itself."""
    if missing := kafka_missing():
        without_peer(missing)
    with KafkaProcess() as server:
        yield server


@pytest.fixture
def quick_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the thousand small logs of a test that cuts nobody's power."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
