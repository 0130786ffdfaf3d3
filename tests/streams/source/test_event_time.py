from datetime import timedelta
from typing import Any

import pytest

from penstock.errors import InvalidDuration, InvalidInput
from penstock.streams.source.event_time import EventTime, Rule


def test_a_rule_is_in_microseconds() -> None:
    told = EventTime("at", wait="10s", correct_for=timedelta(hours=1), idle_after="500ms")
    assert told.rule() == Rule("at", 10_000_000, 3_600_000_000, 500_000, 86_400_000_000)


@pytest.mark.parametrize(
    "told",
    [
        EventTime(),
        EventTime("at", wait="10s", correct_for="1h", idle_after="30s", guard="2h"),
        EventTime(occurred="a", sent="b", received="c"),
    ],
)
def test_a_rule_as_text(told: EventTime) -> None:
    assert Rule.parse(told.rule().text()) == told.rule()
    assert Rule.parse(Rule().text()) == Rule()


@pytest.mark.parametrize(
    ("told", "columns"),
    [
        ({}, ()),
        ({"column": "at"}, ("at",)),
        ({"occurred": "a", "sent": "b"}, ("a", "b")),
        ({"occurred": "a", "sent": "b", "received": "c"}, ("a", "b", "c")),
    ],
)
def test_the_columns_of_a_rule(told: dict[str, str], columns: tuple[str, ...]) -> None:
    assert EventTime(**told).rule().columns == columns


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"occurred": "a"}, "both occurred= and sent="),
        ({"sent": "a"}, "both occurred= and sent="),
        ({"column": "at", "occurred": "a", "sent": "b"}, "either 'at' or"),
        ({"received": "c"}, "nothing without occurred="),
        ({"wait": timedelta(seconds=-1)}, "wait="),
        ({"correct_for": "4000000 days"}, "correct_for="),
        ({"guard": "99999999999999999999 weeks"}, "guard="),
    ],
)
def test_what_cannot_be_meant(told: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        EventTime(**told)


def test_a_duration_is_read_at_once() -> None:
    with pytest.raises(InvalidDuration):
        EventTime("at", wait="soon")


@pytest.mark.parametrize("text", ["", "10s", "[]", '{"delay": 1}'])
def test_no_rule(text: str) -> None:
    with pytest.raises(InvalidInput, match="event_time="):
        Rule.parse(text)
