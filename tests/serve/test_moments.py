"""Times, durations and positions, read alike wherever they are given."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Position
from penstock.cli.moment import moment
from penstock.clock import now_ms
from penstock.errors import InvalidInput
from penstock.serve.moments import read_moment

NOON = 1_767_268_800_000  # 2026-01-01T12:00Z


@pytest.fixture(autouse=True)
def in_tokyo() -> Iterator[None]:
    """Nine hours before UTC, all year."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    "text", ["2026-01-01T21:00", "2026-01-01T12:00Z", "2026-01-01T13:00+01:00"]
)
def test_a_time_as_on_the_command_line(text: str) -> None:
    assert read_moment(text) == moment(text) == NOON
    assert read_moment(datetime.fromisoformat(text)) == NOON


def test_a_duration_is_so_long_ago() -> None:
    before = now_ms()
    found = read_moment("1h 10m")
    assert isinstance(found, int)
    assert before <= found + timedelta(minutes=70) / timedelta(milliseconds=1) <= now_ms()


def test_what_is_known_already() -> None:
    position = Position("orders", 0, 17)
    assert read_moment(position) == read_moment(" orders/0@17") == position
    assert read_moment(NOON) == read_moment(datetime(2026, 1, 1, 12, tzinfo=UTC)) == NOON


@pytest.mark.parametrize(
    "when", ["", "noon", "10", "2026-13-01", "orders/0", 2**63, f"{'9' * 30}d", f"{'9' * 400}d"]
)
def test_anything_else_is_refused(when: Any) -> None:
    with pytest.raises(InvalidInput, match="neither a time nor a position"):
        read_moment(when)
