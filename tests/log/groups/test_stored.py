from hypothesis import given
from hypothesis import strategies as st

from penstock.log.groups.group import Group
from penstock.log.groups.members import Member
from penstock.log.groups.offsets import Committed
from penstock.log.groups.settings import GroupSettings
from penstock.log.groups.stored import (
    group_key,
    offset_key,
    read_group,
    read_key,
    read_offset,
    write_group,
    write_offset,
)
from tests.log.groups.fakes import Wheel

TEXT = st.text(max_size=8)
PLACES = st.tuples(TEXT, st.integers(0, 2**31 - 1))
LONG = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    Member,
    id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    session_ms=st.integers(0, 2**31),
    rebalance_ms=st.integers(0, 2**31),
    protocols=st.dictionaries(TEXT, st.binary(max_size=20), max_size=3),
    assignment=st.binary(max_size=20),
    new=st.just(False),
    session=st.none(),
    on_join=st.none(),
    on_sync=st.none(),
)


def fresh() -> Group:
    wheel = Wheel()
    return Group(
        "g", schedule=wheel.schedule, save=lambda group, done: None, settings=GroupSettings()
    )


@given(st.lists(st.tuples(TEXT, st.none() | PLACES), unique=True))
def test_keys_differ_and_are_read_back(facts: list[tuple[str, tuple[str, int] | None]]) -> None:
    keys = [offset_key(group, place) if place else group_key(group) for group, place in facts]
    assert len(set(keys)) == len(keys)
    assert [read_key(key) for key in keys] == facts


@given(st.builds(Committed, LONG, st.integers(-1, 2**31 - 1), TEXT, LONG))
def test_offsets_are_read_back(committed: Committed) -> None:
    assert read_offset(write_offset(committed)) == committed


@given(
    st.lists(MEMBERS, max_size=4, unique_by=(lambda m: m.id, lambda m: m.instance_id or m.id)),
    st.integers(0, 2**31 - 1),
    st.none() | TEXT,
    st.none() | TEXT,
    LONG,
    st.data(),
)
def test_groups_are_read_back(
    members: list[Member],
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    empty_since_ms: int,
    data: st.DataObject,
) -> None:
    group = fresh()
    group.generation = generation
    group.protocol_type, group.protocol = protocol_type, protocol
    group.empty_since_ms = empty_since_ms
    for member in members:
        group.members.add(member)
    if members:
        group.members.leader = data.draw(st.sampled_from([member.id for member in members]))

    read = fresh()
    read_group(write_group(group), read)
    assert list(read.members) == members
    assert [list(m.protocols) for m in read.members] == [list(m.protocols) for m in members]
    assert read.members.leader == group.members.leader
    assert (read.generation, read.empty_since_ms) == (generation, empty_since_ms)
    assert (read.protocol_type, read.protocol) == (protocol_type, protocol)
