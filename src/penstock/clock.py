"""The only place that asks the system for the time, and the reading of durations."""

import math
import re
import time
from datetime import UTC, datetime, timedelta

from penstock.errors import InvalidDuration

monotonic = time.monotonic

_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def now_ms() -> int:
    """Wall time in milliseconds since 1970, the unit of every timestamp in the log."""
    return time.time_ns() // 1_000_000


def sleep(seconds: float) -> None:
    time.sleep(seconds)


Duration = str | timedelta
"""As `"10s"`, `"5 minutes"` or `"1h 30m"`."""


def duration_ms(duration: Duration) -> int:
    """Milliseconds in `"10s"`, `"5 minutes"`, `"1h 30m"` or a timedelta."""
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1_000)
    total, position, text = 0.0, 0, str(duration).lower()
    while match := _DURATION.match(text, position):
        amount, unit = match.groups()
        scale = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if scale is None:
            break
        total += float(amount) * scale
        position = match.end()
    if position == 0 or position != len(text) or math.isinf(total):
        raise InvalidDuration(
            f"{duration!r} is not a duration",
            hint='write a number and a unit, such as "10s", "5 minutes", "1h 30m" or "7 days"',
        )
    return round(total)


def instant_text(timestamp_ms: int) -> str:
    """2026-01-31T10:03:00.000Z for people and for JSON lines."""
    moment = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1_000:03d}Z"
