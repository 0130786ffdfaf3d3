import pytest
from kio.schema.errors import ErrorCode

from penstock import clock
from penstock.errors import LogError
from penstock.log.groups.group import State
from penstock.log.groups.settings import GroupSettings
from tests.log.groups.fakes import DISK, FakeJournal, Rig, Wheel
from tests.log.groups.kafka_bytes import assignment, subscription

NONE = ErrorCode.none
DAY = 86_400.0
P0, P1 = ("t", 0), ("t", 1)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def committed(rig: Rig) -> dict[tuple[str, int], int]:
    return {place: each.offset for place, each in rig.groups.offsets.of(rig.name).items()}


def commit(rig: Rig, offsets: dict[tuple[str, int], int], **how: object) -> ErrorCode:
    """The one error of all offsets."""
    answers = rig.commit(offsets, **how)  # type: ignore[arg-type]
    rig.wheel.turn()
    (errors,) = answers
    assert set(errors) == set(offsets)
    (error,) = set(errors.values())
    return error


class Days:
    """Wall time that goes with the wheel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wheel: Wheel) -> None:
        monkeypatch.setattr(clock, "now_ms", lambda: round(wheel.now * 1_000))


# Commits


def test_a_group_without_members_is_made_by_a_commit(rig: Rig) -> None:
    assert commit(rig, {P0: 5, P1: 7}) is NONE
    assert committed(rig) == {P0: 5, P1: 7}
    assert rig.group.state is State.EMPTY
    assert rig.group.protocol_type is None


def test_a_commit_is_answered_when_it_is_durable(rig: Rig) -> None:
    rig.journal.syncs = False
    answers = rig.commit({P0: 5})
    rig.wheel.turn()
    assert answers == []
    rig.journal.sync()
    rig.wheel.turn()
    assert answers == [{P0: NONE}]


@pytest.mark.parametrize("how", ["refuses", "failure"])
def test_a_commit_that_the_disk_refuses_says_so(rig: Rig, how: str) -> None:
    setattr(rig.journal, how, DISK)
    assert commit(rig, {P0: 5}) is ErrorCode.kafka_storage_error
    setattr(rig.journal, how, None)
    assert commit(rig, {P0: 6}) is NONE


def test_a_commit_that_the_journal_does_not_take_is_not_seen(rig: Rig) -> None:
    rig.journal.refuses = DISK
    commit(rig, {P0: 5})
    assert committed(rig) == {}
    assert rig.groups.find(rig.name) is None


def test_each_offset_of_a_commit_has_its_own_error(rig: Rig) -> None:
    answers = rig.commit({P0: 0, P1: -1})
    rig.wheel.turn()
    assert answers == [{P0: NONE, P1: ErrorCode.offset_out_of_range}]
    assert committed(rig) == {P0: 0}


@pytest.mark.parametrize(
    ("characters", "error"), [(4_096, NONE), (4_097, ErrorCode.offset_metadata_too_large)]
)
def test_notes_may_be_so_long(rig: Rig, characters: int, error: ErrorCode) -> None:
    assert commit(rig, {P0: 5}, note="x" * characters) is error


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ({}, ErrorCode.unknown_member_id),
        ({"generation": 1}, ErrorCode.unknown_member_id),
        ({"member_id": "nobody", "generation": 1}, ErrorCode.unknown_member_id),
        ({"member_id": "a"}, ErrorCode.illegal_generation),
        ({"member_id": "a", "generation": 0}, ErrorCode.illegal_generation),
        ({"member_id": "a", "generation": 2}, ErrorCode.illegal_generation),
        ({"member_id": "a", "generation": 1, "instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"member_id": "a", "generation": 1}, NONE),
    ],
)
def test_who_may_commit(rig: Rig, member: dict[str, object], error: ErrorCode) -> None:
    (a,) = rig.stable("a")
    if member.get("member_id") == "a":
        member = member | {"member_id": a}
    assert commit(rig, {P0: 5}, **member) is error
    assert committed(rig) == ({P0: 5} if error is NONE else {})


@pytest.mark.parametrize("generation", [0, 1])
def test_members_cannot_commit_to_a_group_that_is_not_there(rig: Rig, generation: int) -> None:
    member = {"member_id": "a", "generation": generation}
    assert commit(rig, {P0: 5}, **member) is ErrorCode.group_id_not_found


def test_the_members_of_the_past_cannot_commit_to_an_empty_group(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.leave(a)
    member = {"member_id": a, "generation": 1}
    assert commit(rig, {P0: 5}, **member) is ErrorCode.unknown_member_id
    assert commit(rig, {P0: 5}) is NONE


def test_a_group_must_have_a_name(rig: Rig) -> None:
    rig.name = ""
    invalid = ErrorCode.invalid_group_id
    assert rig.join()[0].error is invalid
    assert rig.sync("a", 1)[0].error is invalid
    assert rig.heartbeat("a", 1) is invalid
    assert rig.leave("a") is invalid
    assert commit(rig, {P0: 5}) is invalid
    assert drop(rig, [P0]) == (invalid, {})
    assert delete(rig) is invalid


def test_a_group_that_is_not_there_knows_no_members(rig: Rig) -> None:
    unknown = ErrorCode.unknown_member_id
    assert rig.join("a")[0].error is unknown
    assert rig.sync("a", 1)[0].error is unknown
    assert rig.heartbeat("a", 1) is unknown
    assert rig.leave("a") is unknown
    assert rig.groups.find(rig.name) is None


def test_there_may_be_so_many_groups() -> None:
    rig = Rig(GroupSettings(max_groups=1))
    rig.id()
    rig.name = "other"
    assert rig.join()[0].error is ErrorCode.group_max_size_reached
    assert commit(rig, {P0: 5}) is ErrorCode.policy_violation


# Dropping and deleting


def drop(
    rig: Rig, places: list[tuple[str, int]]
) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
    answers: list[tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]] = []
    rig.groups.drop_offsets(rig.name, places, answers.append)
    rig.wheel.turn()
    return answers.pop()


def delete(rig: Rig) -> ErrorCode:
    answers: list[ErrorCode] = []
    rig.groups.delete(rig.name, answers.append)
    rig.wheel.turn()
    return answers.pop()


def test_offsets_are_dropped(rig: Rig) -> None:
    commit(rig, {P0: 5, P1: 6})
    assert drop(rig, [P0, ("other", 3)]) == (NONE, {P0: NONE, ("other", 3): NONE})
    assert committed(rig) == {P1: 6}
    rig.restart()
    assert committed(rig) == {P1: 6}


def test_offsets_in_topics_that_members_read_are_not_dropped(rig: Rig) -> None:
    commit(rig, {P0: 5, ("old", 0): 6})
    rig.stable("a", protocols={"range": subscription("t")})
    assert drop(rig, [P0, ("old", 0)]) == (
        NONE,
        {P0: ErrorCode.group_subscribed_to_topic, ("old", 0): NONE},
    )
    assert committed(rig) == {P0: 5}


def test_what_cannot_be_read_may_be_a_subscription_to_any_topic(rig: Rig) -> None:
    commit(rig, {P0: 5})
    rig.stable("a", protocols={"range": b"?"})
    assert drop(rig, [P0])[1] == {P0: ErrorCode.group_subscribed_to_topic}


def test_groups_of_other_kinds_must_be_empty(rig: Rig) -> None:
    commit(rig, {P0: 5})
    (a,) = rig.stable("a", protocol_type="connect")
    assert drop(rig, [P0]) == (ErrorCode.non_empty_group, {})
    rig.leave(a)
    assert drop(rig, [P0]) == (NONE, {P0: NONE})


def test_a_drop_that_the_disk_refuses_says_so(rig: Rig) -> None:
    commit(rig, {P0: 5})
    rig.journal.refuses = DISK
    assert drop(rig, [P0]) == (NONE, {P0: ErrorCode.kafka_storage_error})
    assert committed(rig) == {P0: 5}


def test_an_empty_group_is_deleted_with_its_offsets(rig: Rig) -> None:
    (a,) = rig.stable("a")
    commit(rig, {P0: 5}, member_id=a, generation=1)
    assert delete(rig) is ErrorCode.non_empty_group
    rig.leave(a)
    pending = rig.id()
    assert delete(rig) is NONE
    assert delete(rig) is ErrorCode.group_id_not_found
    assert drop(rig, [P0]) == (ErrorCode.group_id_not_found, {})
    assert rig.journal.facts == {}
    assert committed(rig) == {}
    assert rig.join(pending)[0].error is ErrorCode.unknown_member_id
    rig.wheel.turn(60)


def test_a_deletion_that_the_disk_refuses_says_so(rig: Rig) -> None:
    commit(rig, {P0: 5})
    rig.journal.failure = DISK
    assert delete(rig) is ErrorCode.kafka_storage_error


def test_a_topic_that_is_deleted_is_forgotten_by_all_groups(rig: Rig) -> None:
    for rig.name in ("g", "h"):
        commit(rig, {P0: 5, ("kept", 0): 6})
    rig.journal.syncs = False
    rig.commit({P1: 9})
    rig.groups.forget_topic("t")
    rig.journal.sync()
    rig.wheel.turn()
    for _ in range(2):
        for rig.name in ("g", "h"):
            assert committed(rig) == {("kept", 0): 6}
        assert rig.groups.offsets.topics() == {"kept"}
        rig.restart()


def test_topics_that_are_gone_after_a_crash_are_forgotten(rig: Rig) -> None:
    commit(rig, {P0: 5, ("kept", 0): 6, ("unread", 1): 7})
    rig.restart()
    rig.groups.keep_topics(["kept", "other"])
    assert committed(rig) == {("kept", 0): 6}


def test_forgetting_a_topic_that_nobody_read_costs_nothing(rig: Rig) -> None:
    rig.groups.forget_topic("t")
    assert rig.journal.puts == 0


# Restarts


def test_members_go_on_after_a_restart(rig: Rig) -> None:
    a, b = rig.stable("a", "b", protocols={"x": b"1", "y": b"2"})
    commit(rig, {P0: 5}, member_id=a, generation=1)
    rig.restart()
    assert rig.group.state is State.STABLE
    assert rig.group.members.leader == a
    assert rig.heartbeat(a, 1) is rig.heartbeat(b, 1) is NONE
    assert rig.sync(b, 1)[0].assignment == b.encode()
    assert commit(rig, {P0: 6}, member_id=b, generation=1) is NONE
    assert rig.join(b, protocols={"x": b"1", "y": b"2"})[0].generation == 1, "unchanged"
    rig.join(rig.id(protocols={"y": b""}), protocols={"y": b""})
    rig.join(b, protocols={"x": b"1", "y": b"2"})
    (joined,) = rig.join(a, protocols={"x": b"1", "y": b"2"})
    assert (joined.generation, joined.protocol) == (2, "y")


def test_members_that_do_not_come_back_after_a_restart_expire(rig: Rig) -> None:
    a, b = rig.stable("a", "b")
    rig.wheel.turn(9)
    rig.restart()
    rig.wheel.turn(9)
    assert rig.heartbeat(a, 1) is NONE, "its session began anew"
    rig.wheel.turn(2)
    assert rig.heartbeat(b, 1) is ErrorCode.unknown_member_id
    assert rig.heartbeat(a, 1) is ErrorCode.rebalance_in_progress
    rig.wheel.turn(11)
    assert rig.group.state is State.EMPTY


def test_generations_go_on_growing_after_a_restart(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.leave(a)
    rig.wheel.turn()
    rig.restart()
    assert (rig.group.state, rig.group.generation) == (State.EMPTY, 2)
    rig.stable("b")
    assert rig.group.generation == 3


def test_an_unfinished_rebalance_is_forgotten_in_a_restart(rig: Rig) -> None:
    (a,) = rig.stable("a")
    rig.join(rig.id())
    rig.restart()
    assert rig.heartbeat(a, 1) is NONE
    assert len(rig.group.members) == 1


def test_offsets_keep_their_notes_and_epochs_over_a_restart(rig: Rig) -> None:
    commit(rig, {P0: 5}, note="né à 14 h 😀")
    before = rig.groups.offsets.get(rig.name, *P0)
    rig.restart()
    assert rig.groups.offsets.get(rig.name, *P0) == before
    assert rig.group.protocol_type is None


def test_what_a_newer_version_wrote_is_not_guessed_at(rig: Rig) -> None:
    rig.journal = FakeJournal({b'["offset","g","t",0]': b'[2,5,-1,"",0]'})
    with pytest.raises(LogError, match="format 2"):
        rig.restart()


# Retention


def test_offsets_of_an_empty_group_expire(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    Days(monkeypatch, rig.wheel)
    (a,) = rig.stable("a", protocols={"range": subscription("t")})
    commit(rig, {P0: 5}, member_id=a, generation=1)
    for _ in range(20):
        rig.wheel.turn(8)
        rig.heartbeat(a, 1)
    rig.wheel.turn(6.9 * DAY)
    assert rig.group.state is State.EMPTY
    assert committed(rig) == {P0: 5}
    rig.wheel.turn(0.2 * DAY)
    assert rig.groups.find(rig.name) is None
    assert rig.journal.facts == {}


def test_offsets_of_a_group_that_never_had_members_expire_one_by_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Days(monkeypatch, rig.wheel)
    commit(rig, {P0: 5})
    rig.wheel.turn(4 * DAY)
    commit(rig, {P1: 6})
    rig.wheel.turn(3.1 * DAY)
    assert committed(rig) == {P1: 6}
    rig.wheel.turn(4 * DAY)
    assert rig.groups.find(rig.name) is None


def test_a_stable_group_loses_offsets_only_in_topics_it_no_longer_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(GroupSettings(max_session_ms=10**10))
    Days(monkeypatch, rig.wheel)
    commit(rig, {P0: 5, ("old", 0): 6})
    rig.stable("a", protocols={"range": subscription("t")}, session_ms=10**10)
    rig.wheel.turn(8 * DAY)
    assert committed(rig) == {P0: 5}
    assert rig.group.state is State.STABLE


@pytest.mark.parametrize(("kind", "part"), [("connect", b"?"), ("consumer", b"?")])
def test_a_group_whose_topics_cannot_be_told_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: str, part: bytes
) -> None:
    rig = Rig(GroupSettings(max_session_ms=10**10))
    Days(monkeypatch, rig.wheel)
    commit(rig, {P0: 5})
    rig.stable("a", protocol_type=kind, protocols={"range": part}, session_ms=10**10)
    rig.wheel.turn(8 * DAY)
    assert committed(rig) == {P0: 5}


def test_the_time_of_offsets_begins_when_the_group_becomes_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(GroupSettings(max_session_ms=10**10))
    Days(monkeypatch, rig.wheel)
    (a,) = rig.stable("a", protocols={"range": subscription("t")}, session_ms=10**10)
    commit(rig, {P0: 5}, member_id=a, generation=1)
    rig.wheel.turn(6 * DAY)
    rig.leave(a)
    rig.wheel.turn(6.9 * DAY)
    assert committed(rig) == {P0: 5}
    rig.wheel.turn(0.2 * DAY)
    assert committed(rig) == {}


def test_a_restart_gives_a_group_that_never_had_members_no_more_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Days(monkeypatch, rig.wheel)
    commit(rig, {P0: 5})
    monkeypatch.setattr(clock, "now_ms", lambda: round(7.1 * DAY * 1_000))
    rig.restart()
    rig.wheel.turn(601)
    assert committed(rig) == {}


def test_an_operator_who_moves_an_empty_group_gives_it_more_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Days(monkeypatch, rig.wheel)
    (a,) = rig.stable("a")
    rig.leave(a)
    rig.wheel.turn(6 * DAY)
    commit(rig, {P0: 5})
    rig.wheel.turn(2 * DAY)
    assert committed(rig) == {P0: 5}


def test_groups_with_nothing_left_are_forgotten(rig: Rig) -> None:
    rig.id(session_ms=1_200_000)
    rig.wheel.turn(601)
    assert rig.groups.find(rig.name) is not None, "an id was given out"
    rig.wheel.turn(1_200)
    assert rig.groups.find(rig.name) is None


def test_the_time_of_an_empty_group_goes_on_over_a_restart(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Days(monkeypatch, rig.wheel)
    (a,) = rig.stable("a")
    commit(rig, {P0: 5}, member_id=a, generation=1)
    rig.leave(a)
    monkeypatch.setattr(clock, "now_ms", lambda: round(7.5 * DAY * 1_000))
    rig.restart()
    assert committed(rig) == {P0: 5}
    rig.wheel.turn(601)
    assert rig.groups.find(rig.name) is None


def test_assignments_of_consumers_are_kept_as_they_are(rig: Rig) -> None:
    (a,) = rig.stable("a", protocols={"range": subscription("t")})
    rig.join(a, protocols={"range": subscription("t")})
    rig.sync(a, 2, {a: assignment(P0, P1)})
    rig.wheel.turn()
    rig.restart()
    member = rig.group.members.get(a)
    assert member is not None
    assert member.assignment == assignment(P0, P1)
