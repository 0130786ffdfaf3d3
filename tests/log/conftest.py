"""What the tests of every log share."""

import itertools
import re

import pytest

pytest.register_assert_rewrite(
    "tests.log.contract.topics",
    "tests.log.contract.records",
    "tests.log.contract.following",
    "tests.log.contract.groups",
    "tests.log.contract.exact",
)

_numbers = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic is not there yet."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"{name[:60]}-{next(_numbers)}"


@pytest.fixture
def group(topic: str) -> str:
    return f"readers-of-{topic}"
