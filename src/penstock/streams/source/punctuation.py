"""Punctuation: a record that says "I send no more events before this time". It is not a row."""

from collections.abc import Sequence

from penstock.errors import InvalidInput
from penstock.events.record import Record
from penstock.streams.source.event_time import TIMES

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
                if (micros := int(time)) in TIMES:
                    return producer, micros
            except ValueError:
                pass
            raise InvalidInput(
                f"a header {HEADER} holds {_shown(content)}",
                hint="microseconds since 1970, a space, and the producer's name",
            )
    return None


def _shown(content: bytes | None) -> str:
    text = repr(content)
    return text if len(text) <= 60 else f"{text[:59]}…"
