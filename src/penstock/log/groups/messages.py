"""What members ask of their group, and what they are told."""

from collections.abc import Callable
from typing import NamedTuple

from kio.schema.errors import ErrorCode


class Join(NamedTuple):
    """A wish to be in the group's next generation.

    `member_id` is empty for a member that has no id yet. `protocols` are what the member could
    work with, the best first, each with the member's own part (a consumer's subscription).
    `takes_id` says that the client understands being sent away with an id to come again, and
    `skips_assignment` that it understands leading without assigning.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: dict[str, bytes]
    takes_id: bool = True
    skips_assignment: bool = True

    @property
    def size(self) -> int:
        said = sum(len(name) + len(part) for name, part in self.protocols.items())
        return said + len(self.client_id) + len(self.instance_id or "") + len(self.protocol_type)


class Sync(NamedTuple):
    """A member's question for its part; from the leader, also the answer for all of them.

    The protocol is None where the client's version does not say it.
    """

    member_id: str
    instance_id: str | None
    generation: int
    assignments: dict[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None

    def agrees_on(self, protocol_type: str | None, protocol: str | None) -> bool:
        same_type = self.protocol_type in (None, protocol_type)
        return same_type and self.protocol in (None, protocol)


class Joined(NamedTuple):
    member_id: str
    instance_id: str | None
    part: bytes


class JoinAnswer(NamedTuple):
    """`members` is filled for the leader, which assigns unless it is told to skip that."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[Joined, ...] = ()
    skip_assignment: bool = False


class SyncAnswer(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


OnJoin = Callable[[JoinAnswer], None]
OnSync = Callable[[SyncAnswer], None]
