"""How long members may be silent, how many there may be, and how long offsets are kept."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times are in milliseconds. The limits bound what clients can make the log remember."""

    min_session_ms: int = 6_000
    max_session_ms: int = 1_800_000
    # How long a group's first rebalance waits for more members, again for each that comes.
    initial_delay_ms: int = 0
    # How long a member that has never been in a generation may wait for its first.
    new_member_ms: int = 300_000
    max_members: int = 1_000
    max_groups: int = 10_000
    # Of one member: what it says when it joins, and what its leader assigns to it.
    max_member_bytes: int = 1_048_576
    # Of the note that may go with a committed offset, in characters.
    max_note: int = 4_096
    retention_ms: int = 7 * 86_400_000
    retention_check_ms: int = 600_000
