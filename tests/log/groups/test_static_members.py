"""Members with a name of their own, which keep their place when their process is replaced."""

import pytest
from kio.schema.errors import ErrorCode

from penstock.log.groups.group import State
from penstock.log.groups.settings import GroupSettings
from tests.log.groups.fakes import DISK, Rig

NONE = ErrorCode.none
FENCED = ErrorCode.fenced_instance_id


@pytest.fixture
def rig() -> Rig:
    return Rig()


def stable(rig: Rig, *instances: str) -> list[str]:
    """The ids of static members in a stable group, in order; the first one leads."""
    joins = [rig.join(instance=name) for name in instances]
    rig.wheel.turn()
    ids = [answer.member_id for (answer,) in joins]
    rig.settle(ids)
    return ids


def test_static_members_are_given_ids_with_their_names(rig: Rig) -> None:
    (i,) = stable(rig, "i")
    assert i.startswith("i-")


def test_a_replaced_follower_goes_on_without_a_rebalance(rig: Rig) -> None:
    _, old = stable(rig, "i", "j")
    joins = rig.join(instance="j")
    rig.wheel.turn()
    (joined,) = joins
    assert (joined.error, joined.generation, joined.skip_assignment) == (NONE, 1, False)
    assert joined.members == ()
    assert rig.group.state is State.STABLE
    assert rig.sync(joined.member_id, 1, instance="j")[0].assignment == old.encode()
    assert rig.heartbeat(joined.member_id, 1, "j") is NONE


def test_a_replaced_leader_leads_without_assigning(rig: Rig) -> None:
    stable(rig, "i", "j")
    joins = rig.join(instance="i")
    rig.wheel.turn()
    (joined,) = joins
    assert joined.leader == joined.member_id
    assert joined.skip_assignment
    assert {member.instance_id for member in joined.members} == {"i", "j"}


def test_an_older_client_does_not_learn_that_it_leads(rig: Rig) -> None:
    old, _ = stable(rig, "i", "j")
    joins = rig.join(instance="i", skips_assignment=False)
    rig.wheel.turn()
    (joined,) = joins
    assert (joined.leader, joined.members, joined.skip_assignment) == (old, (), False)
    assert rig.sync(joined.member_id, 1, instance="i")[0].assignment == old.encode()


def test_the_replaced_process_is_fenced(rig: Rig) -> None:
    old, _ = stable(rig, "i", "j")
    rig.join(instance="i")
    rig.wheel.turn()
    assert rig.heartbeat(old, 1, "i") is FENCED
    assert rig.heartbeat(old, 1) is ErrorCode.unknown_member_id
    assert rig.sync(old, 1, instance="i")[0].error is FENCED
    assert rig.join(old, instance="i")[0].error is FENCED
    assert rig.leave(old, "i") is FENCED
    assert rig.group.check_commit(old, "i", 1) is FENCED
    assert rig.group.state is State.STABLE


def test_the_replaced_process_is_fenced_while_it_waits(rig: Rig) -> None:
    i, j = stable(rig, "i", "j")
    waits = rig.join(i, instance="i", protocols={"range": b"new"})
    joins = rig.join(instance="i")
    assert [answer.error for answer in waits] == [FENCED]
    rig.join(j, instance="j")
    assert joins[0].generation == 2

    waits_for_sync = rig.sync(j, 2, instance="j")
    rig.join(instance="j")
    assert [answer.error for answer in waits_for_sync] == [FENCED]


def test_one_replaced_before_the_assignment_makes_all_gather_again(rig: Rig) -> None:
    i, j = stable(rig, "i", "j")
    rig.join(i, instance="i")
    rig.join(j, instance="j")
    assert rig.group.state is State.COMPLETING
    joins = rig.join(instance="j")
    assert rig.group.state is State.PREPARING
    assert rig.join(i, instance="i")[0].generation == joins[0].generation == 3


def test_one_replaced_with_other_protocols_makes_all_gather_again(rig: Rig) -> None:
    both = {"range": b"", "sticky": b""}
    joins = [rig.join(instance=name, protocols=both) for name in "ij"]
    rig.wheel.turn()
    rig.settle([answer.member_id for (answer,) in joins])
    assert rig.group.protocol == "range"
    joins[1] = rig.join(instance="j", protocols={"sticky": b""})
    rig.wheel.turn()
    assert (joins[1], rig.group.state) == ([], State.PREPARING)


def test_a_replacement_is_answered_when_it_is_durable(rig: Rig) -> None:
    stable(rig, "i", "j")
    rig.journal.syncs = False
    joins = rig.join(instance="j")
    rig.wheel.turn()
    assert joins == []
    rig.journal.sync()
    rig.wheel.turn()
    assert joins[0].error is NONE


def test_a_replacement_that_falls_silent_expires(rig: Rig) -> None:
    i, _ = stable(rig, "i", "j")
    joins = rig.join(instance="j")
    rig.wheel.turn()
    assert joins[0].error is NONE
    rig.wheel.turn(6)
    rig.heartbeat(i, 1, "i")
    rig.wheel.turn(6)
    assert rig.heartbeat(i, 1, "i") is ErrorCode.rebalance_in_progress


