"""What the tests of faults share."""

from tests.log.storage.conftest import syncs

__all__ = ["syncs"]
