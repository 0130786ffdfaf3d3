"""What a topic may be told: how long it keeps records, how it syncs, how large a batch may be.

Kafka's own names are used on the wire (`retention.ms`); Python callers write the same with
underscores, and durations as text (`retention_ms="7 days"` or, shorter, `retention="7 days"`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Self

from penstock.clock import duration_ms
from penstock.errors import InvalidPolicy, InvalidTopic

Setting = str | int | timedelta

FOREVER = -1
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_SHORT = {"retention": "retention.ms", "segment": "segment.ms"}


def check_topic_name(name: str) -> None:
    if not 0 < len(name) <= 249 or not _TOPIC.fullmatch(name) or name in (".", ".."):
        shown = name if len(name) <= 40 else f"{name[:40]}… ({len(name)} characters)"
        raise InvalidTopic(
            f"{shown!r} is not a topic name",
            hint="use 1 to 249 letters, digits, dots, underscores and hyphens",
        )


def _whole(low: int) -> Callable[[str, Setting], int]:
    def parse(name: str, setting: Setting) -> int:
        is_number = str(setting).lstrip("-").isdigit()
        if name.endswith(".ms") and not is_number:
            number = duration_ms(setting if isinstance(setting, timedelta) else str(setting))
        elif is_number:
            number = int(str(setting))
        else:
            raise InvalidPolicy(f"{name}={setting!r} is not a whole number")
        if number < low or number > 2**63 - 1:
            raise InvalidPolicy(f"{name}={number} is out of range", hint=f"{low} or more")
        return number

    return parse


def _one_of(*choices: str) -> Callable[[str, Setting], str]:
    def parse(name: str, setting: Setting) -> str:
        if setting not in choices:
            raise InvalidPolicy(
                f"{name}={setting!r} is not possible", hint=f"one of: {', '.join(choices)}"
            )
        return str(setting)

    return parse


# Every setting a topic knows, by its name on the wire, and how its text is read.
SETTINGS: dict[str, Callable[[str, Setting], int | str]] = {
    "durability": _one_of("fsync", "os", "memory"),
    "retention.ms": _whole(FOREVER),
    "retention.bytes": _whole(FOREVER),
    "segment.bytes": _whole(1024),
    "segment.ms": _whole(1),
    "max.message.bytes": _whole(128),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "cleanup.policy": _one_of("delete"),
    "compression.type": _one_of("producer"),
    "min.insync.replicas": _whole(1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """Times are in milliseconds; -1 means without limit."""

    durability: str = "fsync"
    retention_ms: int = 7 * 86_400_000
    retention_bytes: int = FOREVER
    segment_bytes: int = 256 * 1024 * 1024
    segment_ms: int = 7 * 86_400_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    min_insync_replicas: int = 1

    @classmethod
    def of(cls, settings: Mapping[str, Setting]) -> Self:
        return cls().changed(settings)

    def changed(self, settings: Mapping[str, Setting | None]) -> Self:
        """This policy with some settings changed; None puts a setting back to its default."""
        changes: dict[str, int | str] = {}
        for given, setting in settings.items():
            name = _SHORT.get(given, given.replace("_", "."))
            if name not in SETTINGS:
                raise InvalidPolicy(
                    f"{given!r} is not a topic setting", hint=f"one of: {', '.join(SETTINGS)}"
                )
            field = name.replace(".", "_")
            changes[field] = (
                getattr(type(self)(), field) if setting is None else SETTINGS[name](name, setting)
            )
        return replace(self, **changes)  # type: ignore[arg-type]

    def settings(self) -> dict[str, str]:
        """Every setting as text, by its name on the wire."""
        return {f.name.replace("_", "."): str(getattr(self, f.name)) for f in fields(self)}
