from hypothesis import given
from hypothesis import strategies as st

from penstock.log.groups.offsets import Committed, Offsets

GROUPS = st.sampled_from("gh")
PLACES = st.tuples(st.sampled_from("tu"), st.integers(0, 1))
CHANGES = st.lists(st.tuples(GROUPS, PLACES, st.none() | st.integers(0, 9)))


@given(CHANGES)
def test_offsets_are_a_mapping_by_group_topic_and_partition(
    changes: list[tuple[str, tuple[str, int], int | None]],
) -> None:
    offsets, model = Offsets(), dict[tuple[str, tuple[str, int]], Committed]()
    for group, place, offset in changes:
        if offset is not None:
            offsets.set(group, {place: Committed(offset)})
            model[group, place] = Committed(offset)
        elif (group, place) in model:
            offsets.drop(group, place)
            del model[group, place]
        assert set(offsets.groups()) == {each for each, _ in model}
        assert offsets.topics() == {topic for _, (topic, _) in model}
        for each in "gh":
            expected = {at: committed for (named, at), committed in model.items() if named == each}
            assert offsets.of(each) == expected
            for topic, partition in [("t", 0), ("t", 1), ("u", 0), ("u", 1)]:
                found = offsets.get(each, topic, partition)
                assert found == expected.get((topic, partition))
        assert set(offsets.of_topic("t")) == {fact for fact in model if fact[1][0] == "t"}
