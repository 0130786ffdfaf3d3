"""Points in time as people give and read them."""

from datetime import UTC, datetime

import click

from penstock.clock import duration_ms, now_ms
from penstock.errors import InvalidDuration


def moment(text: str) -> int:
    """Milliseconds since 1970 of an ISO time, or of a duration such as 10m, which is so long ago.

    A time without a zone is meant in the machine's own.
    """
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1_000)
    except (ValueError, OverflowError):
        pass
    try:
        return now_ms() - duration_ms(text)
    except InvalidDuration:
        raise click.BadParameter(
            f"{text!r} is neither a time such as 2026-01-31T10:00 nor a duration such as 10m."
        ) from None


def local_time(timestamp: int) -> datetime | None:
    """None when the calendar has no such day, which a record's timestamp is free to say."""
    try:
        return datetime.fromtimestamp(timestamp / 1_000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None
