"""Time cut into panes: pieces that windows are made of, numbered in their order.

    Even(60_000_000).number(times)      the minute of each time, in microseconds since 1970
    Calendar("day", "Europe/Berlin")    local days, of 23, 24 or 25 hours

A pane contains its start and not its end, which is the start of the next one.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers

MONDAY = -3  # the first day of the week that 1970 began in, which was a Thursday
UNITS = ("day", "week", "month", "year")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000
_FIRST_DAY = date.min.toordinal() - date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - date(1970, 1, 1).toordinal()


class Panes(Protocol):
    def number(self, times: Numbers) -> Numbers:
        """The pane of each time, which is in microseconds."""
        ...

    def start(self, numbers: Numbers) -> Numbers:
        """When each pane begins, in microseconds."""
        ...


@dataclass(frozen=True)
class Even:
    """Panes of the same width, one of which begins at `offset`; both in microseconds."""

    width: int
    offset: int = 0

    def number(self, times: Numbers) -> Numbers:
        return (times - self.offset) // self.width

    def start(self, numbers: Numbers) -> Numbers:
        return numbers * self.width + self.offset


@dataclass(frozen=True)
class Calendar:
    """Days, weeks from Monday on, months or years of a time zone, moved by `offset` microseconds.

    They are counted from that of 1970-01-01, or from the one that is `first` by this count.
    A day begins at midnight; where the clocks skip it, at the first moment of the day that is.
    """

    unit: str
    zone: str = "UTC"
    offset: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        zone_named(self.zone)

    def number(self, times: Numbers) -> Numbers:
        numbers = self._of_days((times - self.offset) // _DAY) - self.first
        # The local date may be another than that of UTC.
        while (early := self.start(numbers) > times).any():
            numbers = numbers - early
        while (late := self.start(numbers + 1) <= times).any():
            numbers = numbers + late
        return numbers

    def start(self, numbers: Numbers) -> Numbers:
        each, places = np.unique(numbers, return_inverse=True)
        starts = [
            _start_of(self.unit, self.zone, number) for number in (each + self.first).tolist()
        ]
        return np.array(starts, np.int64)[places] + self.offset

    def _of_days(self, days: Numbers) -> Numbers:
        """The pane that a local day lies in; days are counted from 1970."""
        days = days.clip(_FIRST_DAY, _LAST_DAY)
        match self.unit:
            case "day":
                return days
            case "week":
                return (days - MONDAY) // 7
            case "month":
                return days.astype("M8[D]").astype("M8[M]").astype(np.int64)
            case _:
                return days.astype("M8[D]").astype("M8[Y]").astype(np.int64)


@lru_cache(100_000)
def _start_of(unit: str, zone: str, number: int) -> int:
    days = number * 7 + MONDAY
    if unit != "week":
        code = {"day": "D", "month": "M", "year": "Y"}[unit]
        days = int(np.array(number).astype(f"M8[{code}]").astype("M8[D]").astype(np.int64))
    if not _FIRST_DAY < days < _LAST_DAY:
        return days * _DAY  # where the calendar of time zones ends
    midnight = datetime.fromordinal(days + date(1970, 1, 1).toordinal())
    # Of a midnight that comes twice the first; one that is skipped is read as if the clocks had
    # not been moved yet, which is the moment at which they are.
    moment = midnight.replace(tzinfo=zone_named(zone), fold=0)
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


@cache
def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            f"there is no time zone {name!r}", hint="a name such as Europe/Berlin or UTC"
        ) from None


def panes_spec(panes: Panes) -> dict[str, Any]:
    return {"panes": type(panes).__name__.lower(), **vars(panes)}


def panes_from_spec(spec: dict[str, Any]) -> Panes:
    options = dict(spec)
    made: Panes = {"even": Even, "calendar": Calendar}[options.pop("panes")](**options)
    return made
