from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.moment import local_time, moment
from penstock.clock import now_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-01-01T12:00:00Z", 1_767_268_800_000),
        ("2026-01-01T13:00:00.250+01:00", 1_767_268_800_250),
        ("1970-01-01T00:00Z", 0),
    ],
)
def test_an_iso_time(text: str, milliseconds: int) -> None:
    assert moment(text) == milliseconds


def test_a_time_without_a_zone_is_local() -> None:
    there = datetime(2026, 1, 1, 12).astimezone()
    assert moment("2026-01-01T12:00") == there.timestamp() * 1_000
    assert local_time(moment("2026-01-01T12:00")) == there


@pytest.mark.parametrize(
    ("text", "ago"), [("10m", timedelta(minutes=10)), ("1d 2h", timedelta(hours=26))]
)
def test_a_duration_is_so_long_ago(text: str, ago: timedelta) -> None:
    before = now_ms()
    found = moment(text)
    assert before <= found + ago / timedelta(milliseconds=1) <= now_ms()


@pytest.mark.parametrize("text", ["", "yesterday", "-10m", "10", "2026-13-01", "2026-01-01T99:00"])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="10m"):
        moment(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_timestamp_has_a_time_or_none(timestamp: int) -> None:
    found = local_time(timestamp)
    assert found is None or abs(found.astimezone(UTC).timestamp() * 1_000 - timestamp) < 1
