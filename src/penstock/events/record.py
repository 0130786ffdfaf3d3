"""A record, and where one stands in the log."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import InvalidInput

_CONTENT = (bytes, type(None))

Header = tuple[str, bytes | None]


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a producer appends and a consumer reads.

    `timestamp` is in milliseconds since 1970; the log fills in the present when it is None.
    `topic`, `partition` and `offset` are set on what was read; a `partition` set by hand decides
    where an appended record goes, otherwise its key does.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    topic: str = ""
    partition: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        if type(self.value) not in _CONTENT or type(self.key) not in _CONTENT:
            wrong = "value" if type(self.value) not in _CONTENT else "key"
            raise InvalidInput(
                f"a record's {wrong} is bytes or None, not {type(getattr(self, wrong)).__name__}",
                hint='encode text first: "…".encode()',
            )

    @property
    def position(self) -> Position:
        if self.partition is None or self.offset is None:
            raise ValueError("this record has not been read from a log")
        return Position(self.topic, self.partition, self.offset)
