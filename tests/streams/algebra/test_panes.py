import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra.windows.panes import Calendar, Even, panes_from_spec, panes_spec

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZONES = ["UTC", "Europe/Berlin", "America/Havana", "Asia/Kathmandu", "Pacific/Apia"]

_moments = st.integers(-70 * 365 * 86_400, 130 * 365 * 86_400).map(
    lambda seconds: EPOCH + dt.timedelta(seconds=seconds)
)


def micros(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def first_day(unit: str, day: dt.date) -> dt.date:
    match unit:
        case "day":
            return day
        case "week":
            return day - dt.timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case _:
            return day.replace(month=1, day=1)


@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
@pytest.mark.parametrize("zone", ZONES)
@given(st.lists(_moments, min_size=1, max_size=5))
@example([dt.datetime(2026, 3, 29, 0, 59, 59, tzinfo=dt.UTC)])
@example([dt.datetime(2026, 3, 8, 5, 0, tzinfo=dt.UTC)])  # midnight is skipped in Havana
@example([dt.datetime(2026, 11, 1, 4, 30, tzinfo=dt.UTC)])  # and comes twice
@example([dt.datetime(2011, 12, 30, 10, 0, tzinfo=dt.UTC)])  # Apia skips a day
def test_a_time_lies_in_the_pane_of_its_local_date(
    zone: str, unit: str, moments: list[dt.datetime]
) -> None:
    panes = Calendar(unit, zone)
    times = np.array([micros(each) for each in moments])
    numbers = panes.number(times)
    assert (panes.start(numbers) <= times).all()
    assert (times < panes.start(numbers + 1)).all()
    for moment, start in zip(moments, panes.start(numbers).tolist(), strict=True):
        began = (EPOCH + dt.timedelta(microseconds=start)).astimezone(ZoneInfo(zone))
        local = moment.astimezone(ZoneInfo(zone))
        assert began.date() == first_day(unit, local.date()) or began.time() == dt.time(1)
        before = (EPOCH + dt.timedelta(microseconds=start - 1)).astimezone(ZoneInfo(zone))
        assert first_day(unit, before.date()) < first_day(unit, local.date())


@pytest.mark.parametrize(
    ("day", "hours"), [((2026, 3, 29), 23), ((2026, 7, 1), 24), ((2026, 10, 25), 25)]
)
def test_a_local_day_has_23_24_or_25_hours(day: tuple[int, int, int], hours: int) -> None:
    panes = Calendar("day", "Europe/Berlin")
    noon = dt.datetime(*day, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    (number,) = panes.number(np.array([micros(noon)]))
    start, end = panes.start(np.array([number, number + 1]))
    assert end - start == hours * 3_600_000_000


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(-(10**15), 10**15))
def test_even_panes(width: int, offset: int, time: int) -> None:
    panes = Even(width, offset)
    number = panes.number(np.array([time]))
    start = int(panes.start(number)[0])
    assert start <= time < start + width
    assert (start - offset) % width == 0


@pytest.mark.parametrize("panes", [Even(5, 2), Calendar("month", "Asia/Tokyo", 7)])
def test_panes_travel(panes: Even | Calendar) -> None:
    assert panes_from_spec(panes_spec(panes)) == panes


def test_a_zone_that_is_not_there() -> None:
    with pytest.raises(InvalidInput, match="'Mars/Olympus'") as refused:
        Calendar("day", "Mars/Olympus")
    assert "Europe/Berlin" in refused.value.hint
