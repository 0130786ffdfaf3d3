"""Moments as people give them: a time, a duration, which is so long ago, or a position in the log.

The same on the command line, in Python and over HTTP, which is of this machine alone: a time
without a zone is meant in the machine's own.
"""

from datetime import datetime

from penstock.clock import duration_ms, now_ms
from penstock.errors import InvalidDuration, InvalidInput
from penstock.events.record import Position
from penstock.serve.positions import is_position, read_position

Moment = str | int | datetime | Position
"""A time (ISO 8601, or milliseconds since 1970), a duration such as "10m", or a position."""

_EARLIEST, _LATEST = -(2**63), 2**63 - 1


def read_moment(when: Moment) -> int | Position:
    """Milliseconds since 1970, or the position. Raises InvalidInput."""
    if isinstance(when, str) and is_position(when):
        return read_position(when)
    if isinstance(when, Position):
        return when
    try:
        found = _milliseconds(when)
    except (ValueError, OverflowError):  # InvalidDuration among them
        found = None
    if found is None or not _EARLIEST <= found <= _LATEST:
        raise InvalidInput(
            f"{when!r} is neither a time nor a position",
            hint="2026-01-31T10:00 in local time, 2026-01-31T10:00:00Z, 10m ago as 10m, "
            "or orders/0@17",
        ) from None
    return found


def _milliseconds(when: str | int | datetime) -> int:
    match when:
        case int():
            return when
        case datetime():
            return round(when.astimezone().timestamp() * 1_000)
    try:
        return now_ms() - duration_ms(when)
    except InvalidDuration:
        return _milliseconds(datetime.fromisoformat(when))
