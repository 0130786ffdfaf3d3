"""Punctuation: a record that says "I send no more events before this time". It is not a row."""

from collections.abc import Sequence

from penstock.errors import InvalidInput
from penstock.events.record import Record

HEADER = "penstock-clock"


def punctuation(producer: str, time: int, *, partition: int | None = None) -> Record:
    """The record by which `producer` promises no event before `time` (microseconds)."""
    return Record(
        value=None,
        headers=((HEADER, f"{time} {producer}".encode()),),
        partition=partition,
    )


def read_punctuation(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, int] | None:
    """The producer and its promise in microseconds, None when these headers have none."""
    for name, content in headers:
        if name == HEADER:
            try:
                time, producer = (content or b"").decode().split(" ", 1)
                return producer, int(time)
            except ValueError:
                raise InvalidInput(
                    f"a header {HEADER} holds {content!r}",
                    hint="microseconds since 1970, a space, and the producer's name",
                ) from None
    return None
