"""Dates and times as text, ISO 8601, and as numbers: days and microseconds since 1970 in UTC.

The years are 1 to 9999, which are Spark's too.
"""

import numpy as np

from penstock.events.compiled import Bytes, Number, Numbers, Positions, kernel, part

EARLIEST = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
LATEST = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z

INSTANT_BYTES = 27  # the most that `write_instants` writes for one

# What `days` finds in what is no date, and what `instant` can find.
NO_DAYS = -(2**40)
NO_INSTANT, LOCAL, ZONED = 0, 1, 2

_DAY = 86_400_000_000


@part
def _digits(source: Bytes, at: Number, count: int) -> Number:
    """A number of so many digits, or one far below zero."""
    number = np.int64(0)
    for place in range(count):
        digit = np.int64(source[np.uint64(at + place)]) - 48
        if digit < 0 or digit > 9:
            return np.int64(-1_000_000)
        number = number * 10 + digit
    return number


@part
def days(source: Bytes, at: Number, end: Number) -> Number:
    """The days since 1970 of YYYY-MM-DD, which must be all there is, or NO_DAYS."""
    if end - at != 10 or source[np.uint64(at + 4)] != 45 or source[np.uint64(at + 7)] != 45:
        return np.int64(NO_DAYS)
    year = _digits(source, at, 4)
    month = _digits(source, at + 5, 2)
    day = _digits(source, at + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return np.int64(NO_DAYS)
    longest = 31
    if month == 2:
        leaps = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        longest = 29 if leaps else 28
    elif month in (4, 6, 9, 11):
        longest = 30
    if day > longest:
        return np.int64(NO_DAYS)
    # Years from March on, so that the leap day comes last.
    if month <= 2:
        year -= 1
        month += 12
    leap_days = year // 4 - year // 100 + year // 400
    return np.int64(year * 365 + leap_days + (153 * (month - 3) + 2) // 5 + day - 719_469)


@part
def instant(source: Bytes, at: Number, end: Number) -> tuple[int, Number]:
    """The microseconds of a date and time, and whether it names its zone.

    YYYY-MM-DD, T or a space, HH:MM, :SS, a fraction of up to nine digits, of which those after the
    sixth are cut off, and Z, +HH, +HH:MM or +HHMM. From the seconds on, all may be left out.
    """
    date = days(source, at, min(at + 10, end))
    if date == NO_DAYS or end - at < 16:
        return NO_INSTANT, np.int64(0)
    between = source[np.uint64(at + 10)]
    hour = _digits(source, at + 11, 2)
    minute = _digits(source, at + 14, 2)
    if (between not in (84, 32)) or source[np.uint64(at + 13)] != 58:
        return NO_INSTANT, np.int64(0)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59:
        return NO_INSTANT, np.int64(0)
    micros = date * _DAY + (hour * 60 + minute) * 60_000_000
    at += 16
    if end - at >= 3 and source[np.uint64(at)] == 58:
        second = _digits(source, at + 1, 2)
        if second < 0 or second > 59:
            return NO_INSTANT, np.int64(0)
        micros += second * 1_000_000
        at += 3
        if at < end and source[np.uint64(at)] == 46:
            at += 1
            first = at
            unit = np.int64(100_000)
            while at < end and 48 <= source[np.uint64(at)] <= 57:
                micros += unit * (np.int64(source[np.uint64(at)]) - 48)
                unit //= 10
                at += 1
            if at == first or at - first > 9:
                return NO_INSTANT, np.int64(0)
    found = LOCAL
    if at < end:
        found = ZONED
        sign = source[np.uint64(at)]
        at += 1
        if sign in (43, 45):
            left = end - at
            minutes: Number = 0
            if left == 5 and source[np.uint64(at + 2)] == 58:
                minutes = _digits(source, at + 3, 2)
            elif left == 4:
                minutes = _digits(source, at + 2, 2)
            elif left != 2:
                return NO_INSTANT, np.int64(0)
            hours = _digits(source, at, 2)
            if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
                return NO_INSTANT, np.int64(0)
            shift = (hours * 60 + minutes) * 60_000_000
            micros += -shift if sign == 43 else shift
        elif sign != 90 or at != end:
            return NO_INSTANT, np.int64(0)
    if micros < EARLIEST or micros > LATEST:
        return NO_INSTANT, np.int64(0)
    return found, micros


@part
def _write(out: Bytes, at: Number, number: Number, count: int) -> None:
    """Writes a number in so many digits."""
    for place in range(count):
        out[np.uint64(at + count - 1 - place)] = 48 + number % 10
        number //= 10


@part
def _write_date(out: Bytes, at: Number, date: Number) -> None:
    # Years from March on, in eras of 400 years, so that the leap day comes last.
    date += 719_468
    era = date // 146_097
    day = date - era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month += 3
    year += era * 400
    if month > 12:
        month -= 12
        year += 1
    _write(out, at, year, 4)
    out[np.uint64(at + 4)] = 45
    _write(out, at + 5, month, 2)
    out[np.uint64(at + 7)] = 45
    _write(out, at + 8, day + 1, 2)


@kernel
def write_instants(instants: Numbers, zoned: bool, places: Positions, out: Bytes) -> None:
    """Writes times, with as much of the fraction as is needed, and Z where they are zoned.

    There is room for INSTANT_BYTES of each; `places` gets where each begins, and the last ends.
    """
    at = np.int64(0)
    for row in range(instants.shape[0]):
        places[np.uint64(row)] = at
        micros = instants[np.uint64(row)]
        date = micros // _DAY
        micros -= date * _DAY
        seconds = micros // 1_000_000
        micros -= seconds * 1_000_000
        _write_date(out, at, date)
        out[np.uint64(at + 10)] = 84
        _write(out, at + 11, seconds // 3600, 2)
        out[np.uint64(at + 13)] = 58
        _write(out, at + 14, seconds // 60 % 60, 2)
        out[np.uint64(at + 16)] = 58
        _write(out, at + 17, seconds % 60, 2)
        at += 19
        if micros:
            out[np.uint64(at)] = 46
            if micros % 1000:
                _write(out, at + 1, micros, 6)
                at += 7
            else:
                _write(out, at + 1, micros // 1000, 3)
                at += 4
        if zoned:
            out[np.uint64(at)] = 90
            at += 1
    places[np.uint64(instants.shape[0])] = at
