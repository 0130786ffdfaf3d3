import re

import pytest
from kio.schema.errors import ErrorCode

from penstock.log.groups.group import State
from penstock.log.groups.settings import GroupSettings
from tests.log.groups.fakes import DISK, Rig

NONE = ErrorCode.none


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_first_member_gets_an_id_then_leads(rig: Rig) -> None:
    (asked,) = rig.join(client="app")
    assert asked.error is ErrorCode.member_id_required
    assert re.fullmatch(r"app-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", asked.member_id)
    assert rig.group.state is State.EMPTY

    joins = rig.join(asked.member_id)
    assert (joins, rig.group.state) == ([], State.PREPARING)
    rig.wheel.turn()
    (joined,) = joins
    assert joined.error is NONE
    assert (joined.generation, joined.protocol_type, joined.protocol) == (1, "consumer", "range")
    assert joined.leader == joined.member_id == asked.member_id
    assert [(m.member_id, m.part) for m in joined.members] == [(asked.member_id, b"part")]
    assert rig.group.state is State.COMPLETING

    synced = rig.sync(asked.member_id, 1, {asked.member_id: b"all"})
    rig.wheel.turn()
    assert [(answer.error, answer.assignment) for answer in synced] == [(NONE, b"all")]
    assert rig.group.state is State.STABLE


def test_old_clients_join_without_an_id(rig: Rig) -> None:
    joins = rig.join(takes_id=False)
    rig.wheel.turn()
    assert joins[0].error is NONE
    assert joins[0].member_id.startswith("app-")


def test_only_the_leader_hears_of_all_members(rig: Rig) -> None:
    a, b = rig.id(client="a"), rig.id(client="b")
    joins = [rig.join(a), rig.join(b)]
    rig.wheel.turn()
    assert {m.member_id for m in joins[0][0].members} == {a, b}
    assert joins[1][0].members == ()
    assert joins[1][0].leader == a


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (["a", "a"], "a"),
        (["ab", "ba", "ba"], "b"),
        (["abc", "bc", "cb"], "b"),
        (["abc", "c"], "c"),
    ],
)
def test_members_vote_for_a_protocol_that_all_support(
    rig: Rig, preferences: list[str], chosen: str
) -> None:
    ids = [rig.id(protocols=dict.fromkeys(liked, b"")) for liked in preferences]
    joins = [
        rig.join(each, protocols={name: f"{name}{i}".encode() for name in preferences[i]})
        for i, each in enumerate(ids)
    ]
    rig.wheel.turn()
    assert {join[0].protocol for join in joins} == {chosen}
    assert [m.part for m in joins[0][0].members] == [
        f"{chosen}{i}".encode() for i in range(len(ids))
    ]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"protocols": {"roundrobin": b""}}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": {}}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_id": "nobody", "instance": "i"}, ErrorCode.unknown_member_id),
        ({"session_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"protocols": {"range": bytes(1_048_577)}}, ErrorCode.message_too_large),
    ],
)
def test_refused_joins(rig: Rig, how: dict[str, object], error: ErrorCode) -> None:
    rig.stable("a")
    (answer,) = rig.join(**how)  # type: ignore[arg-type]
    assert answer.error is error
    assert rig.group.state is State.STABLE


@pytest.mark.parametrize("how", [{"protocols": {}}, {"protocol_type": ""}])
def test_first_member_must_name_a_protocol(rig: Rig, how: dict[str, object]) -> None:
    (answer,) = rig.join(**how)  # type: ignore[arg-type]
    assert answer.error is ErrorCode.inconsistent_group_protocol


def test_a_pending_id_does_not_work_for_a_static_member(rig: Rig) -> None:
    (answer,) = rig.join(rig.id(), instance="i")
    assert answer.error is ErrorCode.unknown_member_id


def test_a_new_member_makes_all_gather_again(rig: Rig) -> None:
    (a,) = rig.stable("a")
    joins_b = rig.join(rig.id(client="b"))
    assert rig.group.state is State.PREPARING
    assert rig.heartbeat(a, 1) is ErrorCode.rebalance_in_progress
    (early,) = rig.sync(a, 1)
    assert early.error is ErrorCode.rebalance_in_progress
    assert joins_b == []

    joins_a = rig.join(a)
    assert joins_a[0].generation == joins_b[0].generation == 2
    assert joins_b[0].leader == a
    assert rig.heartbeat(a, 1) is ErrorCode.illegal_generation
    assert rig.heartbeat(a, 2) is NONE
    rig.settle([a, joins_b[0].member_id])


