"""What a log server may be told."""

from dataclasses import dataclass, field

from penstock.log.groups.settings import GroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    auto_create: bool = True
    partitions: int = 1
    """Of a topic that is created without a number, or by itself."""
    max_frame_bytes: int = 100 * 1024 * 1024
    max_connections: int = 4096
    idle_seconds: float = 600.0
    exit_when_idle_seconds: float | None = None
    """Ends the server once nobody has been connected for so long."""
    groups: GroupSettings = field(default_factory=GroupSettings)
