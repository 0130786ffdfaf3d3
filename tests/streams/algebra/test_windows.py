from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from penstock.errors import InvalidDuration, InvalidInput
from penstock.streams.algebra import hopping, session, tumbling
from penstock.streams.algebra.windows.panes import Calendar, Even
from penstock.streams.algebra.windows.window import (
    Hopping,
    Session,
    Window,
    window_from_spec,
    window_spec,
)

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (tumbling("1 minute"), Hopping(Even(60 * SECOND), 1, 1)),
        (tumbling(timedelta(seconds=5)), Hopping(Even(5 * SECOND), 1, 1)),
        (tumbling("1h", offset="90m"), Hopping(Even(3600 * SECOND, 1800 * SECOND), 1, 1)),
        (hopping("1 minute", "10s"), Hopping(Even(10 * SECOND), 6, 1)),
        (hopping("10s", "4s"), Hopping(Even(2 * SECOND), 5, 2)),
        (hopping("2s", "5s"), Hopping(Even(SECOND), 2, 5)),
        (tumbling("1 day"), Hopping(Even(86_400 * SECOND), 1, 1)),
        (tumbling("1 day", zone="Asia/Tokyo"), Hopping(Calendar("day", "Asia/Tokyo"), 1, 1)),
        (tumbling("1d", zone="UTC"), Hopping(Calendar("day", "UTC"), 1, 1)),
        (tumbling(timedelta(days=2), zone="UTC"), Hopping(Calendar("day", "UTC"), 2, 2)),
        (tumbling("2 weeks", zone="UTC"), Hopping(Calendar("week", "UTC"), 2, 2)),
        (tumbling("month"), Hopping(Calendar("month", "UTC"), 1, 1)),
        (
            hopping("1 week", "1 day", zone="UTC"),
            Hopping(Calendar("day", "UTC", first=-3), 7, 1),
        ),
        (hopping("1 year", "3 months"), Hopping(Calendar("month", "UTC"), 12, 3)),
        (session("30 minutes"), Session(1800 * SECOND)),
    ],
)
def test_what_is_meant(window: Window, expected: Window) -> None:
    assert window == expected
    assert window_from_spec(window_spec(window)) == expected


@pytest.mark.parametrize(
    ("size", "options", "told"),
    [
        ("0s", {}, "size='0s'"),
        ("1 hour", {"zone": "Asia/Tokyo"}, "Asia/Tokyo"),
        ("1 month", {"step": "1 day", "zone": "UTC"}, "one calendar"),
        ("1 month", {"step": "1h"}, "one calendar"),
        ("0 months", {}, "'0 months'"),
        ("1 day", {"zone": "Nowhere"}, "'Nowhere'"),
        ("1 hour", {"step": "1001ms"}, "3,600,000 panes"),
        ("200000000 days", {}, "'200000000 days'"),
    ],
)
def test_what_cannot_be_meant_is_refused(size: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        hopping(size, **{"step": size, **options})
    assert told in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_what_begins_every_week_begins_on_monday(zone: str) -> None:
    every = [
        hopping("2 days", "1 week", zone=zone),
        hopping("1 week", "14 days", zone=zone),
        tumbling("1 week", zone=zone),
    ]
    numbers = np.arange(-30, 3000)
    for window in every:
        starts = window.starts(numbers)
        begun = [datetime.fromtimestamp(each / SECOND, ZoneInfo(zone)) for each in starts.tolist()]
        assert {(each.weekday(), each.hour, each.minute) for each in begun} == {(0, 0, 0)}
        panes = window.panes.number(starts)
        assert (panes == numbers * window.hop).all()
        assert (window.panes.number(window.ends(numbers) - 1) == panes + window.size - 1).all()


def test_a_length_that_is_no_length() -> None:
    with pytest.raises(InvalidDuration):
        session("soon")
