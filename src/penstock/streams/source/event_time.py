"""When events happened, how long to wait for late ones, and the rule that follows for each row."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Self

from penstock.clock import Duration, duration_ms
from penstock.errors import InvalidInput

DEFAULT_GUARD = "1 day"

TIMES = range(-62_135_596_800_000_000, 253_402_300_800_000_000)  # microseconds, years 1 to 9999
_LONGEST = 10_000 * 366 * 86_400_000  # milliseconds; sums of times and durations stay in 64 bits


@dataclass(frozen=True, slots=True)
class EventTime:
    """`EventTime("at", wait="10s", correct_for="1h", idle_after="30s")`.

    `column` names the field that says when an event happened; without one it is the record's
    timestamp. Devices whose clocks are wrong say when it `occurred` and when they `sent` it by the
    same clock, and the record's timestamp, or the column `received`, says when it came: the event
    is put at `occurred + received - sent`.

    `wait` is how far an event may be behind the latest one of its partition and still be on time;
    for `correct_for` longer it corrects what was given out before; after that it is rejected.
    `idle_after` lets a partition that is silent for so long, by the wall clock, no longer hold the
    others back. `guard` is how far an event may be ahead of the time of its being appended.
    """

    column: str | None = None
    wait: Duration = "0s"
    correct_for: Duration = "0s"
    idle_after: Duration | None = None
    guard: Duration = DEFAULT_GUARD
    occurred: str | None = None
    sent: str | None = None
    received: str | None = None

    def __post_init__(self) -> None:
        if (self.occurred is None) != (self.sent is None):
            raise InvalidInput(
                "the correction of device clocks needs both occurred= and sent=",
                hint='EventTime(occurred="taken_at", sent="sent_at")',
            )
        if self.column and self.occurred:
            raise InvalidInput(
                f"the event time is either {self.column!r} or calculated from {self.occurred!r}",
                hint="leave one of them out",
            )
        if self.received and not self.occurred:
            raise InvalidInput(
                "received= says nothing without occurred= and sent=",
                hint='EventTime(occurred="taken_at", sent="sent_at", received="came_at")',
            )
        self.rule()

    def of_table(self) -> "Rule":
        """As the rule of a table, whose rows never come too late: they count from their time on."""
        return replace(self.rule(), correct_for=len(TIMES), until_read=True)

    def rule(self) -> "Rule":
        return Rule(
            column=self.column,
            wait=_micros("wait", self.wait),
            correct_for=_micros("correct_for", self.correct_for),
            idle_after=None if self.idle_after is None else _micros("idle_after", self.idle_after),
            guard=_micros("guard", self.guard),
            occurred=self.occurred,
            sent=self.sent,
            received=self.received,
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """An EventTime in microseconds, as it travels to the tasks that read.

    Without `wait` the clock is moved by punctuation alone, as in a topic that a node writes. With
    `until_read` there is none until everything is read that was there when reading began, and then
    it is past all others: a table holds nobody back any more.
    """

    column: str | None = None
    wait: int | None = None
    correct_for: int = 0
    idle_after: int | None = None
    guard: int | None = None
    occurred: str | None = None
    sent: str | None = None
    received: str | None = None
    until_read: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a row that its event time is taken from."""
        fields = (self.column, self.occurred, self.sent, self.received)
        return tuple(field for field in fields if field)

    def text(self) -> str:
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value is not None}
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidInput for what `text` did not write."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            raise InvalidInput(
                f"event_time={text!r} is not the rule of an event time",
                hint='such as {"column": "at", "wait": 10000000}, in microseconds',
            ) from None


def _micros(name: str, duration: Duration) -> int:
    millis = duration_ms(duration)
    if not 0 <= millis <= _LONGEST:
        raise InvalidInput(f"{name}={duration!r} is no time to wait", hint="from 0 to 10,000 years")
    return millis * 1_000
