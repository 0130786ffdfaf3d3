"""Where the reading of a topic begins: "earliest", "latest", a time, or offsets."""

import json
from typing import Any

from penstock.errors import InvalidInput
from penstock.streams.source.topic import SourceTopic


def starts_of(topic: SourceTopic, text: str) -> dict[int, int]:
    """The first offset of each partition. Raises InvalidInput for what is no place in it."""
    bounds = {number: topic.bounds(number) for number in range(topic.partitions())}
    if text == "earliest":
        return {number: each.start for number, each in bounds.items()}
    if text == "latest":
        return {number: each.end for number, each in bounds.items()}
    wanted = _parsed(text)
    assert wanted is not None
    if isinstance(wanted, int):
        return topic.offsets_at(bounds, wanted)
    offsets = {number: wanted.pop(str(number), each.start) for number, each in bounds.items()}
    if wanted:
        raise InvalidInput(
            f"{topic.name!r} has no partition {next(iter(wanted))} to start from",
            hint=f"it has {len(bounds)}, numbered from 0",
        )
    for number, (start, end) in bounds.items():
        if not start <= offsets[number] <= end:
            raise InvalidInput(
                f"{topic.name}/{number} has no offset {offsets[number]} to start from",
                hint=f"it holds {start} to {end}",
            )
    return offsets


def check_start(text: str) -> None:
    """Raises InvalidInput for what cannot be a place in any topic."""
    _parsed(text)


def _parsed(text: str) -> int | dict[str, int] | None:
    """A time or offsets, None for a place that has a name."""
    if text in ("earliest", "latest"):
        return None
    try:
        wanted: Any = json.loads(text)
    except ValueError:
        wanted = None
    numbers = wanted.values() if isinstance(wanted, dict) else [wanted]
    if not all(type(number) is int for number in numbers):
        raise InvalidInput(
            f"start={text!r} is not a place in a topic",
            hint='"earliest", "latest", milliseconds since 1970, or offsets as {"0": 42}',
        )
    found: int | dict[str, int] = wanted
    return found