def test_a_replacement_that_the_disk_refuses_may_try_again(rig: Rig) -> None:
    stable(rig, "i", "j")
    rig.journal.failure = DISK
    joins = rig.join(instance="j")
    rig.wheel.turn()
    assert joins[0].error is ErrorCode.coordinator_not_available
    rig.journal.failure = None
    joins = rig.join(instance="j")
    rig.wheel.turn()
    assert joins[0].error is NONE


def test_a_replacement_may_be_overtaken_by_another(rig: Rig) -> None:
    stable(rig, "i", "j")
    rig.journal.syncs = False
    first, second = rig.join(instance="j"), rig.join(instance="j")
    assert [answer.error for answer in first] == [FENCED]
    rig.journal.sync()
    rig.wheel.turn()
    assert second[0].error is NONE
    rig.wheel.turn(8)
    rig.heartbeat(second[0].member_id, 1, "j")
    rig.wheel.turn(5)
    assert rig.group.members.static("j") is not None, "the first one's session is no one's"


def test_a_replacement_may_be_overtaken_by_a_rebalance(rig: Rig) -> None:
    i, _ = stable(rig, "i", "j")
    rig.journal.syncs = False
    joins = rig.join(instance="j")
    rig.join(i, instance="i")
    rig.journal.sync()
    rig.wheel.turn()
    assert [answer.generation for answer in joins] == [2]


def test_a_silent_static_member_keeps_its_place_in_a_rebalance(rig: Rig) -> None:
    joins = [rig.join(instance=name, session_ms=300_000) for name in "ij"]
    rig.wheel.turn()
    i, j = (answer.member_id for (answer,) in joins)
    rig.settle([i, j])
    rejoin = rig.join(i, instance="i", session_ms=300_000)
    rig.wheel.turn(61)
    assert {member.member_id for member in rejoin[0].members} == {i, j}
    rig.sync(i, 2, {i: b"", j: b"half"}, instance="i")
    rig.wheel.turn()
    assert rig.sync(j, 2, instance="j")[0].assignment == b"half"


def test_a_silent_static_leader_does_not_lead(rig: Rig) -> None:
    joins = [rig.join(instance=name, session_ms=300_000) for name in "ij"]
    rig.wheel.turn()
    i, j = (answer.member_id for (answer,) in joins)
    rig.settle([i, j])
    rejoin = rig.join(j, instance="j", session_ms=300_000, protocols={"range": b"new"})
    rig.wheel.turn(61)
    assert rejoin[0].leader == j
    assert {member.member_id for member in rejoin[0].members} == {i, j}


def test_a_static_member_that_never_comes_back_expires(rig: Rig) -> None:
    i, j = stable(rig, "i", "j")
    rig.wheel.turn(6)
    rig.heartbeat(i, 1, "i")
    rig.wheel.turn(6)
    assert rig.heartbeat(i, 1, "i") is ErrorCode.rebalance_in_progress
    assert rig.group.members.static("j") is None
    assert rig.heartbeat(j, 1, "j") is ErrorCode.unknown_member_id


def test_without_anybody_joining_static_members_are_waited_for(rig: Rig) -> None:
    """A dynamic member makes a rebalance and goes; the static one is silent but not over yet."""
    rig = Rig(GroupSettings(new_member_ms=10_000))
    joins = rig.join(instance="i", session_ms=300_000, rebalance_ms=20_000)
    rig.wheel.turn()
    rig.settle([joins[0].member_id])
    goes = rig.join(rig.id(rebalance_ms=20_000), rebalance_ms=20_000)
    rig.wheel.turn(150)
    assert goes[0].error is ErrorCode.unknown_member_id
    assert (rig.group.state, rig.group.generation) == (State.PREPARING, 1)
    back = rig.join(instance="i", session_ms=300_000)
    assert back[0].generation == 2


def test_one_of_several_silent_static_members_waits_for_the_others_only_so_long() -> None:
    rig = Rig(GroupSettings(new_member_ms=10_000))
    how = {"session_ms": 300_000, "rebalance_ms": 20_000}
    joins = [rig.join(instance=name, **how) for name in "ij"]  # type: ignore[arg-type]
    rig.wheel.turn()
    rig.settle([answer.member_id for (answer,) in joins])
    rig.join(rig.id(**how), **how)  # type: ignore[arg-type]
    rig.wheel.turn(50)
    back = rig.join(instance="i", **how)  # type: ignore[arg-type]
    assert back == []
    rig.wheel.turn(20)
    assert back[0].generation == 2


@pytest.mark.parametrize("named", [True, False])
def test_static_members_can_be_taken_out_by_name(rig: Rig, named: bool) -> None:
    i, j = stable(rig, "i", "j")
    assert rig.leave("" if named else j, "j") is NONE
    assert rig.group.members.static("j") is None
    assert rig.join(i, instance="i")[0].generation == 2
    assert rig.leave("", "j") is ErrorCode.unknown_member_id


def test_a_static_member_comes_back_to_a_full_group() -> None:
    rig = Rig(GroupSettings(max_members=2))
    stable(rig, "i", "j")
    joins = rig.join(instance="j")
    rig.wheel.turn()
    assert joins[0].error is NONE


def test_a_replacement_survives_a_restart(rig: Rig) -> None:
    old, _ = stable(rig, "i", "j")
    joins = rig.join(instance="i")
    rig.wheel.turn()
    new = joins[0].member_id
    rig.restart()
    assert rig.heartbeat(new, 1, "i") is NONE
    assert rig.heartbeat(old, 1, "i") is FENCED
    assert rig.group.members.leader == new
