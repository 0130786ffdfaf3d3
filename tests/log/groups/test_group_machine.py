"""Any order of requests, silences, disk syncs and restarts leaves a group in order."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kio.schema.errors import ErrorCode

from penstock.log.groups.group import Group, State
from penstock.log.groups.messages import JoinAnswer, SyncAnswer
from penstock.log.groups.settings import GroupSettings
from tests.log.groups.fakes import DISK, Rig

PROTOCOLS = [{"range": b"1"}, {"range": b"2"}, {"sticky": b"3", "range": b"4"}]
WHO = st.integers(0, 30)
INSTANCES = st.sampled_from([None, None, "i", "j"])
SETTINGS = GroupSettings(max_members=4, new_member_ms=30_000, retention_check_ms=10_000_000)


def description(group: Group) -> Any:
    """What of a group does not depend on which requests wait."""
    members = [
        (m.id, m.instance_id, m.client_id, list(m.protocols.items()), m.assignment, m.session_ms)
        for m in group.members
    ]
    leader = group.members.leader
    return group.state, group.generation, group.protocol_type, group.protocol, leader, members


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(SETTINGS)
        self.ids: list[tuple[str, str | None]] = [("nobody", None)]
        self.joins: list[list[JoinAnswer]] = []
        self.syncs: list[tuple[int, list[SyncAnswer]]] = []
        self.led: dict[str, JoinAnswer] = {}
        self.generation = 0

    def _join(self, member_id: str, instance: str | None, **how: Any) -> None:
        answers = self.rig.join(member_id, instance=instance, **how)
        self.joins.append(answers)
        self._listen()

    def _listen(self) -> None:
        """Takes up the ids and the leaderships that were given out."""
        for answer in (answer for answers in self.joins for answer in answers):
            if answer.error in (ErrorCode.none, ErrorCode.member_id_required):
                named = {m.member_id: m.instance_id for m in answer.members}
                known = [each for each, _ in self.ids]
                if answer.member_id not in known:
                    self.ids.append((answer.member_id, named.get(answer.member_id)))
                if answer.members:
                    self.led[answer.member_id] = answer

    @initialize(clients=st.integers(0, 3))
    def begin(self, clients: int) -> None:
        for _ in range(clients):
            self.come(None, PROTOCOLS[0], False)
        self.wait(0.0)
        self.all_sync(0)
        self.wait(0.0)

    @rule(instance=INSTANCES, like=st.sampled_from(PROTOCOLS), modern=st.booleans())
    def come(self, instance: str | None, like: dict[str, bytes], modern: bool) -> None:
        self._join("", instance, protocols=like, takes_id=modern, skips_assignment=modern)

    @rule(who=WHO, like=st.sampled_from(PROTOCOLS), rebalance_ms=st.sampled_from([5_000, 20_000]))
    def join_again(self, who: int, like: dict[str, bytes], rebalance_ms: int) -> None:
        member_id, instance = self.ids[who % len(self.ids)]
        self._join(member_id, instance, protocols=like, rebalance_ms=rebalance_ms)

    @rule(who=WHO)
    def all_join_again(self, who: int) -> None:
        for each in range(len(self.ids)):
            self.join_again(who + each, PROTOCOLS[2], 20_000)

    @rule(who=WHO, stale=st.booleans())
    def sync(self, who: int, stale: bool) -> None:
        member_id, instance = self.ids[who % len(self.ids)]
        group = self.rig.groups.find(self.rig.name)
        generation = (group.generation if group else 0) - stale
        assignments = {}
        led = self.led.get(member_id)
        if led is not None and led.generation == generation:
            assignments = {m.member_id: f"@{generation}".encode() for m in led.members}
        answers = self.rig.sync(member_id, generation, assignments, instance=instance)
        self.syncs.append((generation, answers))

    @rule(who=WHO)
    def all_sync(self, who: int) -> None:
        for each in range(len(self.ids)):
            self.sync(who + each, False)

    @rule(who=WHO)
    def heartbeat(self, who: int) -> None:
        member_id, instance = self.ids[who % len(self.ids)]
        group = self.rig.groups.find(self.rig.name)
        self.rig.heartbeat(member_id, group.generation if group else 0, instance)

    @rule(who=WHO)
    def leave(self, who: int) -> None:
        self.rig.leave(*self.ids[who % len(self.ids)])

    @rule(seconds=st.sampled_from([0.0, 0.0, 3.0, 7.0, 11.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.rig.wheel.turn(seconds)
        self._listen()

    @rule(working=st.booleans())
    def disk(self, working: bool) -> None:
        self.rig.journal.syncs = working

    @rule(failing=st.booleans())
    def disk_syncs(self, failing: bool) -> None:
        self.rig.journal.failure = DISK if failing else None
        self.rig.journal.sync()
        self.rig.journal.failure = None
        self.rig.wheel.turn()
        self._listen()

    @rule()
    def restart(self) -> None:
        before = self.rig.groups.find(self.rig.name)
        assigned = [
            generation
            for generation, answers in self.syncs
            if any(answer.error is ErrorCode.none for answer in answers)
        ]
        self.rig.restart()
        after = self.rig.groups.find(self.rig.name)
        if before is not None and (before.state is State.STABLE or self.rig.journal.facts):
            assert after is not None
            if before.state in (State.STABLE, State.EMPTY):
                assert description(after) == description(before)
        self.generation = after.generation if after is not None else 0
        assert self.generation >= max(assigned, default=0)
        # The connections are gone, and what was asked on them.
        self.joins = [answers for answers in self.joins if answers]
        self.syncs = [(generation, answers) for generation, answers in self.syncs if answers]

    @invariant()
    def requests_have_one_answer_at_most(self) -> None:
        assert all(len(answers) <= 1 for answers in self.joins)
        assert all(len(answers) <= 1 for _, answers in self.syncs)

    @invariant()
    def group_is_in_order(self) -> None:
        group = self.rig.groups.find(self.rig.name)
        if group is None:
            return
        members = list(group.members)
        assert group.generation >= self.generation, "generations only grow"
        self.generation = group.generation
        assert (group.state is State.EMPTY) <= (not members)
        leader = group.members.leader
        assert any(member.id == leader for member in members) if members else leader is None
        assert not group._pending.keys() & {member.id for member in members}
        assert len(members) <= 2 * SETTINGS.max_members
        assert len(group._pending) <= SETTINGS.max_members
        if group.state is State.STABLE:
            assert members
            assert {member.assignment for member in members} == {f"@{group.generation}".encode()}
        if group.state in (State.PREPARING, State.COMPLETING):
            assert group._phase is not None, "nothing waits without an end"
        for member in members:
            assert member.waiting or getattr(member.session, "callback", None), "all may expire"

    def teardown(self) -> None:
        self.rig.journal.sync()
        self.rig.journal.syncs = True
        self.rig.wheel.turn(1_000)
        assert all(len(answers) == 1 for answers in self.joins)
        assert all(len(answers) == 1 for _, answers in self.syncs)
        group = self.rig.groups.find(self.rig.name)
        assert group is None or group.idle, "who says nothing for so long is gone"


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=50)
