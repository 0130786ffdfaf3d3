"""Windows: which rows of a key are taken together, by their event time.

    window(clicks, tumbling("1 minute"), by="page", n=count())
    window(clicks, hopping("1 hour", "5 minutes"), by="page", n=count())
    window(clicks, tumbling("1 day", zone="Europe/Berlin"), by="page", n=count())
    window(clicks, sliding("5 minutes"), by="user", n=count())
    window(clicks, session("30 minutes"), by="user", n=count())

A window contains its start and not its end; a sliding one its end and not its start.
"""

import re
from dataclasses import dataclass
from math import gcd
from typing import Any

from penstock.clock import Duration, duration_ms
from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers
from penstock.streams.algebra.windows.panes import (
    MONDAY,
    UNITS,
    Calendar,
    Even,
    Panes,
    panes_from_spec,
    panes_spec,
)

_MOST_PANES = 10_000
_LONGEST = 10_000 * 366 * 86_400_000_000  # microseconds; times and lengths stay in 64 bits
_DAY_MS = 86_400_000
_SECONDS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_MOST_OF = {"day": 3_660_000, "week": 522_000, "month": 120_000, "year": 10_000}
_CALENDAR = re.compile(rf"\s*(?:(\d+)\s*)?({'|'.join(UNITS)})s?\s*")


@dataclass(frozen=True)
class Hopping:
    """Windows of `size` panes, one of which begins every `hop` panes."""

    panes: Panes
    size: int
    hop: int

    def starts(self, numbers: Numbers) -> Numbers:
        """When the windows of these numbers begin, in microseconds."""
        return self.panes.start(numbers * self.hop)

    def ends(self, numbers: Numbers) -> Numbers:
        return self.panes.start(numbers * self.hop + self.size)


@dataclass(frozen=True)
class Session:
    """What is no more than `gap` microseconds apart from each other, one by one."""

    gap: int


@dataclass(frozen=True)
class Sliding:
    """The last `size` microseconds up to each event."""

    size: int


Window = Hopping | Session | Sliding


def tumbling(size: Duration, *, offset: Duration = "0s", zone: str | None = None) -> Hopping:
    """Windows one after the other.

    They are aligned to 1970-01-01T00:00 in UTC, moved by `offset`. With a `zone`, days, weeks (from
    Monday on), months and years are those of the calendar there, and a day may have 23 or 25 hours;
    months and years are those of the calendar in any case.
    """
    return hopping(size, size, offset=offset, zone=zone)


def hopping(
    size: Duration, step: Duration, *, offset: Duration = "0s", zone: str | None = None
) -> Hopping:
    """Windows one of which begins every `step`, and that overlap when `size` is longer than that.

    A row that lies between two windows, as there may be when `size` is shorter, is in none.
    Alignment as in `tumbling`; by the calendar, both are of the same unit.
    """
    moved = micros("offset", offset, least=0)
    by_calendar = [_by_calendar(each, zone) for each in (size, step)]
    if all(by_calendar):
        (sizes, unit), (hops, other) = by_calendar  # type: ignore[misc]
        first = 0
        if {unit, other} == {"day", "week"}:
            sizes, hops = (n * 7 if u == "week" else n for n, u in ((sizes, unit), (hops, other)))
            unit, other, first = "day", "day", MONDAY
        if {unit, other} == {"month", "year"}:
            sizes, hops = (n * 12 if u == "year" else n for n, u in ((sizes, unit), (hops, other)))
            unit = other = "month"
        if unit == other:
            return Hopping(Calendar(unit, zone or "UTC", moved, first), sizes, hops)
    if any(by_calendar):
        raise InvalidInput(
            f"windows of {size!r} every {step!r} do not fit into one calendar",
            hint="give both in days or weeks, or both in months or years",
        )
    length, hop = micros("size", size), micros("step", step)
    if zone is not None:
        raise InvalidInput(
            f"windows of {size!r} every {step!r} have no calendar of {zone} to follow",
            hint="a zone is for whole days, weeks, months and years; move others by offset=",
        )
    width = gcd(length, hop)
    if length // width > _MOST_PANES:
        raise InvalidInput(
            f"a window of {size!r} every {step!r} has {length // width:,} panes, each of "
            f"{in_words(width)}",
            hint=f"at most {_MOST_PANES:,}: let `step` divide `size`, or begin windows less often",
        )
    return Hopping(Even(width, moved % hop), length // width, hop // width)


def sliding(size: Duration) -> Sliding:
    """For each event a window that ends with it: what is less than `size` before, and itself.

    So whatever events are less than `size` apart from each other are together in the window that
    ends with the last of them.
    """
    return Sliding(micros("size", size))


def session(gap: Duration) -> Session:
    """Events of a key, each no more than `gap` after the one before.

    A session begins with its first event and ends `gap` after its last; events exactly `gap` apart
    are in one.
    """
    return Session(micros("gap", gap))


def _by_calendar(duration: Duration, zone: str | None) -> tuple[int, str] | None:
    """How many of which unit of the calendar, None for a length of time that is always the same."""
    match = _CALENDAR.fullmatch(duration.lower()) if isinstance(duration, str) else None
    if match is None:
        days, rest = divmod(duration_ms(duration), _DAY_MS)
        return (days, "day") if zone is not None and days and not rest else None
    if zone is None and match[2] in ("day", "week"):
        return None
    count = int(match[1] or 1)
    if not 1 <= count <= _MOST_OF[match[2]]:
        raise InvalidInput(
            f"{duration!r} is no length of a window", hint="from 1 day to 10,000 years"
        )
    return count, match[2]


def micros(name: str, duration: Duration, least: int = 1) -> int:
    """A length of time in microseconds. Raises InvalidInput, with the name of what it is for."""
    micros = duration_ms(duration) * 1_000
    if not least <= micros <= _LONGEST:
        raise InvalidInput(
            f"{name}={duration!r} is no length of time", hint="from 1 ms to 10,000 years"
        )
    return micros


def counted(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def in_words(micros: int) -> str:
    """A length of time in the largest unit of which it is a whole number."""
    for unit, seconds in _SECONDS.items():
        if micros % (seconds * 1_000_000) == 0:
            return counted(micros // (seconds * 1_000_000), unit)
    return f"{micros / 1_000:g} ms"


def window_spec(window: Window) -> dict[str, Any]:
    if isinstance(window, Session):
        return {"window": "session", "gap": window.gap}
    if isinstance(window, Sliding):
        return {"window": "sliding", "size": window.size}
    return {
        "window": "hopping",
        "panes": panes_spec(window.panes),
        "size": window.size,
        "hop": window.hop,
    }


def window_from_spec(spec: dict[str, Any]) -> Window:
    if spec["window"] == "session":
        return Session(spec["gap"])
    if spec["window"] == "sliding":
        return Sliding(spec["size"])
    return Hopping(panes_from_spec(spec["panes"]), spec["size"], spec["hop"])
