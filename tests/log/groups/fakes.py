"""Time turned by hand, a journal that syncs when told to, and a short way to speak to groups."""

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import StorageFailed
from penstock.log.groups.coordinator import Coordinator
from penstock.log.groups.group import Group
from penstock.log.groups.messages import Join, JoinAnswer, Sync, SyncAnswer
from penstock.log.groups.offsets import Committed, TopicPartition
from penstock.log.groups.settings import GroupSettings
from penstock.log.storage.journal import Done, Journal

BOUND = 100_000


class FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Wheel:
    """Stands still until `turn` is called, then calls back in the order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._due: list[tuple[float, int, FakeTimer]] = []

    def schedule(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        heappush(self._due, (self.now + delay, next(self._order), timer))
        return timer

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.schedule(0, lambda: callback(*arguments))

    def turn(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        for _ in range(BOUND):
            if not self._due or self._due[0][0] > end:
                break
            self.now, _, timer = heappop(self._due)
            if timer.callback is not None:
                callback, timer.callback = timer.callback, None
                callback()
        else:
            raise AssertionError("the timers do not come to rest")
        self.now = end

    @property
    def armed(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._due)


class FakeJournal(Journal):
    """Holds facts in memory; with `syncs` off, `sync` is what makes puts durable."""

    def __init__(self, facts: Mapping[bytes, bytes] | None = None) -> None:
        self.facts = dict(facts or {})
        self.syncs = True
        self.puts = 0
        self.refuses: Exception | None = None
        self.failure: Exception | None = None
        self._waiting: list[Done] = []

    def get(self, key: bytes) -> bytes | None:
        return self.facts.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.facts.items())

    def put(self, entries: Mapping[bytes, bytes | None], done: Done | None = None) -> None:
        assert entries
        if self.refuses is not None:
            raise self.refuses
        self.puts += 1
        for key, fact in entries.items():
            if fact is None:
                self.facts.pop(key, None)
            else:
                self.facts[key] = fact
        self._waiting.append(done or (lambda error: None))
        if self.syncs:
            self.sync()

    def sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(self.failure)


DISK = StorageFailed("the disk refused", hint="look at it")


class Rig:
    """A coordinator over a journal and a wheel; `name` is the group spoken of."""

    name = "g"

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.wheel = Wheel()
        self.journal = FakeJournal()
        self.settings = settings or GroupSettings()
        self.groups = self._coordinator()

    def _coordinator(self) -> Coordinator:
        return Coordinator(
            self.journal,
            schedule=self.wheel.schedule,
            post=self.wheel.post,
            settings=self.settings,
        )

    def restart(self) -> None:
        """As after a crash: only what the journal has is left."""
        self.wheel = Wheel()
        self.journal = FakeJournal(self.journal.facts)
        self.groups = self._coordinator()

    @property
    def group(self) -> Group:
        group = self.groups.find(self.name)
        assert group is not None
        return group

    def join(
        self,
        member_id: str = "",
        *,
        client: str = "app",
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        takes_id: bool = True,
        skips_assignment: bool = True,
    ) -> list[JoinAnswer]:
        """The answers so far to one request: none while it waits."""
        answers: list[JoinAnswer] = []
        join = Join(
            member_id=member_id,
            instance_id=instance,
            client_id=client,
            client_host="127.0.0.1",
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=dict({"range": b"part"} if protocols is None else protocols),
            takes_id=takes_id,
            skips_assignment=skips_assignment,
        )
        self.groups.join(self.name, join, answers.append)
        return answers

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> list[SyncAnswer]:
        answers: list[SyncAnswer] = []
        sync = Sync(
            member_id, instance, generation, dict(assignments or {}), protocol_type, protocol
        )
        self.groups.sync(self.name, sync, answers.append)
        return answers

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        return self.groups.heartbeat(self.name, member_id, instance, generation)

    def leave(self, member_id: str = "", instance: str | None = None) -> ErrorCode:
        error, errors = self.groups.leave(self.name, [(member_id, instance)])
        return errors[0] if errors else error

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        note: str = "",
        **member: Any,
    ) -> list[dict[TopicPartition, ErrorCode]]:
        answers: list[dict[TopicPartition, ErrorCode]] = []
        committed = {place: Committed(offset, note=note) for place, offset in offsets.items()}
        self.groups.commit(self.name, committed, answers.append, **member)
        return answers

    def id(self, **how: Any) -> str:
        """An id for a new member, not in the group yet."""
        (answer,) = self.join(**how)
        assert answer.error is ErrorCode.member_id_required
        return answer.member_id

    def stable(self, *clients: str, **how: Any) -> list[str]:
        """The ids of new members that are the whole of a stable group, the first one leading."""
        ids = [self.id(client=client, **how) for client in clients]
        joins = [self.join(each, client=c, **how) for each, c in zip(ids, clients, strict=True)]
        self.wheel.turn()
        assert all(answer.error is ErrorCode.none for (answer,) in joins)
        self.settle(ids)
        return ids

    def settle(self, ids: list[str]) -> None:
        """Lets the leader assign to every member its own id, and all ask for it."""
        generation = self.group.generation
        parts = {each: each.encode() for each in ids}
        leader = self.group.members.leader
        syncs = [self.sync(each, generation, parts if each == leader else {}) for each in ids]
        self.wheel.turn()
        assert [answer.assignment for (answer,) in syncs] == list(parts.values())