def test_commits_go_on_while_members_gather_but_not_before_they_are_assigned(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.join(rig.id())
    assert rig.group.check_commit(a, None, 1) is NONE
    rig.join(a)
    assert rig.group.state is State.COMPLETING
    assert rig.group.check_commit(a, None, 2) is ErrorCode.rebalance_in_progress


def test_who_does_not_gather_in_time_is_out(rig: Rig) -> None:
    a, b = rig.stable("a", "b", session_ms=120_000)
    joins = rig.join(rig.id())
    rejoin = rig.join(b)
    rig.wheel.turn(59.9)
    assert joins == rejoin == []
    rig.wheel.turn(0.2)
    assert {m.member_id for m in rejoin[0].members} == {b, joins[0].member_id}
    assert rejoin[0].leader == b, "the old leader did not come, so another leads"
    assert rig.heartbeat(a, 2) is ErrorCode.unknown_member_id


def test_silence_ends_a_session(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    for _ in range(3):
        rig.wheel.turn(6)
        assert rig.heartbeat(a, 1) in (NONE, ErrorCode.rebalance_in_progress)
    assert rig.heartbeat(b, 1) is ErrorCode.unknown_member_id
    (joined,) = rig.join(a)
    assert [m.member_id for m in joined.members] == [a]


def test_a_member_that_joins_again_may_ask_for_another_session(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.join(a, session_ms=20_000)
    rig.settle([a])
    rig.wheel.turn(19)
    assert rig.heartbeat(a, 2) is NONE


def test_a_commit_keeps_the_session_alive(rig: Rig) -> None:
    (a,) = rig.stable("a")
    for _ in range(3):
        rig.wheel.turn(6)
        assert rig.group.check_commit(a, None, 1) is NONE
    assert rig.group.state is State.STABLE


def test_the_last_to_go_leaves_the_group_empty(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.wheel.turn(11)
    assert (rig.group.state, rig.group.generation) == (State.EMPTY, 2)
    assert (rig.group.protocol_type, rig.group.protocol) == ("consumer", None)
    assert rig.heartbeat(a, 2) is ErrorCode.unknown_member_id
    (answer,) = rig.join(a)
    assert answer.error is ErrorCode.unknown_member_id


def test_waiting_members_need_no_heartbeat(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    joins = rig.join(a)
    for _ in range(5):
        rig.wheel.turn(5)
        rig.heartbeat(b, 1)
    assert joins == []
    rejoined = rig.join(b)
    assert joins[0].error is rejoined[0].error is NONE


def test_a_waiting_member_is_watched_again_once_it_is_answered(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    rig.join(a, protocols={"range": b"new"})
    rig.join(b)
    syncs = rig.sync(b, 2)
    rig.wheel.turn(5)
    rig.heartbeat(a, 2)
    rig.wheel.turn(6)
    assert syncs == [], "its session is over, but it waits"
    rig.heartbeat(a, 2)
    rig.leave(a)
    assert syncs[0].error is ErrorCode.rebalance_in_progress
    rig.wheel.turn(11)
    assert rig.group.state is State.EMPTY, "it never came back"


def test_members_are_watched_from_the_beginning_of_a_generation(rig: Rig) -> None:
    a = rig.id()
    rig.join(a)
    rig.wheel.turn()
    assert rig.group.state is State.COMPLETING
    rig.wheel.turn(11)
    assert rig.group.state is State.EMPTY, "it did not even ask for its assignment"


def test_members_are_watched_from_when_they_get_their_assignment(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    rig.join(a)
    rig.join(b)
    syncs = rig.sync(b, 2)
    for _ in range(3):
        rig.wheel.turn(6)
        rig.heartbeat(a, 2)
    rig.sync(a, 2, {a: b"", b: b""})
    rig.wheel.turn()
    assert syncs[0].error is NONE
    rig.wheel.turn(6)
    assert rig.heartbeat(a, 2) is NONE
    rig.wheel.turn(6)
    assert rig.heartbeat(a, 2) is ErrorCode.rebalance_in_progress, "the other one is gone"


def test_members_of_before_a_restart_may_wait_as_well(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    rig.restart()
    joins = rig.join(a)
    for _ in range(3):
        rig.wheel.turn(6)
        rig.heartbeat(b, 1)
    assert joins == []
    rig.join(b)
    assert joins[0].generation == 2


def test_a_new_member_waits_for_its_first_generation_only_so_long(rig: Rig) -> None:
    (a,) = rig.stable("a", rebalance_ms=900_000)
    joins = rig.join(rig.id())
    for _ in range(50):
        rig.wheel.turn(6)
        assert rig.heartbeat(a, 1) is ErrorCode.rebalance_in_progress
    rig.wheel.turn(1)
    assert joins[0].error is ErrorCode.unknown_member_id
    (again,) = rig.join(a)
    assert [m.member_id for m in again.members] == [a]


def test_an_id_that_is_not_used_is_forgotten(rig: Rig) -> None:
    unused = rig.id()
    rig.wheel.turn(11)
    (answer,) = rig.join(unused)
    assert answer.error is ErrorCode.unknown_member_id


def test_members_gather_without_the_one_that_took_an_id_and_went(rig: Rig) -> None:
    (a,) = rig.stable("a")
    gone = rig.id()
    joins = rig.join(a)
    assert joins == [], "the pending one is waited for"
    assert rig.leave(gone) is NONE
    assert joins[0].generation == 2


def test_members_gather_once_a_pending_id_expires(rig: Rig) -> None:
    (a,) = rig.stable("a", session_ms=60_000)
    rig.id(session_ms=6_000)
    joins = rig.join(a)
    rig.wheel.turn(6)
    assert joins[0].generation == 2


def test_leaving_takes_effect_at_once(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    assert rig.leave(a) is NONE
    assert rig.leave(a) is ErrorCode.unknown_member_id
    assert rig.heartbeat(b, 1) is ErrorCode.rebalance_in_progress
    assert rig.join(b)[0].leader == b
    assert rig.leave("nobody") is ErrorCode.unknown_member_id


def test_leaving_while_waiting_is_answered(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    joins = rig.join(a)
    rig.leave(a)
    assert joins[0].error is ErrorCode.unknown_member_id
    rig.join(b)
    syncs = rig.sync(b, 2)
    rig.leave(b)
    assert syncs == [] or syncs[0].error in (NONE, ErrorCode.unknown_member_id)
    rig.wheel.turn()
    assert len(syncs) == 1
    assert rig.group.state is State.EMPTY


def test_several_leave_at_once(rig: Rig) -> None:
    a, b, c = rig.stable("a", "b", "c")
    error, errors = rig.groups.leave(rig.name, [(a, None), ("x", None), (b, None), ("", "y")])
    unknown = ErrorCode.unknown_member_id
    assert (error, errors) == (NONE, [NONE, unknown, NONE, unknown])
    assert rig.join(c)[0].generation == 2, "one rebalance for both"


def test_followers_get_the_current_generation_when_they_join_unchanged(rig: Rig) -> None:
    _, b = rig.stable("a", "b")
    (again,) = rig.join(b)
    assert (again.error, again.generation, again.members) == (NONE, 1, ())
    assert rig.group.state is State.STABLE


def test_a_changed_follower_or_any_leader_that_joins_makes_a_rebalance(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    assert rig.join(b, protocols={"range": b"other"}) == []
    assert rig.group.state is State.PREPARING
    (joined,) = rig.join(a)
    assert {m.part for m in joined.members} == {b"part", b"other"}
    rig.settle([a, b])
    assert rig.join(a) == []
    assert rig.group.state is State.PREPARING


def test_the_order_of_protocols_is_part_of_a_member(rig: Rig) -> None:
    both = {"x": b"", "y": b""}
    _, b = rig.stable("a", "b", protocols=both)
    assert rig.join(b, protocols={"y": b"", "x": b""}) == []
    assert rig.group.state is State.PREPARING


def test_a_lost_join_answer_can_be_asked_for_again(rig: Rig) -> None:
    a = rig.id()
    rig.join(a)
    rig.wheel.turn()
    (again,) = rig.join(a)
    assert (again.generation, again.leader, len(again.members)) == (1, a, 1)
    assert rig.join(a, protocols={"range": b"new"})[0].generation == 2


def test_a_second_join_answers_the_first(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    first, second = rig.join(a), rig.join(a)
    assert [answer.error for answer in first] == [ErrorCode.rebalance_in_progress]
    rig.join(b)
    assert [answer.error for answer in second] == [NONE]


def test_a_second_sync_answers_the_first(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    rig.join(a)
    rig.join(b)
    first, second = rig.sync(b, 2), rig.sync(b, 2)
    assert [answer.error for answer in first] == [ErrorCode.rebalance_in_progress]
    assert second == []


def test_assignments_are_answered_when_they_are_durable(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    rig.join(a)
    rig.join(b)
    rig.journal.syncs = False
    syncs = [rig.sync(b, 2), rig.sync(a, 2, {a: b"for a", b: b"for b"})]
    rig.wheel.turn()
    assert (syncs, rig.group.state) == ([[], []], State.COMPLETING)
    rig.journal.sync()
    rig.wheel.turn()
    assert [s[0].assignment for s in syncs] == [b"for b", b"for a"]
    assert (syncs[0][0].protocol_type, syncs[0][0].protocol) == ("consumer", "range")
    assert rig.group.state is State.STABLE
    assert rig.sync(b, 2)[0].assignment == b"for b"


def test_a_rebalance_may_overtake_the_disk(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.join(a)
    rig.journal.syncs = False
    synced = rig.sync(a, 2, {a: b"all"})
    joins = rig.join(rig.id())
    assert synced[0].error is ErrorCode.rebalance_in_progress
    rig.journal.sync()
    rig.wheel.turn()
    assert rig.group.state is State.PREPARING
    assert rig.join(a)[0].generation == 3
    assert joins[0].generation == 3
    assert [member.assignment for member in rig.group.members] == [b"", b""]


def test_a_disk_that_refuses_an_assignment_makes_all_gather_again(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.join(a)
    rig.journal.failure = DISK
    synced = rig.sync(a, 2, {a: b"all"})
    rig.wheel.turn()
    assert synced[0].error is ErrorCode.coordinator_not_available
    assert rig.group.state is State.PREPARING
    rig.journal.failure = None
    assert rig.join(a)[0].generation == 3
    rig.settle([a])


def test_a_journal_that_takes_nothing_is_like_a_disk_that_refuses(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.join(a)
    rig.journal.refuses = DISK
    synced = rig.sync(a, 2, {a: b"all"})
    rig.wheel.turn()
    assert synced[0].error is ErrorCode.coordinator_not_available


def test_who_is_left_out_by_the_leader_gets_an_empty_assignment(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    rig.join(a)
    rig.join(b)
    rig.sync(a, 2, {a: b"all", "stranger": b"some"})
    rig.wheel.turn()
    (answer,) = rig.sync(b, 2)
    assert (answer.error, answer.assignment) == (NONE, b"")


@pytest.mark.parametrize(
    ("sync", "error"),
    [
        ({"generation": 0}, ErrorCode.illegal_generation),
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"instance": "i"}, ErrorCode.unknown_member_id),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"assignments": {"x": bytes(1_048_577)}}, ErrorCode.message_too_large),
        ({"protocol_type": "consumer", "protocol": "range"}, NONE),
    ],
)
def test_refused_syncs(rig: Rig, sync: dict[str, object], error: ErrorCode) -> None:
    (a,) = rig.stable("a")
    (answer,) = rig.sync(**{"member_id": a, "generation": 1} | sync)  # type: ignore[arg-type]
    assert answer.error is error


def test_who_does_not_ask_for_its_assignment_is_out(rig: Rig) -> None:
    a, b = rig.id(), rig.id()
    rig.join(a, session_ms=120_000)
    rig.join(b, session_ms=120_000)
    rig.wheel.turn()
    rig.sync(a, 1, {a: b"", b: b""})
    rig.wheel.turn(61)
    assert rig.group.state is State.PREPARING
    assert rig.heartbeat(b, 1) is ErrorCode.unknown_member_id
    assert rig.heartbeat(a, 1) is ErrorCode.rebalance_in_progress


def test_a_leader_that_does_not_assign_is_out(rig: Rig) -> None:
    a, b = rig.id(), rig.id()
    rig.join(a, session_ms=120_000)
    rig.join(b, session_ms=120_000)
    rig.wheel.turn()
    syncs = rig.sync(b, 1)
    rig.wheel.turn(61)
    assert syncs[0].error is ErrorCode.rebalance_in_progress
    (joined,) = rig.join(b)
    assert (joined.generation, joined.leader) == (2, b)


def test_nobody_is_put_out_once_all_have_asked(rig: Rig) -> None:
    rig.stable("a", "b", session_ms=120_000)
    rig.wheel.turn(61)
    assert rig.group.state is State.STABLE


def test_cooperative_members_rebalance_twice(rig: Rig) -> None:
    """A gives up a partition in one generation, and B gets it in the next."""
    (a,) = rig.stable("a", protocols={"cooperative-sticky": b"owns 0,1"})
    how = {"cooperative-sticky": b"owns 0,1"}
    joins_b = rig.join(rig.id(protocols=how), protocols={"cooperative-sticky": b""})
    assert rig.join(a, protocols=how)[0].generation == 2
    b = joins_b[0].member_id
    rig.sync(b, 2)
    rig.sync(a, 2, {a: b"0", b: b""})
    rig.wheel.turn()
    assert rig.group.state is State.STABLE

    joins_a = rig.join(a, protocols={"cooperative-sticky": b"owns 0"})
    assert rig.heartbeat(b, 2) is ErrorCode.rebalance_in_progress
    rig.join(b, protocols={"cooperative-sticky": b""})
    assert joins_a[0].generation == 3
    syncs_b = rig.sync(b, 3)
    rig.sync(a, 3, {a: b"0", b: b"1"})
    rig.wheel.turn()
    assert syncs_b[0].assignment == b"1"


def test_the_first_rebalance_waits_for_more_members() -> None:
    rig = Rig(GroupSettings(initial_delay_ms=3_000))
    joins = [rig.join(rig.id(), rebalance_ms=8_000)]
    rig.wheel.turn(2)
    joins.append(rig.join(rig.id(), rebalance_ms=8_000))
    rig.wheel.turn(2)
    assert joins == [[], []], "the second put it off by another delay"
    rig.wheel.turn(2)
    assert {join[0].generation for join in joins} == {1}


def test_the_first_rebalance_waits_no_longer_than_a_rebalance_may() -> None:
    rig = Rig(GroupSettings(initial_delay_ms=3_000))
    joins = []
    for _ in range(4):
        joins.append(rig.join(rig.id(), rebalance_ms=8_000))
        rig.wheel.turn(1.9)
    assert not any(joins)
    joins.append(rig.join(rig.id()))
    rig.wheel.turn(0.5)
    assert all(joins)


def test_a_group_has_room_for_so_many() -> None:
    rig = Rig(GroupSettings(max_members=2))
    a, b = rig.stable("a", "b")
    (refused,) = rig.join()
    assert refused.error is ErrorCode.group_max_size_reached
    (static,) = rig.join(instance="i")
    assert static.error is ErrorCode.group_max_size_reached
    rig.join(a, protocols={"range": b"new"})
    assert rig.join(b)[0].error is NONE, "members keep their places"


def test_a_group_gives_out_so_many_ids() -> None:
    rig = Rig(GroupSettings(max_members=2))
    first, _ = rig.id(), rig.id()
    (refused,) = rig.join()
    assert refused.error is ErrorCode.group_max_size_reached
    rig.leave(first)
    rig.id()


def test_silent_members_hold_no_place_against_new_ones() -> None:
    rig = Rig(GroupSettings(max_members=2))
    a, _ = rig.stable("a", "silent", session_ms=120_000)
    rig.join(a)
    joins = rig.join(takes_id=False)
    assert rig.join(takes_id=False)[0].error is ErrorCode.group_max_size_reached
    rig.wheel.turn(61)
    assert joins[0].error is NONE
    assert len(rig.group.members) == 2


def test_closing_answers_all_who_wait(rig: Rig) -> None:
    a, _ = rig.stable("a", "b")
    joins = rig.join(a)
    rig.id(client="c")
    rig.groups.close()
    assert joins[0].error is ErrorCode.coordinator_not_available
    assert rig.wheel.armed == 0


def test_a_disk_that_is_done_after_the_end_changes_nothing(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.join(a)
    rig.journal.syncs = False
    syncs = rig.sync(a, 2, {a: b"all"})
    rig.groups.close()
    assert [answer.error for answer in syncs] == [ErrorCode.coordinator_not_available]
    rig.journal.sync()
    rig.wheel.turn()
    assert rig.group.state is State.DEAD
    assert rig.wheel.armed == 0
