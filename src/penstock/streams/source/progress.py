"""How far the reading of a partition has come: all that the class of its next row depends on."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from penstock.streams.source.event_time import Rule


@dataclass(slots=True)
class Progress:
    """What was seen of a partition before offset `at`, in microseconds, and what became of it.

    `high` is the highest event time, and `promised` what each producer said by punctuation: that
    it sends no more events before that time. Always `read == kept + sum(rejected.values())`;
    stragglers are among those kept; marks are punctuation, which are no rows.
    """

    at: int
    high: int | None = None
    promised: dict[str, int] = field(default_factory=dict)
    marks: int = 0
    read: int = 0
    kept: int = 0
    stragglers: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def clock(self, rule: Rule) -> int | None:
        """The time before which this partition's events are late; None before its first."""
        times = []
        if self.high is not None and rule.wait is not None:
            times.append(self.high - rule.wait)
        if self.promised:
            times.append(min(self.promised.values()))
        return max(times, default=None)

    def promise(self, producer: str, time: int) -> None:
        """Takes note of it; no promise takes back another, nor does one who comes later."""
        least = min(self.promised.values(), default=time)
        self.promised[producer] = max(time, self.promised.get(producer, least))

    def copy(self) -> Self:
        return replace(self, promised=dict(self.promised), rejected=Counter(self.rejected))

    def as_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "high": self.high,
            "promised": self.promised,
            "marks": self.marks,
            "read": self.read,
            "kept": self.kept,
            "stragglers": self.stragglers,
            "rejected": dict(self.rejected),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            content["at"],
            content["high"],
            dict(content["promised"]),
            content["marks"],
            content["read"],
            content["kept"],
            content.get("stragglers", 0),  # which earlier versions did not count
            Counter(content["rejected"]),
        )
