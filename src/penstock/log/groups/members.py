"""Who is in a group: its members in the order they came, the one that leads, what they agree on."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from kio.schema.errors import ErrorCode

from penstock.log.groups.messages import Join, JoinAnswer, Joined, OnJoin, OnSync, SyncAnswer


class Timer(Protocol):
    def cancel(self) -> object: ...


Schedule = Callable[[float, Callable[[], None]], Timer]


@dataclass(slots=True, kw_only=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    # True until its first generation: it has not been told its id, so it cannot send heartbeats.
    new: bool = False
    session: Timer | None = None
    on_join: OnJoin | None = None
    on_sync: OnSync | None = None

    @property
    def waiting(self) -> bool:
        return self.on_join is not None or self.on_sync is not None

    def update(self, join: Join) -> None:
        self.protocols = join.protocols
        self.session_ms = join.session_ms
        self.rebalance_ms = join.rebalance_ms

    def wait_for_join(self, answer: OnJoin) -> None:
        # A second request can only come from a client that gave up on its first.
        self.answer_join(JoinAnswer(ErrorCode.rebalance_in_progress, self.id))
        self.on_join = answer

    def wait_for_sync(self, answer: OnSync) -> None:
        self.answer_sync(SyncAnswer(ErrorCode.rebalance_in_progress))
        self.on_sync = answer

    def answer_join(self, answer: JoinAnswer) -> None:
        """Answers the request that waits, if one does."""
        waiting, self.on_join = self.on_join, None
        if waiting is not None:
            waiting(answer)

    def answer_sync(self, answer: SyncAnswer) -> None:
        waiting, self.on_sync = self.on_sync, None
        if waiting is not None:
            waiting(answer)

    def end_session(self) -> None:
        if self.session is not None:
            self.session.cancel()
            self.session = None


def member_of(member_id: str, join: Join) -> Member:
    return Member(
        id=member_id,
        instance_id=join.instance_id,
        client_id=join.client_id,
        client_host=join.client_host,
        session_ms=join.session_ms,
        rebalance_ms=join.rebalance_ms,
        protocols=join.protocols,
    )


class Members:
    """Members by their ids, with one of them leading as long as there are any."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, Member] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        """All as they are now: the set may change while one goes through them."""
        return iter(tuple(self._by_id.values()))

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self._by_instance.get(instance_id)

    def add(self, member: Member) -> None:
        self._by_id[member.id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member
        self.leader = self.leader or member.id

    def remove(self, member: Member) -> None:
        del self._by_id[member.id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self._by_id), None)

    def replace(self, old: Member, new: Member) -> None:
        """Puts another in a static member's stead, leading if the old one led."""
        led = self.leader == old.id
        self.remove(old)
        self.add(new)
        if led:
            self.leader = new.id

    @property
    def joined(self) -> int:
        return sum(member.on_join is not None for member in self._by_id.values())

    @property
    def rebalance_ms(self) -> int:
        return max((member.rebalance_ms for member in self._by_id.values()), default=0)

    def elect(self) -> bool:
        """Lets the first that has joined lead if the leader has not; False when none has joined."""
        joined = [member.id for member in self._by_id.values() if member.on_join is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    def support(self, protocol: str) -> bool:
        return all(protocol in member.protocols for member in self._by_id.values())

    def parts(self, protocol: str) -> tuple[Joined, ...]:
        """What each member says under a protocol that all support."""
        return tuple(
            Joined(member.id, member.instance_id, member.protocols[protocol])
            for member in self._by_id.values()
        )

    def vote(self) -> str:
        """The protocol that most members like best among those that all support."""
        shared = set.intersection(*(set(member.protocols) for member in self))
        votes = Counter(
            next(name for name in member.protocols if name in shared) for member in self
        )
        return votes.most_common(1)[0][0]
