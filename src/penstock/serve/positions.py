"""Positions as text: `orders/0@17`, several with commas between."""

import re

from penstock.errors import InvalidInput
from penstock.events.record import Position

_POSITION = re.compile(r"([^/@\s]+)/(\d{1,9})@(\d{1,18})")


def read_position(text: str) -> Position:
    """Raises InvalidInput."""
    found = _POSITION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(
            f"{text!r} is no position in the log", hint="write TOPIC/PARTITION@OFFSET: orders/0@17"
        )
    return Position(found[1], int(found[2]), int(found[3]))


def read_positions(text: str) -> list[Position]:
    return [read_position(each) for each in text.split(",")]


def is_position(text: str) -> bool:
    return _POSITION.fullmatch(text.strip()) is not None
