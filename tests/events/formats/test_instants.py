"""Times in text, against Python's own reading of them."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.events.formats.column_text import column_text
from penstock.events.formats.fitting import Misfit, fit_for
from penstock.events.formats.instants import EARLIEST, LATEST

UTC = pa.timestamp("us", tz="UTC")
read = fit_for(UTC)
read_date = fit_for(pa.date32())
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def micros(time: dt.datetime) -> int:
    return (time - EPOCH) // dt.timedelta(microseconds=1)


@given(
    st.integers(EARLIEST, LATEST), st.sampled_from(["T", " "]), st.sampled_from(["Z", "", "+00"])
)
def test_every_time_is_written_and_read(number: int, between: str, zone: str) -> None:
    text = column_text(pa.array([number], UTC))[0].as_py()
    time = EPOCH + dt.timedelta(microseconds=number)
    assert dt.datetime.fromisoformat(text) == time
    assert read(text) == number
    assert read(text.replace("T", between).replace("Z", zone)) == number


@given(
    st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),  # noqa: DTZ001
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from(["{}{:02}:{:02}", "{}{:02}{:02}"]),
)
def test_offsets(local: dt.datetime, minutes: int, form: str) -> None:
    zone = form.format("-" if minutes < 0 else "+", *divmod(abs(minutes), 60))
    time = local.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    assert read(local.isoformat() + zone) == micros(time)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-15T10:03", dt.datetime(2026, 11, 15, 10, 3, tzinfo=dt.UTC)),
        ("2026-11-15 10:03-05", dt.datetime(2026, 11, 15, 15, 3, tzinfo=dt.UTC)),
        ("2026-11-15T10:03:00.5Z", dt.datetime(2026, 11, 15, 10, 3, 0, 500000, dt.UTC)),
        ("2026-11-15T10:03:00.123456999", dt.datetime(2026, 11, 15, 10, 3, 0, 123456, dt.UTC)),
        ("1969-12-31T23:59:59.9999999Z", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)),
    ],
)
def test_short_and_long_forms(text: str, time: dt.datetime) -> None:
    assert read(text) == micros(time)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "2026", "2026-11-15", "2026-11-15T", "2026-11-15T10", "2026-11-15T10:3", "abc"),
        *("2026-11-15T24:00", "2026-11-15T10:60", "2026-11-15T10:03:60", "2026-11-15t10:03"),
        *("2026-11-15T10:03:", "2026-11-15T10:03:0", "2026-11-15T10:03:00.", "2026-1-15T10:03"),
        *("2026-11-15T10:03:00,5", "2026-11-15T10:03:00.1234567890", "2026-11-15T10:03:00z"),
        *("2026-11-15T10:03:00ZZ", "2026-11-15T10:03+1", "2026-11-15T10:03+24:00"),
        *("2026-11-15T10:03+01:60", "2026-11-15T10:03+01:0", "2026-11-15T10:03+001:00"),
        *("2026-11-15T10:03 +01:00", "2023-02-29T00:00", "1900-02-29T00:00", "2026-04-31T00:00"),
        *("2026-00-10T00:00", "2026-13-01T00:00", "0000-01-01T00:00", "0001-01-01T00:00+01:00"),
        *("9999-12-31T23:59:59-00:01", " 2026-11-15T10:03", "2026-11-15T10:03 "),
        *("+2026-11-15T10:03", "20261115T100300Z", "2026/11/15T10:03", "2026-11-1\u0665T10:03"),
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(Misfit):
        read(text)


@given(st.dates())
def test_every_date_is_read(date: dt.date) -> None:
    assert read_date(date.isoformat()) == date.toordinal() - EPOCH.toordinal()


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_only_dates_that_there_are(year: int, month: int, day: int) -> None:
    text = f"{year:04}-{month:02}-{day:02}"
    try:
        expected = dt.date.fromisoformat(text).toordinal() - EPOCH.toordinal()
    except ValueError:
        with pytest.raises(Misfit):
            read_date(text)
    else:
        assert read_date(text) == expected


@pytest.mark.parametrize("number", [EARLIEST - 1, LATEST + 1])
def test_years_that_have_no_form(number: int) -> None:
    with pytest.raises(InvalidInput, match="years 1 to 9999"):
        column_text(pa.array([0, None, number], UTC))
