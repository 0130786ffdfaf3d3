"""One group: members gather, their leader assigns, they work, and gather again when one changes.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance
      ▲                  ▲        │                                        │
      └────── all left ──┼────────┘                        leader's sync, stored
                         └──── a member came, went or changed ────── Stable

Each CompletingRebalance begins a generation. Nothing here waits: answers go to callbacks, and time
comes from a scheduler, so that a test can turn it by hand.
"""

from collections.abc import Callable
from enum import StrEnum
from uuid import uuid4

from kio.schema.errors import ErrorCode

from penstock import clock
from penstock.log.groups.members import Member, Members, Schedule, Timer, member_of
from penstock.log.groups.messages import Join, JoinAnswer, OnJoin, OnSync, Sync, SyncAnswer
from penstock.log.groups.settings import GroupSettings

Done = Callable[[Exception | None], None]
NONE = ErrorCode.none


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """`save` makes the group as it is at the call durable, then tells `done` on this thread."""

    def __init__(
        self,
        name: str,
        *,
        schedule: Schedule,
        save: Callable[["Group", Done], None],
        settings: GroupSettings,
    ) -> None:
        self.name = name
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        self.empty_since_ms = clock.now_ms()
        self._schedule = schedule
        self._save = save
        self._settings = settings
        self._pending: dict[str, Timer] = {}
        self._unsynced: set[str] = set()
        self._phase: Timer | None = None
        self._first_rebalance = False
        self._grew = False

    def resume(self) -> None:
        """Goes on after a restart: the members have a session each to show that they live."""
        if self.members:
            self.state = State.STABLE
        for member in self.members:
            self._watch(member, member.session_ms)

    def close(self) -> None:
        """Ends the group and answers whoever waits; it cannot be used any more."""
        self.state = State.DEAD
        self._end_phase()
        for pending in self._pending.values():
            pending.cancel()
        for member in self.members:
            self._dismiss(member, ErrorCode.coordinator_not_available)

    @property
    def idle(self) -> bool:
        return self.state is State.EMPTY and not self._pending

    # Joining

    def join(self, join: Join, answer: OnJoin) -> None:
        """Answers once the next generation begins, or at once when there is none to wait for."""
        if not self._has_room(join):
            answer(JoinAnswer(ErrorCode.group_max_size_reached, ""))
        elif not self._supports(join):
            answer(JoinAnswer(ErrorCode.inconsistent_group_protocol, join.member_id))
        elif not join.member_id:
            self._join_without_id(join, answer)
        elif join.member_id in self._pending and join.instance_id is None:
            self._pending.pop(join.member_id).cancel()
            self._admit(join.member_id, join, answer)
        else:
            member = self._find(join.member_id, join.instance_id)
            if isinstance(member, ErrorCode):
                answer(JoinAnswer(member, join.member_id))
            else:
                self._rejoin(member, join, answer)

    def _has_room(self, join: Join) -> bool:
        limit = self._settings.max_members
        if not join.member_id and len(self._pending) >= limit:
            return False
        known = self.members.get(join.member_id) or self.members.static(join.instance_id)
        if self.state is State.PREPARING:
            # Who has not joined again may never do so, and holds no place against those who have.
            return bool(known and known.on_join) or self.members.joined < limit
        return known is not None or len(self.members) < limit

    def _supports(self, join: Join) -> bool:
        if self.state is State.EMPTY:
            return bool(join.protocol_type and join.protocols)
        agreed = any(map(self.members.support, join.protocols))
        return agreed and join.protocol_type == self.protocol_type

    def _join_without_id(self, join: Join, answer: OnJoin) -> None:
        member_id = f"{join.client_id if join.instance_id is None else join.instance_id}-{uuid4()}"
        old = self.members.static(join.instance_id)
        if old is not None:
            self._replace(old, member_id, join, answer)
        elif join.takes_id and join.instance_id is None:
            self._pending[member_id] = self._schedule(
                join.session_ms / 1_000, lambda: self._forget_pending(member_id)
            )
            answer(JoinAnswer(ErrorCode.member_id_required, member_id))
        else:
            self._admit(member_id, join, answer)

    def _forget_pending(self, member_id: str) -> None:
        del self._pending[member_id]
        self._go_on()

    def _admit(self, member_id: str, join: Join, answer: OnJoin) -> None:
        member = member_of(member_id, join)
        member.new = True
        member.wait_for_join(answer)
        if not self.members:
            self.protocol_type = join.protocol_type
        self.members.add(member)
        self._grew = True
        self._watch(member, self._settings.new_member_ms)
        self._rebalance()

    def _replace(self, old: Member, member_id: str, join: Join, answer: OnJoin) -> None:
        """A static member that came back, perhaps as another process, takes its own place again."""
        leader = self.members.leader or ""
        member = member_of(member_id, join)
        member.assignment = old.assignment
        member.wait_for_join(answer)
        self.members.replace(old, member)
        self._dismiss(old, ErrorCode.fenced_instance_id)
        if self.state is not State.STABLE or self.members.vote() != self.protocol:
            self._rebalance()
            return

        def stored(error: Exception | None) -> None:
            if self.state is not State.STABLE or member.on_join is None:
                return  # A rebalance that began meanwhile answers, or has done so.
            welcome = self._welcome(member)
            if error is not None:
                welcome = JoinAnswer(ErrorCode.coordinator_not_available, "")
            elif not join.skips_assignment:
                # Under its old name it does not see itself leading, so it does not assign.
                welcome = welcome._replace(leader=leader, members=())
            member.answer_join(welcome._replace(skip_assignment=bool(welcome.members)))
            self._watch(member, member.session_ms)

        self._save(self, stored)

    def _rejoin(self, member: Member, join: Join, answer: OnJoin) -> None:
        # The order of the protocols counts: it is the member's preference.
        changed = list(member.protocols.items()) != list(join.protocols.items())
        # A leader that joins again wants to assign anew, perhaps for new partitions.
        assigns = self.state is State.STABLE and self.members.leader == member.id
        if self.state is State.PREPARING or changed or assigns:
            member.update(join)
            member.wait_for_join(answer)
            self._rebalance()
        else:
            answer(self._welcome(member))

    def _welcome(self, member: Member) -> JoinAnswer:
        leads = self.members.leader == member.id
        everyone = self.members.parts(self.protocol) if self.protocol and leads else ()
        at = (self.generation, self.protocol_type, self.protocol, self.members.leader or "")
        return JoinAnswer(NONE, member.id, *at, everyone)

    # Rebalancing

    def _rebalance(self) -> None:
        """Gathers the members for a new generation, or goes on with that if it is under way."""
        if self.state is State.PREPARING:
            self._go_on()
            return
        if self.state is State.COMPLETING:
            self._drop_assignments(ErrorCode.rebalance_in_progress)
        self._first_rebalance = self.state is State.EMPTY
        self.state = State.PREPARING
        if self._first_rebalance:
            self._gather(max(self.members.rebalance_ms, self._settings.initial_delay_ms))
        else:
            self._end_phase_after(self.members.rebalance_ms, self._begin_generation)
            self._go_on()

    def _go_on(self) -> None:
        """Begins the next generation if everyone is there for it."""
        joined = not self._pending and self.members.joined == len(self.members)
        if joined and self.state is State.PREPARING and not self._first_rebalance:
            self._begin_generation()

    def _gather(self, remaining_ms: int) -> None:
        """Waits the initial delay, and again as long as members keep coming."""
        delay_ms = min(self._settings.initial_delay_ms, remaining_ms)
        self._grew = False

        def waited() -> None:
            if self._grew and delay_ms < remaining_ms:
                self._gather(remaining_ms - delay_ms)
            else:
                self._begin_generation()

        self._end_phase_after(delay_ms, waited)

    def _begin_generation(self) -> None:
        self._end_phase()
        for member in self.members:
            if member.on_join is None and member.instance_id is None:
                self._remove(member)
        if self.members and not self.members.elect():
            # Only static members are left and none has come back: their sessions decide.
            self._end_phase_after(self.members.rebalance_ms, self._begin_generation)
            return
        self.generation += 1
        if not self.members:
            self.protocol = None
            self.state = State.EMPTY
            self.empty_since_ms = clock.now_ms()
            # Should this be lost, the last generation comes back after a restart, and expires.
            self._save(self, lambda error: None)
            return
        self.protocol = self.members.vote()
        self.state = State.COMPLETING
        self._unsynced = {member.id for member in self.members}
        self._end_phase_after(self.members.rebalance_ms, self._remove_unsynced)
        for member in self.members:
            member.new = False
            self._watch(member, member.session_ms)
            member.answer_join(self._welcome(member))

    def _end_phase_after(self, delay_ms: int, then: Callable[[], None]) -> None:
        self._end_phase()
        self._phase = self._schedule(delay_ms / 1_000, then)

    def _end_phase(self) -> None:
        if self._phase is not None:
            self._phase.cancel()
            self._phase = None

    # Assigning

    def sync(self, sync: Sync, answer: OnSync) -> None:
        """Answers with the member's assignment, once the leader has sent it and it is durable."""
        member = self._find(sync.member_id, sync.instance_id, sync.generation)
        if isinstance(member, ErrorCode):
            answer(SyncAnswer(member))
        elif not sync.agrees_on(self.protocol_type, self.protocol):
            answer(SyncAnswer(ErrorCode.inconsistent_group_protocol))
        elif self.state is State.PREPARING:
            answer(SyncAnswer(ErrorCode.rebalance_in_progress))
        elif any(len(each) > self._settings.max_member_bytes for each in sync.assignments.values()):
            answer(SyncAnswer(ErrorCode.message_too_large))
        else:
            self._unsynced.discard(member.id)
            if self.state is State.STABLE:
                answer(self._assigned(member))
                return
            member.wait_for_sync(answer)
            if self.members.leader == member.id:
                self._assign(sync.assignments)

    def _assign(self, assignments: dict[str, bytes]) -> None:
        for member in self.members:
            member.assignment = assignments.get(member.id, b"")
        generation = self.generation

        def stored(error: Exception | None) -> None:
            if self.state is not State.COMPLETING or self.generation != generation:
                return
            if error is not None:
                self._drop_assignments(ErrorCode.coordinator_not_available)
                self._rebalance()
                return
            self.state = State.STABLE
            for member in self.members:
                if member.on_sync is not None:
                    self._watch(member, member.session_ms)
                    member.answer_sync(self._assigned(member))

        self._save(self, stored)

    def _assigned(self, member: Member) -> SyncAnswer:
        return SyncAnswer(NONE, member.assignment, self.protocol_type, self.protocol)

    def _drop_assignments(self, reason: ErrorCode) -> None:
        for member in self.members:
            member.assignment = b""
            if member.on_sync is not None:
                self._watch(member, member.session_ms)
                member.answer_sync(SyncAnswer(reason))

    def _remove_unsynced(self) -> None:
        silent = [member for member in self.members if member.id in self._unsynced]
        for member in silent:
            self._remove(member)
        if silent:
            self._rebalance()

    # Staying and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        member = self._find(member_id, instance_id, generation)
        if isinstance(member, ErrorCode):
            return member
        self._watch(member, member.session_ms)
        return ErrorCode.rebalance_in_progress if self.state is State.PREPARING else NONE

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether offsets may be committed so; from a member, this keeps its session alive."""
        if self.state is State.EMPTY and generation < 0:
            return NONE
        member = self._find(member_id, instance_id, generation)
        if isinstance(member, ErrorCode):
            return member
        if self.state is State.COMPLETING:
            return ErrorCode.rebalance_in_progress
        self._watch(member, member.session_ms)
        return NONE

    def leave(self, leaving: list[tuple[str, str | None]]) -> list[ErrorCode]:
        """Takes out members by id and instance id; without an id, whoever has the instance id."""
        before = len(self.members)
        errors = [self._leave(member_id, instance_id) for member_id, instance_id in leaving]
        if len(self.members) < before:
            self._rebalance()
        else:
            self._go_on()
        return errors

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in self._pending:
            self._pending.pop(member_id).cancel()
            return NONE
        holder = self.members.static(instance_id)
        member = self._find(member_id or (holder.id if holder else ""), instance_id)
        if isinstance(member, ErrorCode):
            return member
        self._remove(member)
        return NONE

    def _find(
        self, member_id: str, instance_id: str | None, generation: int | None = None
    ) -> Member | ErrorCode:
        """The member, or why its request is refused."""
        static = instance_id is not None
        member = self.members.static(instance_id) if static else self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if member.id != member_id:
            return ErrorCode.fenced_instance_id
        if generation not in (None, self.generation):
            return ErrorCode.illegal_generation
        return member

    def _watch(self, member: Member, session_ms: int) -> None:
        member.end_session()
        member.session = self._schedule(session_ms / 1_000, lambda: self._session_over(member))

    def _session_over(self, member: Member) -> None:
        # A member that waits for an answer cannot send heartbeats, and is watched again after it.
        if member.new or not member.waiting:
            self._remove(member)
            self._rebalance()

    def _remove(self, member: Member) -> None:
        self.members.remove(member)
        self._dismiss(member, ErrorCode.unknown_member_id)

    def _dismiss(self, member: Member, reason: ErrorCode) -> None:
        member.end_session()
        self._unsynced.discard(member.id)
        member.answer_join(JoinAnswer(reason, ""))
        member.answer_sync(SyncAnswer(reason))
