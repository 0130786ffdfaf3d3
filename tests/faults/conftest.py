"""What the tests of faults share."""

import os

import pytest

from tests.log.storage.conftest import syncs

__all__ = ["syncs"]


@pytest.fixture
def quick_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the thousand small logs of a test that cuts nobody's power."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
